"""The live table of a running benchmark, on stderr."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from recunlearn.studies.benchmark.board import Board

MOST_SECONDS = 90
"""Above it a time is told in minutes."""
LINE_SECONDS = 300.0
"""Between two lines where stderr is no terminal."""


@contextmanager
def live(board: Board) -> Iterator[None]:
    """Show cells by model and method and the time that is left; without a terminal, a line now and then."""
    console = Console(stderr=True)

    def look() -> RenderableType:
        board.look()
        return drawn(board)

    if not console.is_terminal:
        with _lines(board, console):
            yield
        return
    with Live(get_renderable=look, console=console, refresh_per_second=1, transient=True):
        yield


@contextmanager
def _lines(board: Board, console: Console) -> Iterator[None]:
    """Tell the state before and after, and every some minutes where it changed."""
    over = threading.Event()
    told = ""

    def tell() -> None:
        nonlocal told
        board.look()
        state = _state(board)
        if state != told:
            console.print(Text(state), soft_wrap=True)
        told = state

    def watch() -> None:
        while not over.wait(LINE_SECONDS):
            tell()

    tell()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    tell()


def drawn(board: Board) -> RenderableType:
    """Table of the cells, and one line below."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("model", "method", "cells", "seconds each", ""):
        table.add_column(name, justify="left" if name in ("model", "method", "") else "right")
    for model, method, done, count, mean, unable in board.rows():
        table.add_row(
            model,
            method,
            f"{done}/{count}",
            "" if mean is None else f"{mean:.1f}",
            f"unable in {unable}" if unable else "",
            style="green" if done == count else None,
        )
    return Group(table, Text(_state(board), style="dim"))


def _state(board: Board) -> str:
    cells, done = len(board.plan.cells), len(board.found)
    if done == cells:
        return f"All {cells} cells done."
    left = board.remaining()
    ahead = f"{len(board.waiting)} references and budgets to go, " if board.waiting else ""
    time = "remaining time known after the first ones" if left is None else f"about {spoken(left)} left"
    return f"{done} of {cells} cells done, {ahead}{time}."


def spoken(seconds: float) -> str:
    """Seconds, minutes or hours.

    >>> spoken(42.4), spoken(600), spoken(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < MOST_SECONDS:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"
