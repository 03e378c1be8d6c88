"""CAU's embedding difficulty: how alike a user is to those who stay."""

from typing import ClassVar

import numpy as np

from recunlearn.studies.competitors.contract import Array, Competitor
from recunlearn.subjects.contract import IntArray, Recommender


class CAUEmbedding(Competitor):
    """Mean cosine of the user's vector with the vectors of all other users that have training samples.

    Source: the idea of arXiv 2508.15263 (similarity of the forgotten to the remaining in embedding space).
    Deviation: docs/metrics/competitors.md.
    """

    name: ClassVar = "cau-embedding"
    direction: ClassVar = 1
    needs_vectors: ClassVar = True

    def measure(self, subject: Recommender, users: IntArray, seed: int) -> Array:
        """NaN for a zero vector, and where there is nobody else."""
        found = subject.user_vectors(subject.model)
        vectors = np.empty((0, 0)) if found is None else found.double().cpu().numpy()
        with np.errstate(invalid="ignore", divide="ignore"):
            unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
            others = unit[np.flatnonzero(subject.n_samples() > 0)]
            others = others[np.isfinite(others).all(1)]
            mean: Array = (unit[users] @ others.sum(0) - 1) / (len(others) - 1)
        return mean
