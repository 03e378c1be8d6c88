"""What a user asked for on the command line: options over a settings file, parameters, lists of users."""

import csv
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recunlearn.foundation.errors import DataError, UsageError, near_miss

MOST_NAMED = 10
USER_COLUMNS = ("userid", "user", "uid", "id", "rowid", "authorid")
"""Names of a column of user ids, in small letters and digits only."""
SEPARATORS = (",", "\t", ";", "|")


@dataclass(frozen=True)
class Listed:
    """Whose ids a file lists, and the option that names the file."""

    entity: str = "user"
    option: str = "--users"


USERS = Listed()


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were given: without None and empty tables."""
    return {k: v for k, v in options.items() if v is not None and v != {}}


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one table of settings over another, table by table.

    >>> merged({"a": {"x": 1}, "b": 2}, {"a": {"y": 3}})
    {'a': {'x': 1, 'y': 3}, 'b': 2}
    """
    out = dict(under)
    for key, value in over.items():
        below = out.get(key)
        out[key] = (
            merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
        )
    return out


def parameters(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``KEY=VALUE`` pairs; a value is read as TOML where it is TOML, else as text.

    >>> parameters(["embedding_size=32", "mlp_hidden_size=[64, 32]", "learner=adam"])
    {'embedding_size': 32, 'mlp_hidden_size': [64, 32], 'learner': 'adam'}

    Raises:
        UsageError: a pair without ``=`` or key, or a key given twice.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            raise UsageError(f"--set needs KEY=VALUE, such as --set embedding_size=32, but got '{pair}'.")
        if key in found:
            raise UsageError(f"--set {key} was given twice. Give it once.")
        found[key] = _value(text.strip())
    return found


def _value(text: str) -> Any:
    try:
        read = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return read["value"] if len(read) == 1 else text


def read_users(file: Path, of: Listed = USERS) -> list[str]:
    """Read ids of users, or of others, from a CSV with a header, or from a text file with one id a line.

    Ids stay text, their order is kept, repetitions are dropped.

    Raises:
        DataError: missing, empty or binary file, no column of user ids, or an empty id.
    """
    lines = _lines(file, of)
    if not lines:
        raise DataError(
            f"{file} holds no {of.entity}s. Write one id a line, or a CSV with the column {of.entity}_id."
        )
    if file.suffix.lower() in (".csv", ".tsv") or _user_column(_cells(lines[0][1])) is not None:
        ids = _column(file, lines, of.entity)
    else:
        ids = [(n, text) for n, text in lines if text]
    if not ids:
        raise DataError(f"{file} has a header but no {of.entity}s below it. Add one id a line.")
    return list(dict.fromkeys(text for _, text in ids))


def _lines(file: Path, of: Listed) -> list[tuple[int, str]]:
    try:
        raw = Path(file).read_bytes()
    except FileNotFoundError:
        raise DataError(
            f"The {of.entity}s file {file} does not exist. Check the path given to {of.option}."
        ) from None
    except OSError as error:
        raise DataError(f"The {of.entity}s file {file} cannot be read ({error.strerror}).") from None
    if b"\0" in raw or sum(raw.count(bytes([b])) for b in range(1, 9)) > len(raw) * 0.01:
        raise DataError(f"{file} is a binary file, but {of.option} needs text: one id a line, or a CSV.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    numbered = [(n, line.strip("\r")) for n, line in enumerate(text.split("\n"), 1)]
    return [(n, line) for n, line in numbered if line.strip()]


def _column(file: Path, lines: list[tuple[int, str]], entity: str) -> list[tuple[int, str]]:
    header, separator = _cells(lines[0][1]), _separator(lines[0][1])
    at = _user_column(header)
    if at is None:
        close = next(filter(None, (near_miss(h, [f"{entity}_id"]) for h in header)), "")
        raise DataError(
            f"{file} has no column of {entity} ids: its header is {', '.join(header)}.{close} Name the "
            f"column {entity}_id, or save ids without a header as a .txt file, one a line."
        )
    ids = []
    for number, line in lines[1:]:
        row = _row(line, separator, f"{file}, line {number}")
        if len(row) <= at or not row[at].strip():
            raise DataError(
                f"{file}, line {number}: the {entity} id is empty. Delete the line or fill it in."
            )
        ids.append((number, row[at]))
    return ids


def _separator(header: str) -> str:
    return next((s for s in SEPARATORS if s in header), ",")


def _cells(header: str) -> list[str]:
    return [h.strip().strip('"') for h in header.split(_separator(header))]


def _user_column(header: Sequence[str]) -> int | None:
    names = [_plain(h) for h in header]
    return next((names.index(known) for known in USER_COLUMNS if known in names), None)


def _plain(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())


def _row(line: str, separator: str, where: str) -> list[str]:
    """Cells of one line; ids have no line breaks, so a quote that stays open is a mistake."""
    try:
        return next(csv.reader([line], delimiter=separator, strict=True))
    except csv.Error as error:
        raise DataError(f"{where}: {error}. Correct that line.") from None


def unknown_sentence(unknown: Sequence[str], known: Sequence[str], file: Path, dataset: str) -> str:
    """Name users that the data set does not have."""
    close = near_miss(unknown[0], known) if len(unknown) == 1 else ""
    verb = "is" if len(unknown) == 1 else "are"
    return (
        f"{_count(unknown)} of {file} {verb} not in the data set '{dataset}': "
        f"{_named(unknown)}.{close} Correct the file, or add --on-missing skip."
    )


def _count(users: Sequence[str]) -> str:
    return "1 user" if len(users) == 1 else f"{len(users)} users"


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return ", ".join(repr(u) for u in ids[:MOST_NAMED]) + more


def missing_sentence(missing: Sequence[str], table: Any, file: Path, settings: Any) -> str:
    """Name users that have no score: unknown, filtered out, or without a training interaction."""
    from recunlearn.data.catalogue import load_interactions

    unscored = set(table["user_id"][table["cud"].isna()])
    raw = set(load_interactions(settings.dataset).users.tolist()) | unscored
    groups = {
        f"not in the data set '{settings.dataset}'": [u for u in missing if u not in raw],
        "filtered out by the minimum rating": [u for u in missing if u in raw - unscored],
        "without a training interaction": [u for u in missing if u in unscored],
    }
    parts = []
    for reason, ids in groups.items():
        if ids:
            parts.append(f"{reason}: {_named(ids)}")
    return f"{_count(missing)} of {file} cannot be scored ({'; '.join(parts)})."
