"""The contract of an unlearning method: what it costs, and what it makes of a model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import nn

from recunlearn.foundation.settings import Settings
from recunlearn.subjects.contract import IntArray, Subject

Progress = Callable[[str, int, int], None]
"""Called with what is under way, how many parts of it are done and how many there are at most."""
History = Mapping[str, list[float]]
"""Columns of equal length, such as ``step``, ``forget_loss`` and ``retain_loss``; NaN where not measured."""


@dataclass(frozen=True)
class Cost:
    """What unlearning will cost at most, stated before it runs.

    Args:
        sentence: the whole cost in one sentence.
        parameters: numbers that are trained.
        steps: optimiser steps; None where the method does not count them.
        passes: passes over the training data, forgotten and others together, in units of one epoch.
        seconds: expected wall time; None where unknown.
        shards: expected shards retrained; None for a method without shards.
    """

    sentence: str
    parameters: int
    steps: int | None = None
    passes: float | None = None
    seconds: float | None = None
    shards: float | None = None


@dataclass(frozen=True)
class Unlearned:
    """An unlearned model and how it came about.

    Args:
        model: in eval mode; ``subject.log_likelihood(model, batch)`` reads it.
        method: name of the method.
        settings: all settings of the method.
        seed: of every draw.
        forgotten: number of entities forgotten.
        steps: optimiser steps made; 0 where the method does not count them.
        seconds: wall time of everything the method did, earlier parts of a resumed run included.
        peak_memory: bytes; of the device where it has its own memory, else the resident set of the process.
        parameters: numbers that were trained.
        reached: whether the stopping rule's target was reached; None without a target.
        diverged: whether the loss stopped being a number; ``model`` is then the last good state.
        history: losses by step.
        shards: shards retrained; None for a method without shards.
        parts: seconds by part of the work, where a method has parts.
        start, target: mean loss of the forgotten before, and the one that the stopping rule waits for.
    """

    model: nn.Module
    method: str
    settings: Mapping[str, Any]
    seed: int
    forgotten: int
    steps: int
    seconds: float
    peak_memory: int
    parameters: int
    reached: bool | None = None
    diverged: bool = False
    history: History = field(default_factory=dict)
    shards: int | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    start: float | None = None
    target: float | None = None

    def facts(self) -> dict[str, Any]:
        """Everything but model and history, as plain values."""
        return {k: v for k, v in vars(self).items() if k not in ("model", "history")}


@runtime_checkable
class Unlearner(Protocol):
    """One unlearning method with its settings. An instance holds nothing of a run and can be used again.

    A file in ``recunlearn/unlearning/methods`` holds one class of this form, whose constructor takes its
    settings. A method may train in processes of its own; one call of ``unlearn`` is one deletion request.
    """

    name: ClassVar[str]
    settings_type: ClassVar[type[Settings]]
    """Class of its settings, with a default for each."""
    plain: ClassVar[bool]
    """Whether the unlearned model has the form of the subject's own, so that a checkpoint can hold it."""
    settings: Settings

    def original(
        self, subject: Subject, *, seed: int = 0, folder: Path | None = None, progress: Progress | None = None
    ) -> nn.Module:
        """Model that this method forgets from, before any deletion.

        The subject's own model, or one that the method needs instead (an ensemble over shards), trained here
        once and read back from ``folder`` afterwards. ``subject.log_likelihood`` must be able to read it.
        """
        ...

    def cost(self, subject: Subject, forget: IntArray) -> Cost:
        """What forgetting ``forget`` (rows of ``subject.entities``) will cost at most.

        Raises:
            UsageError: the method cannot forget these entities or does not know the family of the model.
        """
        ...

    def unlearn(
        self,
        subject: Subject,
        forget: IntArray,
        *,
        seed: int = 0,
        folder: Path | None = None,
        progress: Progress | None = None,
    ) -> Unlearned:
        """Forget ``forget``; the subject and its model stay as they are.

        Args:
            subject: with the original model.
            forget: rows of ``subject.entities``.
            seed: of every draw; the same seed gives the same model.
            folder: where a killed run goes on from and the log lies; None: neither.
            progress: told each step.

        Raises:
            UsageError: nobody or everybody is to be forgotten, nobody of them has a training sample, or the
                method does not know the family of the model.
        """
        ...
