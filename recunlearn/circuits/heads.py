"""A linear layer over concatenated heads, read as a sum: its output is one term a head, and the bias.

With x_h the part of the input that head h wrote and W_h the columns of the weight that read it, the term is
W_h x_h. All terms get the gradient of the output, so the edges of all heads come from one gradient.
"""

import torch
from torch import Tensor, nn

from recunlearn.foundation.errors import UsageError


def head_weights(module: nn.Module, size: int, heads: int) -> Tensor:
    """What a layer does to each head's part: ``[heads, size / heads, d]``, whatever the layer is made of.

    Args:
        module: linear in its last axis up to a bias (``nn.Linear``, GPT-2's ``Conv1D``, adapters).
        size: of its input.
        heads: parts of the input.

    Raises:
        UsageError: the input cannot be split into so many parts.
    """
    if size % heads:
        raise UsageError(f"{heads} heads do not fit an input of size {size}. Correct the hints' heads.")
    like = next(module.parameters())
    rows = torch.eye(size, dtype=like.dtype, device=like.device).unsqueeze(0)
    with torch.no_grad():
        weight: Tensor = module.forward(rows) - module.forward(torch.zeros_like(rows[:, :1]))
    return weight.view(heads, size // heads, -1)


def head_terms(weights: Tensor, change: Tensor) -> Tensor:
    """Change of every head's term: ``[heads, k, d], [B, ..., heads * k] -> [B, heads, ..., d]``."""
    heads, size, _ = weights.shape
    parts = change.unflatten(-1, (heads, size)).movedim(-2, 1)
    shape = parts.shape
    terms = torch.matmul(parts.reshape(shape[0], heads, -1, size), weights)
    return terms.view(*shape[:-1], -1)


def edges_by_head(terms: Tensor, g: Tensor) -> Tensor:
    """Edges of all heads: ``[B, heads, ..., d], [B, ..., d] -> [B, heads]``."""
    return torch.bmm(terms.flatten(2), g.flatten(1).unsqueeze(-1)).squeeze(-1)


def flows_by_head(weights: Tensor, g: Tensor) -> Tensor:
    """Gradient with respect to the layer's input: ``[heads, k, d], [..., d] -> [..., heads * k]``."""
    return g @ weights.flatten(0, 1).T


__all__ = ["edges_by_head", "flows_by_head", "head_terms", "head_weights"]
