"""Budgets: settings and steps by which a method forgets a set as retraining does, tuned once."""

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
"""By which a setting is raised or lowered."""
NEAR = 0.1
"""A trial has reached the target within this share of the way from the original's loss to it."""
NO_WAY_STEPS = 10
"""Steps of a budget where retraining forgets nothing, so that there is nowhere to get."""
OTHERS, SAMPLES = 300, 20
"""Retained users, and samples of each, whose loss tells what a trial has cost them."""


@dataclass(frozen=True)
class Trial:
    """One learning rate and weight of the forget loss.

    Args:
        learning_rate: tried.
        steps: until the target, or the most.
        level: mean loss of the forgotten afterwards.
        retained: mean loss of the others afterwards.
        gamma: tried; None where the method has no such weight.
    """

    learning_rate: float
    steps: int
    level: float
    retained: float
    gamma: float | None = None


@dataclass(frozen=True)
class Budget:
    """What a method may spend on every set; None where it has nothing of the kind.

    Args:
        learning_rate, steps, gamma: fixed for all sets.
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
    gamma: float | None = None

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


def centre_of(method: str, values: Mapping[str, Any]) -> tuple[float, float | None]:
    """Learning rate, and weight γ of the forget loss, of a tuned method's settings.

    γ is None where no retain loss stands beside the forget loss: optimisers that scale their steps, as Adam
    does, would not notice it.
    """
    made: Any = make(method, values)
    gamma = getattr(made.settings, "gamma", None) if made.retains() else None
    return float(made.settings.learning_rate), None if gamma is None else float(gamma)


def next_try(trials: Sequence[Trial], start: float, target: float) -> tuple[float, float | None]:
    """Learning rate and γ to try next.

    The learning rate is changed until a trial ends near the target, and the lowest one that gets there is
    looked for where there is no γ. Else γ is: it decides what the others pay, the learning rate hardly does
    (docs/decisions/0007-budgets.md).

    >>> next_try([Trial(0.1, 9, 1.5, 0.0, 1.0)], 1.0, 2.0)  # halfway
    (0.4, 1.0)
    >>> next_try([Trial(0.1, 9, 2.0, 0.0, 1.0)], 1.0, 2.0)
    (0.1, 0.25)
    """
    near = [t for t in trials if _distance(t, start, target) <= NEAR]
    if not near or near[0].gamma is None:
        tried = [(t.learning_rate, _closed(t, start, target)) for t in trials]
        return _lowest(tried), trials[-1].gamma
    rate = near[0].learning_rate
    tried = [(t.gamma, _closed(t, start, target)) for t in trials if t.learning_rate == rate and t.gamma]
    return rate, _lowest(tried)


def _lowest(tried: Sequence[tuple[float, float]]) -> float:
    """Value to try next for the lowest one that gets to the target, from (value, share of the way) pairs.

    Raised after trials that fell short, lowered after trials that did not, halved geometrically in between.
    """
    far = [value for value, closed in tried if closed >= 1 - NEAR]
    short = [value for value, closed in tried if closed < 1 - NEAR]
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

    Every trial is one learning rate and γ, the first the method's own, and stops at the target, the mean loss
    of ``forget`` under models retrained without it. Where no trial came near, the one that came nearest is
    taken.

    Args:
        subject: with the original model.
        method: name.
        values: settings that differ from the method's defaults.
        forget: rows of the tuning set.
        retrained: models without it, with the population's rows in the place of its own.
        trials: number of them.
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
    rate, gamma = centre_of(method, values)
    if not target > start:
        steps, seconds = min(NO_WAY_STEPS, most), time.perf_counter() - began
        return Budget(rate, steps, start, target, False, (), seconds, gamma)
    made: list[Trial] = []
    for _ in range(trials):
        own = {**values, **_tried(rate, gamma), "steps": most, "until": "steps", "target": target}
        found = make(method, own).unlearn(subject, forget, seed=seed)
        level = math.inf if found.diverged else look(found.model)
        made.append(Trial(rate, found.steps, level, others(found.model), gamma))
        rate, gamma = next_try(made, start, target)
    best = chosen(made, start, target)
    near, seconds = _distance(best, start, target) <= NEAR, time.perf_counter() - began
    return Budget(best.learning_rate, best.steps, start, target, near, tuple(made), seconds, best.gamma)


def chosen(trials: Sequence[Trial], start: float, target: float) -> Trial:
    """Of those near the target the one with the lowest loss of the others; else the nearest."""
    near = [t for t in trials if _distance(t, start, target) <= NEAR]
    if near:
        return min(near, key=lambda t: t.retained)
    return min(trials, key=lambda t: _distance(t, start, target))


def with_budget(
    method: str, values: Mapping[str, Any], budget: Budget, subject: Subject, forget: IntArray
) -> Unlearner:
    """Method with the settings and steps of its budget.

    A method that must take some number of steps on a set (E2URec: two epochs of it) takes at least those.
    """
    plain: Any = make(method, values)
    if budget.steps is None or budget.learning_rate is None:
        return plain
    epoch = -(-int(subject.n_samples()[forget].sum()) // plain.settings.batch_size)
    steps = max(budget.steps, plain.look_from(epoch))
    fixed = {**_tried(budget.learning_rate, budget.gamma), "steps": steps, "until": "steps"}
    return make(method, {**values, **fixed})


def _tried(rate: float, gamma: float | None) -> dict[str, float]:
    return {"learning_rate": rate} if gamma is None else {"learning_rate": rate, "gamma": gamma}


def _closed(trial: Trial, start: float, target: float) -> float:
    """Share of the way to the target; infinite after a divergence."""
    return (trial.level - start) / (target - start) if math.isfinite(trial.level) else math.inf


def _distance(trial: Trial, start: float, target: float) -> float:
    return abs(_closed(trial, start, target) - 1)
