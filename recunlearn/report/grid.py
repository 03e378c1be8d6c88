"""A printed table as data, as Markdown and on a terminal."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

NONE = "–"
LARGE = 100
GAP = 1
"""Blanks between columns in the terminal."""


@dataclass(frozen=True)
class Grid:
    """One printed table.

    Args:
        title: above it.
        head: names of the columns; the first ``left`` of them hold text.
        rows: cells.
        left: columns of text.
        note: stands below, or in place of the rows where there are none.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    note: str = ""


def number(value: float | None, digits: int = 2) -> str:
    """Fixed digits with a true minus; a dash for no number; large ones without digits.

    >>> number(0.12345), number(None), number(1234.5), number(-0.001)
    ('0.12', '–', '1,234', '0.00')
    """
    if value is None or not math.isfinite(value):
        return NONE
    text = f"{value:,.0f}" if abs(value) >= LARGE else f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text.replace(",", "")) else text.removeprefix("-")


def markdown(grid: Grid, level: int = 2) -> str:
    """Pipe table with a heading."""
    rule = ["---"] * grid.left + ["---:"] * (len(grid.head) - grid.left)
    parts = ["#" * level + f" {grid.title}"]
    if grid.rows:
        parts.append("\n".join([_line(grid.head), _line(rule), *map(_line, grid.rows)]))
    if grid.note:
        parts.append(grid.note)
    return "\n\n".join(parts) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def draw(console: Console, grid: Grid, colours: Mapping[str, str] | None = None) -> None:
    """Print it; ``colours``: styles of cells by their text."""
    console.print(Text(grid.title, style="bold cyan"))
    if grid.rows:
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
        for place, name in enumerate(grid.head):
            text = place < grid.left
            table.add_column(name, justify="left" if text else "right", overflow="fold", no_wrap=not text)
        for row in grid.rows:
            table.add_row(*(Text(cell, style=(colours or {}).get(cell, "")) for cell in row))
        console.print(table)
    if grid.note:
        console.print(Text(grid.note, style="dim" if grid.rows else "yellow"))
    console.print()
