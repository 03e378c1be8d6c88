"""Scan: does any file of a folder still hold a user? Names of files, ids and rows are looked for."""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recunlearn.deletion.readers import UnreadableError, look_into
from recunlearn.deletion.wanted import Rows, Wanted, is_distinct, users_in
from recunlearn.foundation.errors import UsageError


@dataclass(frozen=True)
class Finding:
    """One file that holds users, or could not be looked into.

    Args:
        path: relative to the scanned folder; an id in it is masked.
        kind: ``name``: the file is named after a user; ``id``: an id stands in it; ``rows``: it repeats the
            items and times of a user; ``unread``: nobody looked.
        where: column, key, member or reason.
        users: places in the list of users that was asked for.
        count: hits.
    """

    path: str
    kind: Literal["name", "id", "rows", "unread"]
    where: str
    users: tuple[int, ...] = ()
    count: int = 0


def scan(folder: Path, users: Sequence[str], *, rows: Rows | None = None) -> list[Finding]:
    """Look for users in every file of a folder, also in archives; links to folders are not followed.

    Ids with six characters or more (nine, if all are digits) are looked for everywhere, in every file, in
    UTF-8, 16 and 32, and as JSON, HTML and URLs write them. Shorter ones would be found in any number: they
    are looked for where a column, key or array is named after users, in lists with one id a line, and in
    file names.

    Args:
        folder: what to scan; a single file is fine, too.
        users: external ids.
        rows: (item, time) of their interactions: a table that repeats half of a user's, three or more, is
            found whatever it calls the user.

    Returns:
        Findings by path; no id stands in them.

    Raises:
        UsageError: no such folder, or nobody to look for.
    """
    folder = Path(folder)
    if not folder.exists():
        raise UsageError(f"{folder} does not exist, so it cannot be scanned. Check the path.")
    if not users or not all(users):
        raise UsageError("A scan needs users to look for, each with an id. Name them with --users.")
    wanted = Wanted(list(dict.fromkeys(users)), rows or {})
    found: list[Finding] = []
    for path in [folder] if folder.is_file() else sorted(_everything(folder)):
        found += _of(path, folder, wanted)
    return found


def _everything(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        yield from (Path(place) / name for name in (*folders, *files))


def _of(path: Path, folder: Path, wanted: Wanted) -> Iterator[Finding]:
    shown = _masked(str(path.relative_to(folder)) if path != folder else path.name, wanted)
    named = _in_name(path.name, wanted)
    if named:
        yield Finding(shown, "name", "name of the file", users_in(named), len(named))
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return
        hits: dict[str, list[int]] = {}
        for where, places in look_into(path, wanted):
            hits.setdefault(_masked(where, wanted), []).extend(places)
    except UnreadableError as error:
        yield Finding(shown, "unread", str(error))
    except OSError as error:
        yield Finding(shown, "unread", os.strerror(error.errno or 0))
    else:
        for where, places in hits.items():
            kind: Literal["rows", "id"] = "rows" if where.endswith("rows") else "id"
            yield Finding(shown, kind, where, users_in(places), len(places))


def _in_name(name: str, wanted: Wanted) -> list[int]:
    hits = wanted.in_bytes(name.encode("utf-8", "surrogateescape"), text=True)
    for user, place in wanted.places.items():
        if not is_distinct(user):
            after = rf"(?i:user|uid|customer)s?[-_. =]?{re.escape(user)}(?![0-9A-Za-z])"
            hits += [place for _ in re.finditer(after, name)]
    return hits


def _masked(text: str, wanted: Wanted) -> str:
    """Text without ids: distinct ones, and short ones that follow the word user."""
    for user in sorted(wanted.users, key=len, reverse=True):
        if is_distinct(user):
            text = text.replace(user, "***")
        else:
            text = re.sub(
                rf"(?i)((?:user|uid|customer)s?[-_. =]?){re.escape(user)}(?![0-9A-Za-z])", r"\1***", text
            )
    return text
