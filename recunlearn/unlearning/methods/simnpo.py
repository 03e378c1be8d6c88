"""SimNPO: NPO without a reference model, on the mean loss of a whole user."""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from recunlearn.subjects.contract import Batch, Subject
from recunlearn.unlearning.gradient import Gradient, GradientSettings


def simnpo(ll: Tensor, beta: float, delta: float = 0.0) -> Tensor:
    """−(2/β) log σ(β (ℓ/n − δ)): ``[B] -> []``, −ll = ℓ/n the mean loss over what counts as one sequence.

    Source: arXiv 2410.07163, where n is the number of tokens of an answer.
    """
    return -(2 / beta) * F.logsigmoid(beta * (-ll - delta)).mean()


def by_entity(ll: Tensor, entity: Tensor) -> Tensor:
    """Mean of every entity that occurs: ``[B], [B] -> [entities of the batch]``."""
    _, owner, count = torch.unique(entity, return_inverse=True, return_counts=True)
    return torch.zeros(len(count), dtype=ll.dtype, device=ll.device).index_add(0, owner, ll) / count


class SimNPOSettings(GradientSettings):
    """β, δ and γ of the paper; with so small a γ, twice the learning rate of the others."""

    learning_rate: float = Field(default=2e-3, gt=0)
    beta: float = Field(default=4.5, gt=0)
    """Inverse temperature."""
    delta: float = 0.0
    """Margin of the mean loss."""
    gamma: float = Field(default=0.125, gt=0)
    length: Literal["user", "interaction"] = "user"
    """What counts as one sequence: all interactions of a user in the batch, or each for itself (n = 1)."""


class SimNPO(Gradient):
    """L = −(2/β) log σ(β (ℓ/n − δ)) on the forgotten + ℓ on the others."""

    name = "SimNPO"
    settings_type: ClassVar = SimNPOSettings

    def forget_loss(self, subject: Subject, model: nn.Module, original: nn.Module, batch: Batch) -> Tensor:
        """Each user of the batch counts once."""
        ll = subject.log_likelihood(model, batch)
        if self.settings.length == "user":
            ll = by_entity(ll, batch.entity)
        return simnpo(ll, self.settings.beta, self.settings.delta)
