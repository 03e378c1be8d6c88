"""Similarity to one side's anchors: to each or to their mean, without oneself, under resampling."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recunlearn.difficulty.similarity import Array, similarity
from recunlearn.foundation.settings import SimilaritySettings

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Side:
    """Easy or hard anchors.

    Args:
        circuits: prepared circuits of the anchors, ``[k, E]``.
        weights: ``[draws, k]`` how often each anchor counts in a draw; row 0 is the point estimate, all ones.
        own: ``[n]`` the scored entity's column among the anchors, −1 where it is none.
    """

    circuits: Array
    weights: Array
    own: Rows

    def similarity(self, circuits: Array, first: int, settings: SimilaritySettings) -> Array:
        """Similarity of prepared ``circuits`` (rows ``first`` on) in every draw: ``[b, E] -> [b, draws]``.

        NaN where leaving out an anchor's own circuit leaves nothing to compare with.
        """
        own = self.own[first : first + len(circuits)]
        of_side = self._to_mean if settings.reference == "mean" else self._to_single
        return of_side(circuits, own, settings)

    def _to_single(self, circuits: Array, own: Rows, settings: SimilaritySettings) -> Array:
        each = similarity(circuits, self.circuits, settings)
        total = np.broadcast_to(self.weights.sum(1), (len(each), len(self.weights))).copy()
        anchors = np.flatnonzero(own >= 0)
        each[anchors, own[anchors]] = 0.0
        total[anchors] -= self.weights[:, own[anchors]].T
        return _ratio(each @ self.weights.T, total)

    def _to_mean(self, circuits: Array, own: Rows, settings: SimilaritySettings) -> Array:
        values = similarity(circuits, self._means(self.weights), settings)
        for row in np.flatnonzero(own >= 0):
            weights = self.weights.copy()
            weights[:, own[row]] = 0.0
            without = similarity(circuits[row : row + 1], self._means(weights), settings)[0]
            values[row] = np.where(weights.sum(1) > 0, without, np.nan)
        return values

    def _means(self, weights: Array) -> Array:
        total = np.maximum(weights.sum(1, keepdims=True), 1.0)
        means: Array = (weights @ self.circuits) / total
        return means


def resampled(k: int, draws: int, rng: np.random.Generator) -> Array:
    """Weights of ``k`` anchors: all ones, then ``draws`` draws with replacement: ``[draws + 1, k]``."""
    return np.concatenate([np.ones((1, k)), rng.multinomial(k, np.full(k, 1 / k), size=draws)])


def _ratio(total: Array, weight: Array) -> Array:
    return np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0)
