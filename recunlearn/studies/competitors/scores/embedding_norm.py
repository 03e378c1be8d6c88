"""Embedding norm: how far training has carried a user's vector."""

from typing import ClassVar

import numpy as np

from recunlearn.studies.competitors.contract import Array, Competitor
from recunlearn.subjects.contract import IntArray, Recommender


class EmbeddingNorm(Competitor):
    """‖v_u‖₂ of the user's vector as the score reads it; several tables side by side."""

    name: ClassVar = "embedding-norm"
    direction: ClassVar = 1
    trivial: ClassVar = True
    needs_vectors: ClassVar = True

    def measure(self, subject: Recommender, users: IntArray, seed: int) -> Array:
        """Length."""
        vectors = subject.user_vectors(subject.model)
        rows = np.empty((len(subject.entities), 0)) if vectors is None else vectors.double().cpu().numpy()
        norm: Array = np.linalg.norm(rows[users], axis=1)
        return norm
