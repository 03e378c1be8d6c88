"""Progress and messages on stderr."""

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


@contextmanager
def listening() -> Iterator[Listener]:
    """Show stages as bars that vanish when they are done, and sentences above them, all on stderr."""
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
