"""Training loss of a user."""

from typing import ClassVar

from recunlearn.studies.competitors.averaging import user_means
from recunlearn.studies.competitors.contract import Array, Competitor
from recunlearn.subjects.contract import IntArray, Recommender


class Loss(Competitor):
    """L_0, mean ℓ over the user's training samples."""

    name: ClassVar = "loss"
    direction: ClassVar = -1
    trivial: ClassVar = True

    def measure(self, subject: Recommender, users: IntArray, seed: int) -> Array:
        """Average."""
        return user_means(subject, users, seed, lambda b: -subject.log_likelihood(subject.model, b))
