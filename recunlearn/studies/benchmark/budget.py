"""Budgets: for every method the learning rate and steps that forget a set as retraining does, tuned once."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import nn

from recunlearn.subjects.contract import IntArray, Subject
from recunlearn.unlearning.contract import Unlearner
from recunlearn.unlearning.goal import MeanLoss
from recunlearn.unlearning.registry import make
from recunlearn.unlearning.request import rest_of
from recunlearn.unlearning.stepwise import LoopSettings

FACTOR = 4.0
"""By which a learning rate is raised or lowered."""
NEAR = 0.1
"""A trial has reached the target within this share of the way from the original's loss to it."""
NO_WAY_STEPS = 10
"""Steps of a budget where retraining forgets nothing, so that there is nowhere to get."""
OTHERS, SAMPLES = 300, 20
"""Retained users, and samples of each, whose loss tells what a trial has cost them."""


@dataclass(frozen=True)
class Trial:
    """One learning rate.

    Args:
        learning_rate: tried.
        steps: until the target, or the most.
        level: mean loss of the forgotten afterwards.
        retained: mean loss of the others afterwards.
    """

    learning_rate: float
    steps: int
    level: float
    retained: float


@dataclass(frozen=True)
class Budget:
    """What a method may spend on every set; None where it has nothing of the kind.

    Args:
        learning_rate, steps: fixed for all sets.
        start, target: mean loss of the tuning set under the original and under the retrained models.
        reached: whether the chosen trial came near the target.
        trials: all that were made.
        seconds: of the tuning.
    """

    learning_rate: float | None = None
    steps: int | None = None
    start: float = math.nan
    target: float = math.nan
    reached: bool | None = None
    trials: tuple[Trial, ...] = ()
    seconds: float = 0.0

    def plain(self) -> dict[str, Any]:
        """As JSON has it; numbers that are none are left out."""
        return {k: v for k, v in asdict(self).items() if not (isinstance(v, float) and not math.isfinite(v))}

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> "Budget":
        """Read back."""
        trials = tuple(Trial(**{**trial}) for trial in plain.get("trials", ()))
        return Budget(**{**plain, "trials": trials})


def is_tuned(method: Unlearner) -> bool:
    """Tell whether a method takes steps at a learning rate."""
    return isinstance(method.settings, LoopSettings)


def centre_of(method: str, values: Mapping[str, Any]) -> float:
    """Learning rate of a tuned method's settings."""
    settings: Any = make(method, values).settings
    return float(settings.learning_rate)


def next_rate(trials: Sequence[Trial], start: float, target: float) -> float:
    """Learning rate to try next: towards the lowest one that gets to the target.

    Raised after trials that fell short, lowered after trials that did not, halved geometrically in between.

    >>> [next_rate([Trial(0.1, 9, level, 0.0)], 1.0, 2.0) for level in (1.5, 2.0)]
    [0.4, 0.025]
    """
    far = [t.learning_rate for t in trials if _closed(t, start, target) >= 1 - NEAR]
    short = [t.learning_rate for t in trials if _closed(t, start, target) < 1 - NEAR]
    if not far:
        return FACTOR * max(short)
    return math.sqrt(max(short) * min(far)) if short else min(far) / FACTOR


def tune(
    subject: Subject,
    method: str,
    values: Mapping[str, Any],
    forget: IntArray,
    retrained: Sequence[nn.Module],
    *,
    trials: int,
    most: int,
    seed: int,
) -> Budget:
    """Budget of a method: of the trials that came near the target, the one that costs the others least.

    Every trial is one learning rate, the first the method's own, and stops at the target, the mean loss of
    ``forget`` under models retrained without it. Where no trial came near, the one that came nearest is
    taken.

    Args:
        subject: with the original model.
        method: name.
        values: settings that differ from the method's defaults.
        forget: rows of the tuning set.
        retrained: models without it, with the population's rows in the place of its own.
        trials: learning rates to try.
        most: steps of a trial.
        seed: of the draws.

    Raises:
        UsageError: the method cannot forget from this model.
    """
    if not is_tuned(make(method, values)):
        return Budget()
    began = time.perf_counter()
    look = MeanLoss(subject, forget, seed)
    others = MeanLoss(subject, rest_of(subject, forget), seed, users=OTHERS, samples=SAMPLES)
    start, target = look(subject.model), float(np.mean([look(m) for m in retrained]))
    rate = centre_of(method, values)
    if not target > start:
        return Budget(rate, min(NO_WAY_STEPS, most), start, target, False, (), time.perf_counter() - began)
    made: list[Trial] = []
    for _ in range(trials):
        own = {**values, "learning_rate": rate, "steps": most, "until": "steps", "target": target}
        found = make(method, own).unlearn(subject, forget, seed=seed)
        level = math.inf if found.diverged else look(found.model)
        made.append(Trial(rate, found.steps, level, others(found.model)))
        rate = next_rate(made, start, target)
    best = chosen(made, start, target)
    near = _distance(best, start, target) <= NEAR
    return Budget(
        best.learning_rate, best.steps, start, target, near, tuple(made), time.perf_counter() - began
    )


def chosen(trials: Sequence[Trial], start: float, target: float) -> Trial:
    """Of those near the target the one with the lowest loss of the others; else the nearest."""
    near = [t for t in trials if _distance(t, start, target) <= NEAR]
    if near:
        return min(near, key=lambda t: t.retained)
    return min(trials, key=lambda t: _distance(t, start, target))


def with_budget(
    method: str, values: Mapping[str, Any], budget: Budget, subject: Subject, forget: IntArray
) -> Unlearner:
    """Method with the steps and learning rate of its budget.

    A method that must take some number of steps on a set (E2URec: two epochs of it) takes at least those.
    """
    plain: Any = make(method, values)
    if budget.steps is None:
        return plain
    epoch = -(-int(subject.n_samples()[forget].sum()) // plain.settings.batch_size)
    steps = max(budget.steps, plain.look_from(epoch))
    fixed = {"learning_rate": budget.learning_rate, "steps": steps, "until": "steps"}
    return make(method, {**values, **fixed})


def _closed(trial: Trial, start: float, target: float) -> float:
    """Share of the way to the target; infinite after a divergence."""
    return (trial.level - start) / (target - start) if math.isfinite(trial.level) else math.inf


def _distance(trial: Trial, start: float, target: float) -> float:
    return abs(_closed(trial, start, target) - 1)
