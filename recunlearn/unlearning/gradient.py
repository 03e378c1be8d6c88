"""Methods that are one forget loss beside a retain loss: L = gamma * L_forget + alpha * L_retain."""

from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from recunlearn.subjects.contract import Batch, Subject
from recunlearn.unlearning.draws import Pair
from recunlearn.unlearning.stepwise import LoopSettings, Stepwise


class GradientSettings(LoopSettings):
    """L = gamma * L_forget + alpha * L_retain."""

    gamma: float = Field(default=1.0, gt=0)
    """Weight of the forget loss."""
    alpha: float = Field(default=1.0, ge=0)
    """Weight of the retain loss."""
    retain: Literal["nll", "kl", "none"] = "nll"
    """``nll``: training loss of the others; ``kl``: KL divergence from the original model on them."""


class Gradient(Stepwise):
    """A method that is one forget loss, beside the retain loss of its settings."""

    settings_type: ClassVar[type[GradientSettings]] = GradientSettings

    @abstractmethod
    def forget_loss(self, subject: Subject, model: nn.Module, original: nn.Module, batch: Batch) -> Tensor:
        """``[]`` for samples of the forgotten; ``original`` is frozen."""

    def losses(
        self, subject: Subject, model: nn.Module, reference: nn.Module, pair: Pair
    ) -> tuple[Tensor, Tensor | None]:
        """Forget and retain loss."""
        forgot = self.forget_loss(subject, model, reference, pair.forget)
        return forgot, None if pair.retain is None else self._retain_loss(
            subject, model, reference, pair.retain
        )

    def weights(self, step: int, epoch: int) -> tuple[float, float]:
        """Gamma and alpha throughout."""
        return self.settings.gamma, self.settings.alpha

    def retains(self) -> bool:
        """Tell whether a retain loss is added."""
        return bool(self.settings.retain != "none" and self.settings.alpha > 0)

    def _retain_loss(self, subject: Subject, model: nn.Module, original: nn.Module, batch: Batch) -> Tensor:
        if self.settings.retain == "nll":
            return -subject.log_likelihood(model, batch).mean()
        with torch.no_grad():
            kept = subject.class_scores(original, batch).log_softmax(1)
        return kl_divergence(kept, subject.class_scores(model, batch).log_softmax(1))


def kl_divergence(kept: Tensor, found: Tensor) -> Tensor:
    """KL(kept ‖ found) of log-probabilities, mean over predictions: ``[P, C], [P, C] -> []``."""
    return (kept.exp() * (kept - found)).nan_to_num(0.0).sum(1).mean()
