"""Popularity: how many others keep a user's items in the model."""

from typing import ClassVar

from recunlearn.studies.competitors.contract import Array, Competitor
from recunlearn.subjects.contract import IntArray, Recommender


class Popularity(Competitor):
    """Training samples of an item, averaged over the user's: the column ``mean_item_popularity``."""

    name: ClassVar = "popularity"
    direction: ClassVar = 1
    trivial: ClassVar = True

    def measure(self, subject: Recommender, users: IntArray, seed: int) -> Array:
        """Read off the subject's covariates."""
        return subject.covariates()["mean_item_popularity"][users].astype(float)
