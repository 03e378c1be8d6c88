"""MRD: memory removal difficulty, how little random steps of the parameters move a likelihood."""

import copy
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from recunlearn.studies.competitors.averaging import Sums
from recunlearn.studies.competitors.contract import Array, Competitor
from recunlearn.studies.competitors.gradients import trainable
from recunlearn.studies.losses import BATCH
from recunlearn.subjects.contract import IntArray, Recommender


@dataclass(frozen=True)
class MRD(Competitor):
    """|(1/K) Σ_k Σ_t (P_t(θ) − P_t(θ + δ_k)) / P_t(θ)|, P_t log-likelihood of interaction t, δ ~ N(0, σ² I).

    Source: arXiv 2504.06658. Deviation: a "part" is an interaction of the user, not a token.
    The δ_k are the same for all users. Costs K passes over all training samples.
    """

    name: ClassVar = "mrd"
    direction: ClassVar = -1

    draws: int = 100
    """K."""
    sigma: float = 1e-5
    """Standard deviation σ of a step, for every parameter."""

    @torch.no_grad()
    def measure(self, subject: Recommender, users: IntArray, seed: int) -> Array:
        """Perturb a copy ``draws`` times; NaN where a log-likelihood is 0.

        Everybody is measured: the relative changes are small enough for last digits of a batch to count.
        """
        model = copy.deepcopy(subject.model)
        batches = list(subject.batches(batch_size=BATCH, seed=seed))
        before = [subject.log_likelihood(model, b).double() for b in batches]
        sums, generator = Sums(len(subject.entities)), torch.Generator().manual_seed(seed)
        start = {name: p.detach().clone() for name, p in trainable(model).items()}
        for _ in range(self.draws):
            self._step(model, start, generator)
            for batch, known in zip(batches, before, strict=True):
                moved = known - subject.log_likelihood(model, batch).double()
                sums.add(batch, moved / known)
        total: Array = sums.total.numpy()[users]
        return np.abs(total / self.draws)

    def _step(self, model: nn.Module, start: dict[str, Tensor], generator: torch.Generator) -> None:
        for name, parameter in trainable(model).items():
            noise = torch.randn(parameter.shape, generator=generator).to(parameter)
            parameter.copy_(start[name] + self.sigma * noise)
