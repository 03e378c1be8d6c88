"""When to stop: the mean loss of the forgotten, from the original model's to a target."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from recunlearn.foundation.errors import UsageError
from recunlearn.subjects.contract import IntArray, Subject

LOOKED_USERS, LOOKED_SAMPLES = 100, 20
"""Forgotten users, and samples of each, whose loss tells when a method has gone far enough."""
HALFWAY = 0.5
BATCH = 8192


def next_look(step: int, closed: float, most: int) -> int:
    """Step at which the loss is looked at next: an eighth part later, but one by one from halfway on.

    >>> next_look(0, 0.0, 100), next_look(40, 0.2, 100), next_look(40, 0.6, 100), next_look(96, 0.2, 100)
    (1, 45, 41, 100)
    """
    return min(most, step + (1 if closed >= HALFWAY else max(1, step // 8)))


@dataclass(frozen=True)
class Goal:
    """Where a method should get: the mean loss of the forgotten from ``start`` to ``target``.

    Args:
        loss: mean loss of the forgotten under a model.
        start: under the original model.
        target: to reach.
        most: most steps.
    """

    loss: Callable[[nn.Module], float]
    start: float
    target: float
    most: int

    def closed(self, model: nn.Module) -> float:
        """Share of the way that ``model`` has gone; minus infinity where its loss is no finite number."""
        loss = self.loss(model)
        return (loss - self.start) / (self.target - self.start) if math.isfinite(loss) else -math.inf


def forget_goal(
    subject: Subject,
    forget: IntArray,
    target: float | None,
    *,
    most: int,
    seed: int,
    looked: int = LOOKED_SAMPLES,
) -> Goal:
    """Goal at ``target``, or at the loss of strangers: the original model with population-mean vectors.

    Raises:
        UsageError: the target is not above the loss that the original model has already.
    """
    look = MeanLoss(subject, forget, seed, samples=looked)
    start = look(subject.model)
    end = look(subject.population_rows(subject.model, forget)) if target is None else target
    if not end > start:
        raise UsageError(_no_way(start, target, subject.words.entities))
    return Goal(look, start, end, most)


def _no_way(start: float, target: float | None, who: str) -> str:
    if target is not None:
        return f"target must be above {start:.4f}, the loss of the {who} to forget now, but got {target}."
    known = " (models without user vectors know users by their history only)" if who == "users" else ""
    return (
        f"The {who} to forget have a mean loss of {start:.4f}, no lower than strangers have{known}, so it "
        "does not tell when to stop. Give a loss to stop at (target = ...), or a fixed number of steps "
        "(until = 'steps')."
    )


class MeanLoss:
    """Mean loss over at most ``samples`` samples of at most ``users`` entities, the same ones each time.

    Args:
        subject: whose samples they are.
        entities: one or more with samples.
        seed: of negatives, and of the choice where there is no time.
        users, samples: most of them; the entities are spread over all.
    """

    def __init__(
        self,
        subject: Subject,
        entities: IntArray,
        seed: int,
        *,
        users: int = LOOKED_USERS,
        samples: int = LOOKED_SAMPLES,
    ) -> None:
        known = entities[subject.n_samples()[entities] > 0]
        some = known[:: -(-len(known) // users)]
        found = subject.batches(some, batch_size=BATCH, per_entity=samples, seed=seed)
        self.subject, self.batches = subject, list(found)

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> float:
        """``[]``, over samples."""
        device = next(model.parameters()).device
        with self.subject.arithmetic(model):
            losses = [-self.subject.log_likelihood(model, b.to(device)).double() for b in self.batches]
        return float(torch.cat(losses).mean())
