"""GradAscent: climb the loss of the forgotten, and nothing else."""

from typing import ClassVar, Literal

from torch import Tensor, nn

from recunlearn.subjects.contract import Batch, Subject
from recunlearn.unlearning.gradient import Gradient, GradientSettings


def grad_ascent(ll: Tensor) -> Tensor:
    """−ℓ: ``[B] -> []``, ll = −ℓ the log-likelihood. Unbounded: the stopping rule bounds it."""
    return ll.mean()


class GradAscentSettings(GradientSettings):
    """No retain loss."""

    retain: Literal["nll", "kl", "none"] = "none"


class GradAscent(Gradient):
    """L = −ℓ on the forgotten."""

    name = "GradAscent"
    settings_type: ClassVar = GradAscentSettings

    def forget_loss(self, subject: Subject, model: nn.Module, original: nn.Module, batch: Batch) -> Tensor:
        """Mean log-likelihood."""
        return grad_ascent(subject.log_likelihood(model, batch))
