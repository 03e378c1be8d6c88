"""CAU's gradient difficulty: what forgetting a user costs the others."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from recunlearn.studies.competitors.contract import Array, Competitor
from recunlearn.studies.competitors.gradients import flat_gradient, trainable, user_batches
from recunlearn.studies.losses import BATCH
from recunlearn.subjects.contract import Batch, IntArray, Recommender

MOST = 1 << 16
"""Positive samples that the training loss is drawn from; more change its gradient little."""


class CAUGradient(Competitor):
    """g_u · g_r / ‖g_u‖², g_u gradient of the user's mean loss, g_r of all others' training loss.

    An ascent step along g_u that raises the user's loss by 1 raises the others' by this much, to first order:
    a price that grows with the alignment of the two gradients and falls with the size of the user's.
    Source: the idea of arXiv 2508.15263 (size and alignment of the unlearning and the retaining gradient).
    Deviation: docs/metrics/competitors.md.
    """

    name: ClassVar = "cau-gradient"
    direction: ClassVar = 1

    def measure(self, subject: Recommender, users: IntArray, seed: int) -> Array:
        """One gradient of each user's samples, and one of their part of the training loss."""
        everybody = _TrainingLoss(subject, seed)
        price = np.full(len(users), np.nan)
        for n, batch in enumerate(user_batches(subject, users, seed)):
            own = flat_gradient(
                -subject.log_likelihood(subject.model, batch).mean(), everybody.parameters
            ).double()
            price[n] = float((own @ everybody.without(int(users[n]))) / (own @ own))
        return price


class _TrainingLoss:
    """Gradient of the training loss, negatives included, on samples drawn from everybody."""

    def __init__(self, subject: Recommender, seed: int) -> None:
        self.subject = subject
        self.parameters = list(trainable(subject.model).values())
        counts = subject.n_samples()
        size = int(min(counts.sum(), MOST))
        generator = torch.Generator().manual_seed(seed)
        drawn = subject.draw(np.flatnonzero(counts > 0), size, generator, negatives=True)
        self.drawn = drawn[torch.argsort(drawn.entity, stable=True)]
        self.owner = self.drawn.entity.contiguous()
        self.total = self._gradient(self.drawn)

    def without(self, user: int) -> Tensor:
        """Mean gradient over the samples of all but one user: ``[P]``."""
        ends = torch.tensor([user, user + 1], device=self.owner.device)
        first, last = torch.searchsorted(self.owner, ends).tolist()
        rest = self.total if first == last else self.total - self._gradient(self.drawn[slice(first, last)])
        return rest / (len(self.drawn) - (last - first))

    def _gradient(self, batch: Batch) -> Tensor:
        total = torch.zeros(sum(p.numel() for p in self.parameters), dtype=torch.float64)
        for start in range(0, len(batch), BATCH):
            part = batch[slice(start, start + BATCH)]
            loss = -self.subject.log_likelihood(self.subject.model, part).sum()
            total = total.to(loss.device) + flat_gradient(loss, self.parameters)
        return total
