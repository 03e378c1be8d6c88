"""Confidence: probability that the model gives to what the user did."""

from typing import ClassVar

from recunlearn.studies.competitors.averaging import user_means
from recunlearn.studies.competitors.contract import Array, Competitor
from recunlearn.subjects.contract import IntArray, Recommender


class Confidence(Competitor):
    """Mean of p_y = exp(−ℓ) over the user's training samples."""

    name: ClassVar = "confidence"
    direction: ClassVar = 1

    def measure(self, subject: Recommender, users: IntArray, seed: int) -> Array:
        """Average."""
        return user_means(
            subject, users, seed, lambda b: subject.log_likelihood(subject.model, b).double().exp()
        )
