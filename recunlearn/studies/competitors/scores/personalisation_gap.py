"""Personalisation gap: what the user's own vector is worth."""

from typing import ClassVar

from recunlearn.studies.competitors.averaging import user_means
from recunlearn.studies.competitors.contract import Array, Competitor
from recunlearn.studies.competitors.scores.population_loss import stranger_losses
from recunlearn.subjects.contract import IntArray, Recommender


class PersonalisationGap(Competitor):
    """L_M − L_0: loss under the population-mean vector minus the loss."""

    name: ClassVar = "personalisation-gap"
    direction: ClassVar = 1
    trivial: ClassVar = True
    needs_vectors: ClassVar = True

    def measure(self, subject: Recommender, users: IntArray, seed: int) -> Array:
        """Difference of two averages."""
        loss = user_means(subject, users, seed, lambda b: -subject.log_likelihood(subject.model, b))
        return stranger_losses(subject, users, seed) - loss
