"""The straight line from baseline to actual: its points and their weights."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

Method = Literal["eap-ig", "conductance"]
METHODS: tuple[Method, ...] = get_args(Method)
"""Edge scores (:mod:`recunlearn.circuits.attribution`)."""


@dataclass(frozen=True)
class Path:
    """Quadrature: ascending points ``alphas`` in [0, 1], the last at 1, and ``weights``: ``[n_steps]``."""

    alphas: Tensor
    weights: Tensor

    @staticmethod
    @lru_cache(maxsize=32)
    def of(method: Method, n_steps: int, dtype: torch.dtype, device: torch.device) -> "Path":
        """Gauss-Radau with the actual end for ``eap-ig``; trapezoid with both ends for ``conductance``.

        Radau is exact for polynomials up to degree 2 n - 2, needs no extra pass at the actual values, and
        stays away from the baseline, where norms of a model may have no derivative.
        """
        if method == "eap-ig":
            nodes, weights = gauss_radau(n_steps)
        else:
            nodes = np.linspace(0, 1, n_steps)
            weights = np.full(n_steps, 1 / (n_steps - 1))
            weights[[0, -1]] /= 2
        return Path(*(torch.tensor(x, dtype=dtype, device=device) for x in (nodes, weights)))

    @property
    def starts_at_baseline(self) -> bool:
        """Whether the first point is the baseline."""
        return bool(self.alphas[0] == 0)

    def points(self, start: Tensor, end: Tensor) -> Tensor:
        """Tile of all points, step-major: ``[n_steps * B, ...]``."""
        alphas = self.alphas.view(-1, *([1] * end.dim()))
        return torch.lerp(start.unsqueeze(0), end.unsqueeze(0), alphas).flatten(0, 1)

    def tiled_weights(self, samples: int) -> Tensor:
        """Weight of every row of a tile: ``[n_steps * B]``."""
        return self.weights.repeat_interleave(samples)


def gauss_radau(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [0, 1], the last node at 1: ``[n]`` each.

    Source: Golub, Some modified matrix eigenvalue problems, SIAM Review 15 (1973): the last diagonal entry of
    Legendre's Jacobi matrix is moved so that -1 becomes an eigenvalue; mirrored and scaled.

    >>> nodes, weights = gauss_radau(2)  # exact up to degree 2: nodes 1/3 and 1, weights 3/4 and 1/4
    >>> nodes.round(6).tolist(), weights.round(6).tolist()
    ([0.333333, 1.0], [0.75, 0.25])
    """
    k = np.arange(1, n)
    off = k / np.sqrt(4.0 * k * k - 1)
    last = -1.0
    if n > 1:
        inner = np.diag(np.ones(n - 1)) + np.diag(off[:-1], 1) + np.diag(off[:-1], -1)
        last += np.linalg.solve(inner, np.eye(n - 1)[-1])[-1] * off[-1] ** 2
    values, vectors = eigh_tridiagonal(np.append(np.zeros(n - 1), last), off)
    nodes, weights = (1 - values[::-1]) / 2, vectors[0, ::-1] ** 2
    nodes[-1] = 1.0
    return nodes, weights
