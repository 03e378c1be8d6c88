"""Forget sets on a terminal: rows as data first, then drawn with rich."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from recunlearn.foundation.records import ForgetSet

HEADERS = ("set", "users", "interactions", "mean CUD", "item popularity", "anchors", "probed")


TEXT_HEADERS = ("set", "rows", "answer tokens", "mean CUD", "shared wording", "anchors", "probed")
"""Of rows or authors of a language model's data."""


def rows(sets: Sequence[ForgetSet], *, digits: int = 0) -> list[tuple[str, ...]]:
    """One row a set, in the order of :data:`HEADERS`; ``digits`` of the popularity."""
    return [
        (
            s.name,
            f"{len(s.entities):,}",
            f"{int(s.n_interactions.sum()):,}",
            _figure(s.settings["mean_cud"], 3),
            _figure(s.settings["mean_item_popularity"], digits),
            str(s.settings["anchors"]),
            "unknown" if s.settings["probed"] is None else str(s.settings["probed"]),
        )
        for s in sets
    ]


def _figure(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def draw(
    console: Console,
    sets: Sequence[ForgetSet],
    sentences: Sequence[str],
    headers: Sequence[str] = HEADERS,
    *,
    digits: int = 0,
) -> None:
    """Print the table and what to know about it."""
    table = Table(box=None, pad_edge=False)
    for name in headers:
        table.add_column(name, justify="left" if name == "set" else "right")
    for row in rows(sets, digits=digits):
        table.add_row(*row)
    console.print(table)
    for sentence in sentences:
        console.print(sentence, markup=False, highlight=False, style="dim")
