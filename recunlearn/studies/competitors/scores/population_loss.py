"""Population loss: how badly the model would know the user as a stranger."""

from typing import ClassVar

import numpy as np

from recunlearn.studies.competitors.averaging import user_means
from recunlearn.studies.competitors.contract import Array, Competitor
from recunlearn.subjects.contract import IntArray, Recommender


def stranger_losses(subject: Recommender, users: IntArray, seed: int) -> Array:
    """Mean loss of each user when their vector is the mean over all other users' vectors: ``[n]``."""
    stranger = subject.population_rows(subject.model, np.arange(len(subject.entities)))
    return user_means(subject, users, seed, lambda b: -subject.log_likelihood(stranger, b))


class PopulationLoss(Competitor):
    """L_M, mean ℓ under the population-mean vector: near the loss after retraining, without retraining."""

    name: ClassVar = "population-loss"
    direction: ClassVar = 1
    trivial: ClassVar = True
    needs_vectors: ClassVar = True

    def measure(self, subject: Recommender, users: IntArray, seed: int) -> Array:
        """Average."""
        return stranger_losses(subject, users, seed)
