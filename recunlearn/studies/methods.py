"""Gradient unlearning methods in their simplest form: one loss each, by the contract's two quantities."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recunlearn.foundation.errors import UsageError, near_miss
from recunlearn.subjects.contract import Batch, Subject

NPO_BETA = 1.0
SIMNPO_BETA = 1.0
UNDIAL_BETA = 10.0
"""Strengths for single interactions: docs/metrics/outcomes.md says where they differ from the papers'."""


def grad_ascent(ll: Tensor) -> Tensor:
    """−ℓ: ``[B] -> []``, ll = −ℓ the log-likelihood. Unbounded: the step budget bounds it."""
    return ll.mean()


def npo(ll: Tensor, original: Tensor, beta: float = NPO_BETA) -> Tensor:
    """−(2/β) log σ(β (ℓ − ℓ_ref)): ``[B], [B] -> []``; β → 0 has GradAscent's gradient (arXiv 2404.05868)."""
    return -(2 / beta) * F.logsigmoid(beta * (original - ll)).mean()


def simnpo(ll: Tensor, beta: float = SIMNPO_BETA, delta: float = 0.0) -> Tensor:
    """−(2/β) log σ(β (ℓ − δ)): ``[B] -> []`` (arXiv 2410.07163); one interaction has length n = 1."""
    return -(2 / beta) * F.logsigmoid(beta * (-ll - delta)).mean()


def undial(scores: Tensor, original: Tensor, column: Tensor, beta: float = UNDIAL_BETA) -> Tensor:
    """CE(softmax(z_ref − β onehot(y)), softmax(z)): ``[B, C], [B, C], [B] -> []`` (arXiv 2402.10052).

    With two classes [0, s] this is the cross-entropy to the target σ(s_ref − β).
    """
    lowered = original.scatter_add(1, column[:, None], torch.full_like(original[:, :1], -beta))
    return -(lowered.softmax(1) * scores.log_softmax(1)).sum(1).mean()


def own_column(ll: Tensor, scores: Tensor) -> Tensor:
    """Column of every sample's own class, where log softmax is its log-likelihood: ``[B], [B, C] -> [B]``.

    The contract names no label column. Of equal scores the last is taken: of two classes the positive.
    """
    distance = (scores.log_softmax(1) - ll[:, None]).abs().flip(1)
    return scores.shape[1] - 1 - distance.argmin(1)


Forget = Callable[[Subject, nn.Module, nn.Module, Batch], Tensor]


@dataclass(frozen=True)
class Method:
    """One unlearning method.

    Args:
        name: its name in settings.
        forget: loss of a forget batch under (subject, model, original model, batch).
        retains: whether the training loss of other entities is added.
    """

    name: str
    forget: Forget
    retains: bool = True


def _ascent(subject: Subject, model: nn.Module, original: nn.Module, batch: Batch) -> Tensor:
    return grad_ascent(subject.log_likelihood(model, batch))


def _npo(subject: Subject, model: nn.Module, original: nn.Module, batch: Batch) -> Tensor:
    with torch.no_grad():
        reference = subject.log_likelihood(original, batch)
    return npo(subject.log_likelihood(model, batch), reference)


def _simnpo(subject: Subject, model: nn.Module, original: nn.Module, batch: Batch) -> Tensor:
    return simnpo(subject.log_likelihood(model, batch))


def _undial(subject: Subject, model: nn.Module, original: nn.Module, batch: Batch) -> Tensor:
    with torch.no_grad():
        reference = subject.class_scores(original, batch)
        column = own_column(subject.log_likelihood(original, batch), reference)
    return undial(subject.class_scores(model, batch), reference, column)


REGISTRY = {
    method.name: method
    for method in (
        Method("GradAscent", _ascent, retains=False),
        Method("GradDiff", _ascent),
        Method("NPO", _npo),
        Method("SimNPO", _simnpo),
        Method("UNDIAL", _undial),
    )
}


def find(name: str) -> Method:
    """Method by name; an unknown name lists the known ones."""
    if name not in REGISTRY:
        raise UsageError(
            f"Unknown unlearning method {name!r}.{near_miss(name, REGISTRY)} Allowed: {', '.join(REGISTRY)}."
        )
    return REGISTRY[name]
