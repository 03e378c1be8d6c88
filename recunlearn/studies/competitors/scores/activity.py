"""Activity: how much data a user has left in the model."""

from typing import ClassVar

from recunlearn.studies.competitors.contract import Array, Competitor
from recunlearn.subjects.contract import IntArray, Recommender


class Activity(Competitor):
    """Number of training samples. Source: core and edge users of CURE4Rec."""

    name: ClassVar = "activity"
    direction: ClassVar = 1
    trivial: ClassVar = True

    def measure(self, subject: Recommender, users: IntArray, seed: int) -> Array:
        """Count."""
        return subject.n_samples()[users].astype(float)
