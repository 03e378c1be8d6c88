"""Gradients of single samples and of single users with respect to all trainable parameters of a model."""

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from recunlearn.subjects.contract import Batch, IntArray, Subject

CELLS = 1 << 23
"""Numbers of per-sample gradients held at a time: about what a core's cache and memory take best."""
_REFUSALS = (
    RuntimeError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    NotImplementedError,
    UserWarning,
)


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters that training changes, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def flat_gradient(loss: Tensor, parameters: list[nn.Parameter]) -> Tensor:
    """Gradient of a scalar as one vector: ``[P]``; zeros where the loss does not read a parameter."""
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    pieces = [torch.zeros_like(p) if g is None else g for g, p in zip(found, parameters, strict=True)]
    return torch.cat([g.reshape(-1) for g in pieces])


def user_batches(subject: Subject, users: IntArray, seed: int) -> Iterator[Batch]:
    """All training samples of one user after the other."""
    most = int(subject.n_samples()[users].max())
    for user in users:
        yield next(iter(subject.batches(np.array([user]), batch_size=most, seed=seed)))


class _Loss(nn.Module):
    """Loss of one sample as a module, so that torch can put other parameters in the model's place."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.subject, self.inner = subject, subject.model

    def forward(self, columns: dict[str, Tensor], entity: Tensor) -> Tensor:
        one = Batch({k: v[None] for k, v in columns.items()}, entity[None])
        return -self.subject.log_likelihood(self.inner, one).sum()


def exact_norms(subject: Subject, batch: Batch) -> Tensor:
    """‖∇_θ ℓ‖ of every sample of ``batch``, by vectorised per-sample gradients: ``[B]``."""
    module = _Loss(subject)
    parameters = {f"inner.{k}": p.detach() for k, p in trainable(subject.model).items()}
    each = vmap(grad(partial(_functional, module)), in_dims=(None, 0, 0))
    size = min(max(CELLS // sum(map(torch.numel, parameters.values())), 8), 512)
    squares = []
    for start in range(0, len(batch), size):
        part = batch[slice(start, start + size)]
        found = each(parameters, dict(part.columns), part.entity)
        squares.append(torch.stack([g.flatten(1).square().sum(1) for g in found.values()]).sum(0))
    return torch.cat(squares).sqrt()


def _functional(module: nn.Module, parameters: Any, columns: Any, entity: Tensor) -> Tensor:
    loss: Tensor = functional_call(module, parameters, (columns, entity))
    return loss


def projected_norms(subject: Subject, batch: Batch, directions: int, seed: int) -> Tensor:
    """Estimate of ‖∇_θ ℓ‖ from random projections: ``[B]``; E (∇ℓ · v)² = ‖∇ℓ‖² for v ~ N(0, I).

    Relative standard deviation 1 / √(2 directions). One backward pass a direction serves all samples: the
    gradient of Σ_b w_b ℓ_b along v, differentiated by w, is ∇ℓ_b · v for every b.
    """
    parameters = list(trainable(subject.model).values())
    loss = -subject.log_likelihood(subject.model, batch)
    weight = torch.ones_like(loss, requires_grad=True)
    found = torch.autograd.grad((weight * loss).sum(), parameters, create_graph=True, allow_unused=True)
    generator = torch.Generator().manual_seed(seed)
    squares = torch.zeros_like(loss)
    for _ in range(directions):
        draws = [torch.randn(p.shape, generator=generator).to(p) for p in parameters]
        along = torch.stack([(g * v).sum() for g, v in zip(found, draws, strict=True) if g is not None]).sum()
        squares += torch.autograd.grad(along, weight, retain_graph=True)[0].square()
    return (squares / directions).sqrt().detach()


def can_be_exact(subject: Subject) -> bool:
    """Whether vectorised per-sample gradients work for this model and agree with plain ones on two samples.

    Sparse propagation (graph models) cannot be vectorised. Asked of the subject's first samples, so that the
    answer does not depend on who is scored.
    """
    batch = next(iter(subject.batches(batch_size=2, seed=0)))
    parameters = list(trainable(subject.model).values())
    plain = [
        flat_gradient(-subject.log_likelihood(subject.model, batch[slice(i, i + 1)]).sum(), parameters).norm()
        for i in range(len(batch))
    ]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch warns where it would fall back to a slow loop
            found = exact_norms(subject, batch)
    except _REFUSALS:
        return False
    return torch.allclose(found, torch.stack(plain), rtol=1e-3, atol=1e-6)
