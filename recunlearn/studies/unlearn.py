"""The unlearning loop of the probe, and how many steps each method is given."""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import nn

from recunlearn.studies.losses import device_of
from recunlearn.studies.methods import Method
from recunlearn.subjects.contract import IntArray, Subject
from recunlearn.unlearning.draws import Draws
from recunlearn.unlearning.goal import HALFWAY, Goal, next_look

BATCH = 2048
"""Interactions of the forgotten in a step, where no number is asked for."""
FEWEST_STEPS = 10
"""A budget of fewer steps stops too coarsely at a target: the learning rate is lowered."""
TRIES = 8
"""Learning rates tried before a method counts as not reaching the target."""
LEVEL = 1.1
"""A higher learning rate that does not go this many times as far gains nothing: a level is reached."""
LARGEST_RAISE = 16.0


@dataclass(frozen=True)
class Budget:
    """How long a method unlearns.

    Args:
        steps: optimiser steps.
        learning_rate: of the optimiser.
        reached: whether the mean loss of the forgotten got to the target within these steps.
    """

    steps: int
    learning_rate: float
    reached: bool


@dataclass(frozen=True)
class Trainer:
    """What every run of a study shares.

    Args:
        subject: with the original model, which stays as it is.
        forget: entities to unlearn.
        retain: entities whose training loss the retaining methods add.
        batch_size: samples of each in a step.
        optimiser: made from the parameters and the learning rate.
    """

    subject: Subject
    forget: IntArray
    retain: IntArray
    batch_size: int
    optimiser: type[torch.optim.Optimizer] = torch.optim.Adam

    def run(self, method: Method, *, seed: int, learning_rate: float) -> Iterator[nn.Module]:
        """Yield the model after every step, for ever: one deep copy of the original, in eval mode.

        Eval mode switches dropout off and freezes batch statistics, so that a loss changes only because a
        weight did.
        """
        subject, original = self.subject, self.subject.model
        model = copy.deepcopy(original).eval()
        parameters = [p for p in model.parameters() if p.requires_grad]
        optimiser = self.optimiser(parameters, lr=learning_rate)  # type: ignore[call-arg]
        device = device_of(model)
        retain = self.retain if method.retains else None
        for drawn in Draws(subject, self.forget, retain, self.batch_size, seed):
            pair = drawn.to(device)
            with subject.arithmetic(model):
                loss = method.forget(subject, model, original, pair.forget)
                if pair.retain is not None:
                    loss = loss - subject.log_likelihood(model, pair.retain).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            yield model

    def unlearned(self, method: Method, budget: Budget, *, seed: int) -> nn.Module:
        """Model after ``budget.steps`` steps."""
        run = self.run(method, seed=seed, learning_rate=budget.learning_rate)
        return next(islice(run, budget.steps - 1, None))


@dataclass(frozen=True)
class _Attempt:
    budget: Budget
    model: nn.Module
    closed: float
    factor: float
    """By which another attempt should change the learning rate: 1 it fits, below 1 it was too high."""

    @property
    def rank(self) -> tuple[bool, int, float]:
        """Better attempts are larger: reached gradually, in more steps; else the one that went furthest."""
        gradual = self.budget.reached and self.budget.steps >= FEWEST_STEPS / 2
        return gradual, self.budget.steps if gradual else 0, self.closed if not self.budget.reached else -1.0


def calibrate(
    trainer: Trainer, method: Method, goal: Goal, *, learning_rate: float, seed: int
) -> tuple[Budget, nn.Module]:
    """Steps after which the forgotten's mean loss reaches the target, and the model of that seed's run.

    The learning rate is raised where ``goal.most`` steps are too few, and lowered where fewer than
    ``FEWEST_STEPS`` are enough or the loss is no longer a number; between two that failed it is halved
    geometrically. A method that levels off below the target keeps the try that went furthest: a single leap
    over the target is damage, not unlearning. Without a way to go (``target <= start``): ``FEWEST_STEPS``.
    """
    if goal.target <= goal.start:
        budget = Budget(FEWEST_STEPS, learning_rate, False)
        return budget, trainer.unlearned(method, budget, seed=seed)
    # Of a generator, so that the models of all but the best are let go: eight of them can fill a memory.
    best = max(_attempts(trainer, method, goal, learning_rate, seed), key=lambda attempt: attempt.rank)
    return best.budget, best.model


def stopped(
    trainer: Trainer, method: Method, goal: Goal, *, learning_rate: float, seed: int
) -> tuple[Budget, nn.Module]:
    """One run at a known learning rate until the goal is reached, or ``goal.most`` steps."""
    found = _attempt(trainer, method, goal, learning_rate, seed, patient=True)
    return found.budget, found.model


def _attempts(
    trainer: Trainer, method: Method, goal: Goal, learning_rate: float, seed: int
) -> Iterator[_Attempt]:
    """Runs at one learning rate after the other, until one fits."""
    low, high, furthest = 0.0, math.inf, 0.0
    for _ in range(TRIES):
        latest = _attempt(trainer, method, goal, learning_rate, seed)
        yield latest
        if latest.factor > 1:
            if low and latest.closed < LEVEL * furthest:
                return
            low, furthest = learning_rate, latest.closed
        elif latest.factor < 1:
            high = learning_rate
        else:
            return
        learning_rate *= latest.factor
        if low and not low < learning_rate < high:
            learning_rate = math.sqrt(low * high)


def _attempt(
    trainer: Trainer, method: Method, goal: Goal, learning_rate: float, seed: int, *, patient: bool = False
) -> _Attempt:
    """One run towards the goal, given up where it is hopeless (unless ``patient``)."""
    run = trainer.run(method, seed=seed, learning_rate=learning_rate)
    done, closed = 0, 0.0
    while done < goal.most:
        step = next_look(done, closed, goal.most)
        model = next(islice(run, step - done - 1, None))
        done = step
        closed = goal.closed(model)
        # Loss grows at most about quadratically with the steps, so a slow start shows early.
        projected = closed * (goal.most / step) ** 2
        hopeless = not patient and step >= goal.most // 4 and projected < HALFWAY
        if closed >= 1 or closed == -math.inf or hopeless:
            break
    budget = Budget(done, learning_rate, closed >= 1)
    return _Attempt(budget, model, closed, _factor(budget, closed, projected))


def _factor(budget: Budget, closed: float, projected: float) -> float:
    """By which to change the learning rate: lower where it was too high, higher by the root of the lack."""
    if closed == -math.inf:
        return 0.25
    if budget.reached:
        return 1.0 if budget.steps >= FEWEST_STEPS else 0.5 if budget.steps >= FEWEST_STEPS / 2 else 0.25
    if projected <= 0:
        return LARGEST_RAISE
    return min(LARGEST_RAISE, 2.0 ** math.ceil(max(1.0, -math.log2(projected) / 2)))
