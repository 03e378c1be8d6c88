"""GradDiff: climb the loss of the forgotten while training on the others."""

from torch import Tensor, nn

from recunlearn.subjects.contract import Batch, Subject
from recunlearn.unlearning.gradient import Gradient
from recunlearn.unlearning.methods.grad_ascent import grad_ascent


class GradDiff(Gradient):
    """L = −ℓ on the forgotten + ℓ on the others."""

    name = "GradDiff"

    def forget_loss(self, subject: Subject, model: nn.Module, original: nn.Module, batch: Batch) -> Tensor:
        """Mean log-likelihood."""
        return grad_ascent(subject.log_likelihood(model, batch))
