"""A progress bar of training on stderr, after one line with the expected time."""

import time
from typing import Any

import lightning
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_WARM_UP, _TIMED = 2, 8


class Bar(lightning.Callback):
    """One bar over all epochs with the best validation score; eight timed batches give the expected time.

    Args:
        title: text before the bar.
        epochs: most epochs.
        journal: where epochs done and scores are read from.
        early: whether training may stop before the last epoch.
    """

    def __init__(self, title: str, epochs: int, journal: Any, *, early: bool = True) -> None:
        self._title, self._epochs, self._journal, self._early = title, epochs, journal, early
        self._batches, self._began = 0, 0.0
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(title, total=None, state="")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Show the bar."""
        batches = trainer.num_training_batches
        self._progress.update(
            self._task,
            total=self._epochs * batches,
            completed=self._journal.epoch * batches,
            state=self._state(),
        )
        self._progress.start()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Advance by one batch."""
        self._progress.advance(self._task)
        self._batches += 1
        if self._batches == _WARM_UP:
            self._began = time.perf_counter()
        elif self._batches == _WARM_UP + _TIMED:
            self._announce((time.perf_counter() - self._began) / _TIMED * trainer.num_training_batches)

    def _announce(self, seconds: float) -> None:
        left = self._epochs - self._journal.epoch
        more = " more" * (self._journal.epoch > 0)
        whole = f"about {_spoken(seconds * left)} for {left}{more} epoch{'s' * (left != 1)}"
        self._progress.console.print(
            f"{self._title}: about {seconds:.1f} s an epoch"
            + (
                f" without evaluation, so at most {whole}; early stopping may end sooner."
                if self._early
                else f", {whole}."
            )
        )

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Show the newest scores."""
        self._progress.update(self._task, state=self._state())

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Take the bar away."""
        self._progress.stop()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave a usable terminal."""
        self._progress.stop()

    def _state(self) -> str:
        text = f"epoch {self._journal.epoch}/{self._epochs}"
        if self._journal.best_score is not None:
            text += (
                f", best validation score {self._journal.best_score:.4f} (epoch {self._journal.best_epoch})"
            )
        return text


def _spoken(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
