"""Overlap: how alike the circuits of easy users are, those of hard users, and both with each other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recunlearn.difficulty.effects import DRAWS, dominance, shuffled_p
from recunlearn.difficulty.sides import resampled
from recunlearn.difficulty.similarity import similarity
from recunlearn.foundation.settings import SimilaritySettings

Array = NDArray[np.float64]
TOP = SimilaritySettings(measure="jaccard", edges="raw", ranking="absolute")
COSINE = SimilaritySettings(measure="cosine", edges="raw")


def pairwise(values: NDArray[np.floating[Any]]) -> dict[str, Array]:
    """Overlap of every pair of raw circuits by key: ``[n, E] -> [n, n]`` each.

    ``overlap_jaccard``: |A ∩ B| / |A ∪ B| of the top quarter of edges by |e|; ``overlap_cosine``: of the
    signed edges, −1 to 1.
    """
    whole = values.astype(np.float64)
    return {
        "overlap_jaccard": similarity(whole, whole, TOP),
        "overlap_cosine": 2 * similarity(whole, whole, COSINE) - 1,
    }


@dataclass(frozen=True)
class Overlap:
    """Two groups of users in one matrix of pairwise overlaps, the easy ones first.

    Args:
        matrix: ``[n, n]``; its diagonal does not count.
        k: number of easy users.
    """

    matrix: Array
    k: int

    def members(self) -> tuple[Array, Array]:
        """Mean overlap of every user with the others of the own group: ``[k]`` and ``[n − k]``."""
        return self._weighted(np.ones(self.k), np.ones(len(self.matrix) - self.k))

    def means(self) -> tuple[float, float, float]:
        """Mean overlap of pairs within easy, within hard and between."""
        easy, hard, between = _means(self.matrix, np.arange(len(self.matrix)) < self.k)
        return float(easy), float(hard), float(between)

    def interval(self, seed: int) -> tuple[float, float]:
        """95 % bootstrap of Cliff's delta of :meth:`members`.

        Users are redrawn, and their overlaps with them; one drawn twice is not compared with itself.
        """
        rng, sizes = np.random.default_rng(seed), (self.k, len(self.matrix) - self.k)
        deltas = []
        for low, high in zip(*(resampled(size, DRAWS, rng)[1:] for size in sizes), strict=True):
            wins = dominance(*(values.round(9) for values in self._weighted(low, high)))
            deltas.append(float(high @ wins @ low) / (sizes[0] * sizes[1]))
        ends = np.quantile(deltas, [0.025, 0.975])
        return float(ends[0]), float(ends[1])

    def p_less_alike(self, seed: int) -> float:
        """Two-sided p of (within hard) − (within easy), labels shuffled and overlaps averaged anew."""
        return self._p(seed, lambda easy, hard, _: hard - easy)

    def p_apart(self, seed: int) -> float:
        """Two-sided p of the mean of both within − between, labels shuffled: do the groups differ at all."""
        return self._p(seed, lambda easy, hard, between: (easy + hard) / 2 - between)

    def _weighted(self, low: Array, high: Array) -> tuple[Array, Array]:
        k = self.k
        parts = ((self.matrix[:k, :k], low), (self.matrix[k:, k:], high))
        easy, hard = ((m @ w - np.diag(m) * w) / np.maximum(w.sum() - w, 1) for m, w in parts)
        return easy, hard

    def _p(self, seed: int, combine: Callable[[Array, Array, Array], Array]) -> float:
        users = np.arange(len(self.matrix))

        def statistic(low: NDArray[Any], _high: NDArray[Any], axis: int = -1) -> Array:
            rows = np.moveaxis(low, axis, -1).astype(np.int64)
            labels = np.zeros((*rows.shape[:-1], len(users)), dtype=bool)
            np.put_along_axis(labels, rows, True, axis=-1)
            return combine(*_means(self.matrix, labels))

        return shuffled_p(users[: self.k], users[self.k :], statistic, seed)


def _means(matrix: Array, easy: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Mean overlap within easy, within hard and between: labels ``[..., n]`` -> ``[...]`` each."""
    z, own = easy.astype(np.float64), np.diag(matrix)
    other = 1 - z
    k, m = z.sum(-1), other.sum(-1)
    to_easy, to_hard = z @ matrix, other @ matrix
    return (
        ((to_easy * z).sum(-1) - z @ own) / (k * (k - 1)),
        ((to_hard * other).sum(-1) - other @ own) / (m * (m - 1)),
        (to_easy * other).sum(-1) / (k * m),
    )
