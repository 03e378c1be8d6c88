"""UNDIAL: distil from the original model with the logit of what is to be forgotten lowered."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from recunlearn.subjects.contract import Batch, Subject
from recunlearn.unlearning.gradient import Gradient, GradientSettings


def undial(scores: Tensor, original: Tensor, column: Tensor, beta: float) -> Tensor:
    """CE(softmax(z_ref − β onehot(y)), softmax(z)): ``[P, C], [P, C], [P] -> []`` (arXiv 2402.10052).

    The mean over predictions: samples of a recommender, tokens of answers.
    With two classes [0, s] this is the cross-entropy to the target σ(s_ref − β); pairwise models have the
    classes [s_j, s_i], so that the target is σ(s_ref,i − s_ref,j − β).
    """
    lowered = original.scatter_add(1, column[:, None], torch.full_like(original[:, :1], -beta))
    return -(lowered.softmax(1) * scores.log_softmax(1)).sum(1).mean()


class UNDIALSettings(GradientSettings):
    """β of the paper."""

    beta: float = Field(default=10.0, gt=0)
    """By how much the logit is lowered."""


class UNDIAL(Gradient):
    """L = CE(softmax(z_ref − β onehot(y)), softmax(z)) on the forgotten + ℓ on the others."""

    name = "UNDIAL"
    settings_type: ClassVar = UNDIALSettings

    def forget_loss(self, subject: Subject, model: nn.Module, original: nn.Module, batch: Batch) -> Tensor:
        """Against the original's lowered scores."""
        with torch.no_grad():
            reference = subject.class_scores(original, batch)
        column = subject.predictions(batch).column
        return undial(subject.class_scores(model, batch), reference, column, self.settings.beta)
