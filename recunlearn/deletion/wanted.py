"""What a scan looks for: ids of users, written in any of the usual ways, and their rows."""

import html
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from recunlearn.data.interactions import Interactions

DISTINCT, DISTINCT_DIGITS = 6, 9
"""Length of an id from which on it is looked for everywhere; the second where it is digits alone."""
USER_NAMES = frozenset(
    f"{word}{end}"
    for word in ("user", "customer", "client", "member", "account", "visitor", "person", "reviewer")
    for end in ("", "s", "id", "ids", "sid")
) | {"uid", "uids", "entity", "entities", "subject", "subjects"}
"""Names of columns and keys, without case and punctuation, below which short ids are looked for."""
ITEM_NAMES = frozenset({"item", "items", "itemid", "movieid", "productid", "sku", "trackid", "asin"})
TIME_NAMES = frozenset({"time", "timestamp", "at", "date", "datetime", "ts"})
LEAST_ROWS, SHARE_OF_ROWS = 3, 0.5
"""Rows of a user that a table must repeat, and their share, before they count as found."""

Rows = Mapping[str, Sequence[tuple[str, float]]]


def rows_of(interactions: Interactions, users: Iterable[str]) -> dict[str, list[tuple[str, float]]]:
    """Item and time of each of the users' rows; nothing where the data have no times."""
    if interactions.time is None:
        return {}
    found = {}
    for user in users:
        mine = (interactions.users == user)[interactions.user]
        items, times = interactions.items[interactions.item[mine]], interactions.time[mine]
        found[user] = list(zip(items.tolist(), times.tolist(), strict=True))
    return found


def plain_name(name: Any) -> str:
    """Letters and digits of a column's or key's name, RecBole's type left out.

    >>> plain_name("User_ID:token")
    'userid'
    """
    return "".join(c for c in str(name).partition(":")[0].casefold() if c.isalnum())


@dataclass(frozen=True)
class Wanted:
    """Users to look for.

    Args:
        users: external ids.
        rows: user -> (item, time) of their interactions, where these are known.
    """

    users: Sequence[str]
    rows: Rows = field(default_factory=dict)

    @cached_property
    def places(self) -> dict[str, int]:
        """Number of each user in the list."""
        return {user: place for place, user in enumerate(self.users)}

    @cached_property
    def _spelled(self) -> dict[bytes, int]:
        """Ways to write the distinct ids -> place of the user."""
        found: dict[bytes, int] = {}
        for user, place in self.places.items():
            if is_distinct(user):
                texts = {
                    user,
                    json.dumps(user)[1:-1],
                    html.escape(user),
                    quote(user),
                    user.replace('"', '""'),
                }
                for text in texts:
                    for encoding in ("utf-8", "utf-16-le", "utf-32-le"):
                        found[text.encode(encoding)] = place
        return found

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest way to write an id."""
        return max(map(len, self._spelled), default=0)

    @cached_property
    def _anywhere(self) -> re.Pattern[bytes] | None:
        ways = sorted(self._spelled, key=len, reverse=True)
        return re.compile(b"|".join(map(re.escape, ways))) if ways else None

    def in_bytes(self, data: bytes, *, text: bool) -> list[int]:
        """Places of the distinct ids in ``data``, one a hit; in text only where no letter adjoins."""
        if self._anywhere is None:
            return []
        hits = []
        for match in self._anywhere.finditer(data):
            if text and (_adjoins(data, match.start() - 1) or _adjoins(data, match.end())):
                continue
            hits.append(self._spelled[match.group()])
        return hits

    def in_value(self, value: Any, *, of_users: bool) -> list[int]:
        """Places of ids in a value: an equal one where the name is of users, distinct ones within a text."""
        text = as_text(value)
        if text is None:
            return []
        if of_users and text in self.places:
            return [self.places[text]]
        return self.in_bytes(text.encode("utf-8", "surrogatepass"), text=True)

    def in_values(self, values: Iterable[Any], *, of_users: bool) -> list[int]:
        """Places of ids among values, one a hit."""
        return [place for value in values for place in self.in_value(value, of_users=of_users)]

    def in_table(self, table: pd.DataFrame) -> list[tuple[str, list[int]]]:
        """Columns of a table that hold ids, and places, one a hit."""
        found = []
        for column in table.columns:
            hits = self._in_column(table[column], of_users=plain_name(column) in USER_NAMES)
            if hits:
                found.append((f"column {column}", hits))
        return found

    def _in_column(self, column: pd.Series, *, of_users: bool) -> list[int]:
        if column.dtype == object:
            column = column.map(as_text)
        counts = column.value_counts(sort=False)
        hits = []
        for value, count in counts.items():
            hits += self.in_value(value, of_users=of_users) * int(count)
        return hits


class RowTally:
    """Rows of users that the tables of one file repeat, whatever they call the user.

    Args:
        wanted: users with their rows.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.sought = {(item, float(time)) for rows in wanted.rows.values() for item, time in rows}
        self.seen: set[tuple[str, float]] = set()

    def add(self, table: pd.DataFrame) -> None:
        """Look at a table, or at the next part of one."""
        names = {plain_name(column): column for column in reversed(table.columns)}
        item = next((names[n] for n in names if n in ITEM_NAMES), None)
        time = next((names[n] for n in names if n in TIME_NAMES), None)
        if not self.sought or item is None or time is None:
            return
        times = pd.to_numeric(table[time], errors="coerce").to_numpy(dtype=np.float64)
        close = np.isin(times, list({time for _, time in self.sought}))
        rows = zip(table[item][close], times[close], strict=True)
        self.seen |= {(text, float(t)) for i, t in rows if (text := as_text(i)) is not None} & self.sought

    def hits(self) -> list[int]:
        """Places of users of whom enough rows were seen, one a row."""
        found = []
        for user, rows in self.wanted.rows.items():
            mine = {(item, float(time)) for item, time in rows}
            same = len(mine & self.seen)
            if same >= max(LEAST_ROWS, math.ceil(SHARE_OF_ROWS * len(mine))):
                found += [self.wanted.places[user]] * same
        return found


def is_distinct(user: str) -> bool:
    """Tell whether an id is long enough to be looked for everywhere.

    >>> [is_distinct(user) for user in ("405", "canary-7f3a", "a405", "123456789")]
    [False, True, False, True]
    """
    return len(user) >= (DISTINCT_DIGITS if user.isdigit() else DISTINCT)


def as_text(value: Any) -> str | None:
    """Text of a value that may be an id: texts, lists of them, and whole numbers; None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, np.ndarray | list | tuple):
        return " ".join(map(str, value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, bool) or not hasattr(value, "__int__"):
        return None
    try:
        return str(int(value)) if float(value) == int(value) else None
    except (ValueError, OverflowError, TypeError):
        return None


def _adjoins(data: bytes, place: int) -> bool:
    if not 0 <= place < len(data):
        return False
    byte = data[place]
    return chr(byte).isalnum() if byte < 128 else False


def users_in(hits: Collection[int]) -> tuple[int, ...]:
    """Every place once, in order."""
    return tuple(sorted(set(hits)))
