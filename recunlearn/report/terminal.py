"""Progress and messages on stderr."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from recunlearn.studies.scoring import Listener

LINE_SECONDS = 60.0
"""Between two lines about a stage, where stderr is no terminal."""


@contextmanager
def listening() -> Iterator[Listener]:
    """Show stages as bars that vanish when they are done, and sentences above them, all on stderr.

    In a file or a pipe a long stage has a line a minute instead of a bar.
    """
    console = Console(stderr=True)
    bars: list[Progress] = []

    def close() -> None:
        while bars:
            bars.pop().stop()

    def say(sentence: str) -> None:
        warning = sentence.startswith("Warning: ")
        console.print(sentence, style="yellow" if warning else "dim", markup=False, highlight=False)

    def stage(title: str, total: int | None) -> Callable[[int], None]:
        close()
        if not console.is_terminal:
            return _lines(title, total, say)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True)
        task = bar.add_task(title, total=total)
        bar.start()
        bars.append(bar)
        return lambda n: bar.advance(task, n)

    try:
        yield Listener(say, stage, bars=True)
    finally:
        close()


def _lines(title: str, total: int | None, say: Callable[[str], None]) -> Callable[[int], None]:
    """Count a stage and tell how far it is, a minute after the last time."""
    done, began = 0, time.monotonic()
    told = began

    def advance(n: int) -> None:
        nonlocal done, told
        done, now = done + n, time.monotonic()
        if now - told >= LINE_SECONDS:
            told = now
            whole = "" if total is None else f" of {total}"
            say(f"{title}: {done}{whole} after {(now - began) / 60:.0f} min.")

    return advance
