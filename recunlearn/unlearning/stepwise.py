"""What all methods that take gradient steps on a copy of the model share."""

import copy
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from recunlearn.foundation.settings import Settings
from recunlearn.foundation.store import content_hash
from recunlearn.subjects.contract import IntArray, Subject
from recunlearn.unlearning.contract import Cost, Progress, Unlearned
from recunlearn.unlearning.draws import Draws, Pair
from recunlearn.unlearning.goal import LOOKED_SAMPLES, forget_goal
from recunlearn.unlearning.journal import Journal
from recunlearn.unlearning.loop import Run, peak_memory
from recunlearn.unlearning.request import FAMILIES, check_family, checked, rest_of

RULES = 1
"""Raised when the same settings would no longer make the same model."""
TIMED_STEPS = 2


class LoopSettings(Settings):
    """How steps are taken, and when they end."""

    learning_rate: float = Field(default=1e-3, gt=0)
    """Of the optimiser."""
    steps: int = Field(default=500, ge=1)
    """Most optimiser steps."""
    batch_size: int = Field(default=2048, ge=1)
    """Interactions of the forgotten in a step, and as many of the others."""
    until: Literal["stranger", "steps"] = "stranger"
    """``stranger``: stop at the mean loss that population-mean vectors have; ``steps``: take all steps."""
    target: float | None = None
    """Mean loss of the forgotten to stop at instead."""
    looked: int = Field(default=LOOKED_SAMPLES, ge=1)
    """Most interactions of each forgotten user whose loss tells when to stop."""
    clip: float | None = Field(default=None, gt=0)
    """Largest norm of the gradient; None: any."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """Adam, or plain gradient steps."""


class Stepwise(ABC):
    """A method that takes gradient steps on a copy of the model.

    Args:
        settings: of the method.
    """

    name: ClassVar[str]
    settings_type: ClassVar[type[LoopSettings]]
    plain: ClassVar[bool] = True
    families: ClassVar[tuple[str, ...]] = FAMILIES

    def __init__(self, settings: Any = None) -> None:
        """Take settings; none: the defaults."""
        self.settings: Any = self.settings_type() if settings is None else settings

    @abstractmethod
    def losses(
        self, subject: Subject, model: nn.Module, reference: nn.Module, pair: Pair
    ) -> tuple[Tensor, Tensor | None]:
        """Forget loss ``[]``, and retain loss ``[]`` or None, unweighted."""

    @abstractmethod
    def weights(self, step: int, epoch: int) -> tuple[float, float]:
        """Weights of both losses in a step (from 0); ``epoch`` steps see as many samples as are forgotten."""

    def retains(self) -> bool:
        """Tell whether samples of the others are drawn."""
        return True

    def adapt(self, subject: Subject, model: nn.Module, forget: IntArray, seed: int) -> nn.Module:
        """Prepare the copy for training; parameters that need no gradient stay as they are."""
        return model

    def merge(self, model: nn.Module) -> nn.Module:
        """Undo what :meth:`adapt` did to the form of the model, keeping what was learned."""
        return model

    def reference(self, subject: Subject, forget: IntArray, seed: int) -> nn.Module:
        """Frozen model that losses compare with: the original one."""
        return subject.model

    def teacher_steps(self, subject: Subject, forget: IntArray) -> int:
        """Steps that making the reference takes."""
        return 0

    def stand_in(self, subject: Subject) -> nn.Module:
        """Something that costs as much to read as the reference, without making it."""
        return subject.model

    def look_from(self, epoch: int) -> int:
        """First step after which the stopping rule may end the run."""
        return 1

    def original(
        self, subject: Subject, *, seed: int = 0, folder: Path | None = None, progress: Progress | None = None
    ) -> nn.Module:
        """Model that this method forgets from: the subject's own."""
        return subject.model

    def cost(self, subject: Subject, forget: IntArray) -> Cost:
        """Steps, passes and expected seconds at most; two steps are timed."""
        forget = self._checked(subject, forget)
        run = self._run(subject, forget, 0, self.stand_in(subject))
        parameters, passes = _count(run.trained), self._passes(subject)
        teacher = self.teacher_steps(subject, forget)
        seconds = _seconds_a_step(run) * (run.steps + teacher)
        samples, who = int(subject.n_samples()[forget].sum()), subject.words
        others = f" and {self.settings.batch_size:,} of the others" if self.retains() else ""
        before = f", after {teacher} steps for its teacher" if teacher else ""
        sentence = (
            f"{self.name} forgets {len(forget):,} of {len(subject.entities):,} {who.entities} ({samples:,} "
            f"{who.samples}) in at most {run.steps} steps on {self.settings.batch_size:,} of these "
            f"{who.samples}{others}{before}, {passes:.1f} passes over the training data, and trains "
            f"{parameters:,} parameters: about {max(1, round(seconds))} s at most."
        )
        return Cost(sentence, parameters, run.steps, passes, seconds)

    def unlearn(
        self,
        subject: Subject,
        forget: IntArray,
        *,
        seed: int = 0,
        folder: Path | None = None,
        progress: Progress | None = None,
    ) -> Unlearned:
        """See :class:`~recunlearn.unlearning.contract.Unlearner`."""
        began = time.perf_counter()
        forget = self._checked(subject, forget)
        run = self._run(subject, forget, seed, self.reference(subject, forget, seed))
        run.progress, run.log = progress, folder
        run.journal = Journal(folder, self._identity(subject, forget, seed))
        parameters, before = _count(run.trained), time.perf_counter() - began
        began = time.perf_counter()
        run()
        model = _as_original(self.merge(run.model), subject.model)
        after = time.perf_counter() - began
        return Unlearned(
            model,
            self.name,
            self.settings.model_dump(mode="json"),
            seed,
            len(forget),
            run.step,
            before + max(after, run.seconds),
            peak_memory(next(model.parameters()).device),
            parameters,
            None if run.goal is None else run.reached,
            run.diverged,
            run.history,
            start=None if run.goal is None else run.goal.start,
            target=None if run.goal is None else run.goal.target,
        )

    def _checked(self, subject: Subject, forget: IntArray) -> IntArray:
        check_family(self.name, subject, self.families)
        return checked(subject, forget)

    def _run(self, subject: Subject, forget: IntArray, seed: int, reference: nn.Module) -> Run:
        s = self.settings
        goal = None
        if s.until == "stranger" or s.target is not None:
            goal = forget_goal(subject, forget, s.target, most=s.steps, seed=seed, looked=s.looked)
        model = copy.deepcopy(subject.model).eval()
        model = self.adapt(subject, model, forget, seed)
        epoch = -(-int(subject.n_samples()[forget].sum()) // s.batch_size)

        def losses(model: nn.Module, pair: Pair, step: int) -> tuple[Tensor, Tensor | None, Tensor]:
            forgot, kept = self.losses(subject, model, reference, pair)
            gamma, alpha = self.weights(step, epoch)
            return forgot, kept, gamma * forgot if kept is None else gamma * forgot + alpha * kept

        retain = rest_of(subject, forget) if self.retains() else None
        draws = Draws(subject, forget, retain, s.batch_size, seed)
        run = Run(model, losses, draws, s.steps, s.learning_rate, s.optimiser, s.clip, goal)
        run.look_from, run.title = self.look_from(epoch), self.name
        return run

    def _passes(self, subject: Subject) -> float:
        each = self.settings.batch_size * (2 if self.retains() else 1)
        return self.settings.steps * each / int(subject.n_samples().sum())

    def _identity(self, subject: Subject, forget: IntArray, seed: int) -> str:
        who = subject.entities[forget]
        return content_hash(
            RULES, self.name, self.settings.model_dump(mode="json"), dict(subject.describe()), who, seed
        )


def _count(parameters: list[Tensor]) -> int:
    return sum(p.numel() for p in parameters)


def _seconds_a_step(run: Run) -> float:
    """Forward and backward pass of one step; the first pays for allocation and is not counted."""
    marks = []
    for pair, _ in zip(run.draws, range(1 + TIMED_STEPS), strict=False):
        run.losses(run.model, pair, run.steps)[2].backward()
        marks.append(time.perf_counter())
    return (marks[-1] - marks[0]) / TIMED_STEPS


def _as_original(model: nn.Module, original: nn.Module) -> nn.Module:
    """Parameters need a gradient where the original's do."""
    wanted = {name: p.requires_grad for name, p in original.named_parameters()}
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(wanted.get(name, True))
        parameter.grad = None
    return model.eval()
