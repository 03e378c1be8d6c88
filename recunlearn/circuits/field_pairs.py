"""A factorisation machine's second-order term, written as a sum over pairs of fields.

sum_f over dims of (sum x_f)^2 - sum x_f^2, halved, equals the sum over f < g of <x_f, x_g>: the same number,
with one term a pair. Source: Rendle, 2010, "Factorization Machines", lemma 3.1, read backwards.
"""

from itertools import combinations

import torch
from torch import Tensor

MOST_FIELDS = 24
"""Above, the pairs (276 and more) would cost more than the model; the term stays whole."""


def pair_products(fields: Tensor) -> Tensor:
    """Inner products of all pairs f < g: ``[B, F, d]`` -> ``[B, F (F - 1) / 2, 1]``."""
    f, g = torch.triu_indices(fields.shape[1], fields.shape[1], offset=1, device=fields.device)
    gram = torch.bmm(fields, fields.transpose(1, 2)).flatten(1)
    return gram.index_select(1, f * fields.shape[1] + g).unsqueeze(-1)


def pair_labels(fields: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the pairs, in the order of :func:`pair_products`."""
    return tuple(f".pair({a},{b})" for a, b in combinations(fields, 2))


def is_pairwise(inputs: Tensor, output: Tensor, fields: int) -> bool:
    """Whether ``output``, one number a sample, is the second-order term of ``fields`` vectors ``inputs``.

    Terms that are not summed over the dimensions (NFM) stay whole: their pairs would cost more than all else.
    """
    stacked = inputs.dim() == 3 and inputs.shape[1] == fields <= MOST_FIELDS
    return stacked and output.shape[1:] == (1,)


__all__ = ["MOST_FIELDS", "is_pairwise", "pair_labels", "pair_products"]
