"""NPO: negative preference optimisation, an ascent that slows down where the model has moved away."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from recunlearn.subjects.contract import Batch, Subject
from recunlearn.unlearning.gradient import Gradient, GradientSettings


def npo(ll: Tensor, original: Tensor, beta: float) -> Tensor:
    """−(2/β) log σ(β (ℓ − ℓ_ref)): ``[B], [B] -> []``; β → 0 has GradAscent's gradient (arXiv 2404.05868)."""
    return -(2 / beta) * F.logsigmoid(beta * (original - ll)).mean()


class NPOSettings(GradientSettings):
    """β of the paper."""

    beta: float = Field(default=0.1, gt=0)
    """Inverse temperature: how soon a sample that has been forgotten is left alone."""


class NPO(Gradient):
    """L = −(2/β) log σ(β (ℓ − ℓ_ref)) on the forgotten + ℓ on the others."""

    name = "NPO"
    settings_type: ClassVar = NPOSettings

    def forget_loss(self, subject: Subject, model: nn.Module, original: nn.Module, batch: Batch) -> Tensor:
        """Against the original's own log-likelihood."""
        with torch.no_grad():
            reference = subject.log_likelihood(original, batch)
        return npo(subject.log_likelihood(model, batch), reference, self.settings.beta)
