"""The loop of all methods that take gradient steps: one Lightning module, stopping rule, resume, log."""

import math
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn

from recunlearn.foundation.quiet import silent_lightning
from recunlearn.unlearning.contract import Progress
from recunlearn.unlearning.draws import Draws, Pair
from recunlearn.unlearning.goal import Goal, next_look
from recunlearn.unlearning.journal import Journal

Losses = Callable[[nn.Module, Pair, int], tuple[Tensor, Tensor | None, Tensor]]
"""Model, batches and number of the step (from 0) -> forget loss, retain loss, what is minimised."""
OPTIMISERS: dict[str, type[torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
COLUMNS = ("step", "forget_loss", "retain_loss", "level")


@dataclass
class Run:
    """One run: what it needs, and what it found when it is over.

    Args:
        model: changed in place; only parameters that require a gradient are trained.
        losses: what a step minimises.
        draws: batches of every step.
        steps: most steps.
        learning_rate, optimiser: of the steps.
        clip: largest norm of the gradient; None: any.
        goal: ends the run early; None: it takes all steps.
        look_from: first step after which the goal may end the run.
        journal: of this run.
        log: folder of ``metrics.csv``; None: no log.
        progress, title: told each step.
        step, history, reached, diverged, seconds: found by the run. ``history`` has :data:`COLUMNS`, of
            which ``level`` is the mean loss of the forgotten where it was looked at, else NaN.
    """

    model: nn.Module
    losses: Losses
    draws: Draws
    steps: int
    learning_rate: float
    optimiser: Literal["adam", "sgd"] = "adam"
    clip: float | None = None
    goal: Goal | None = None
    look_from: int = 1
    journal: Journal = field(default_factory=lambda: Journal(None, ""))
    log: Path | None = None
    progress: Progress | None = None
    title: str = "Unlearning"
    step: int = 0
    history: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    reached: bool = False
    diverged: bool = False
    seconds: float = 0.0

    @property
    def trained(self) -> list[Tensor]:
        """Parameters that the run changes."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def __call__(self) -> "Run":
        """Take the steps that are left; afterwards the model is the last one whose loss was a number."""
        began = time.perf_counter()
        module = _Module(self)
        self._resume(module)
        earlier, watch = self.seconds, _Watch(self, module, began)
        if self.step < self.steps and not self.reached:
            _fit(module, replace(self.draws, state=module.state), self, watch)
        self.diverged = self.diverged or not _finite(self.trained)
        if self.diverged:
            module.restore()
        self.seconds = earlier + time.perf_counter() - began
        self.journal.discard()
        return self

    def _resume(self, module: "_Module") -> None:
        entry = self.journal.read()
        if entry is None:
            return
        with torch.no_grad():
            for parameter, stored in zip(self.trained, entry["parameters"], strict=True):
                parameter.copy_(stored)
        module.made.load_state_dict(entry["optimiser"])
        module.state = entry["state"]
        for name in ("step", "history", "reached", "seconds"):
            setattr(self, name, entry[name])


class _Module(lightning.LightningModule):
    """The model under unlearning; its frozen reference is no part of it."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.model = run.model
        self.run = run
        self.made = OPTIMISERS[run.optimiser](run.trained, lr=run.learning_rate)  # type: ignore[call-arg]
        self.state: Tensor | None = run.draws.state
        self.good = [p.detach().clone() for p in run.trained]
        self.row: dict[str, float] = {}

    def on_train_start(self) -> None:
        # No dropout and fixed batch statistics: a loss changes only because a weight did.
        self.model.eval()

    def training_step(self, pair: Pair, batch_idx: int) -> Tensor | None:
        with self.run.draws.subject.arithmetic(self.model):
            forget, retain, total = self.run.losses(self.model, pair, self.run.step)
        self.row = {
            "forget_loss": forget.item(),
            "retain_loss": math.nan if retain is None else retain.item(),
        }
        if not math.isfinite(total.item()):
            self.run.diverged = True
            return None
        with torch.no_grad():
            torch._foreach_copy_(self.good, self.run.trained)
        self.state = pair.state
        return total

    def restore(self) -> None:
        """Put the last good state back."""
        with torch.no_grad():
            torch._foreach_copy_(self.run.trained, self.good)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.made

    def transfer_batch_to_device(self, batch: Pair, device: torch.device, dataloader_idx: int) -> Pair:
        return batch.to(device)


class _Watch(lightning.Callback):
    """After each step: note the losses, look at the goal, write the journal, stop."""

    def __init__(self, run: Run, module: _Module, began: float) -> None:
        self.run, self.module, self.began, self.earlier = run, module, began, run.seconds
        self.interrupted = False
        levels = run.history["level"]
        looked = max((n for n, level in enumerate(levels, 1) if not math.isnan(level)), default=0)
        self.closed = self._closed(levels[looked - 1]) if looked else 0.0
        self.due = next_look(looked, self.closed, run.steps)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        # CSVLogger begins its file anew: what a killed run logged is written again.
        columns = self.run.history
        for values in zip(*(columns[name] for name in COLUMNS), strict=True):
            self._log(trainer, dict(zip(COLUMNS, values, strict=True)))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        run = self.run
        if run.diverged:
            trainer.should_stop = True
            return
        run.step += 1
        row = {"step": float(run.step), **self.module.row, "level": self._look()}
        for name, value in row.items():
            run.history[name].append(value)
        self._log(trainer, row)
        trainer.should_stop = trainer.should_stop or run.reached or run.diverged
        if run.progress is not None:
            run.progress(run.title, run.step, run.steps)
        if run.journal.due():
            self._write()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.interrupted = isinstance(exception, KeyboardInterrupt)

    def _look(self) -> float:
        run = self.run
        if run.goal is None or run.step < self.due:
            return math.nan
        level = run.goal.loss(run.model)
        self.closed = self._closed(level)
        self.due = next_look(run.step, self.closed, run.steps)
        run.reached = self.closed >= 1 and run.step >= run.look_from
        run.diverged = not math.isfinite(level)
        return level

    def _closed(self, level: float) -> float:
        goal = self.run.goal
        return (level - goal.start) / (goal.target - goal.start) if goal is not None else 0.0

    def _log(self, trainer: Any, row: dict[str, float]) -> None:
        if trainer.logger is not None:
            shown = {k: v for k, v in row.items() if k != "step" and not math.isnan(v)}
            trainer.logger.log_metrics(shown, step=int(row["step"]))

    def _write(self) -> None:
        run = self.run
        entry = {name: getattr(run, name) for name in ("step", "history", "reached")}
        entry["seconds"] = self.earlier + time.perf_counter() - self.began
        parameters = [p.detach() for p in run.trained]
        optimiser = self.module.made.state_dict()
        run.journal.write(
            {**entry, "parameters": parameters, "optimiser": optimiser, "state": self.module.state}
        )


def _fit(module: _Module, draws: Draws, run: Run, watch: _Watch) -> None:
    device = next(run.model.parameters()).device
    handler = signal.getsignal(signal.SIGINT)
    with silent_lightning():
        trainer = lightning.Trainer(
            accelerator="cpu" if device.type == "cpu" else "gpu",
            devices=1 if device.type == "cpu" else [device.index or 0],
            max_epochs=-1,
            max_steps=run.steps - run.step,
            gradient_clip_val=run.clip,
            logger=False if run.log is None else CSVLogger(run.log, name="", version=""),
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            callbacks=[watch],
        )
        try:
            trainer.fit(module, train_dataloaders=draws)
        except SystemExit:
            # Lightning turns Ctrl-C into exit(1) and leaves the signal ignored.
            if not watch.interrupted:
                raise
            signal.signal(signal.SIGINT, handler)
            raise KeyboardInterrupt from None
        run.model.to(device).eval()


def _finite(parameters: list[Tensor]) -> bool:
    return all(bool(torch.isfinite(p).all()) for p in parameters)


def peak_memory(device: torch.device) -> int:
    """Peak so far in bytes: of the device, or the resident set of this process on the CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
