"""Log popularity: as popularity, without a few blockbusters deciding alone."""

from typing import ClassVar

import numpy as np

from recunlearn.studies.competitors.averaging import item_means
from recunlearn.studies.competitors.contract import Array, Competitor
from recunlearn.subjects.contract import IntArray, Recommender


class LogPopularity(Competitor):
    """log of an item's positive training interactions, averaged over the user's positive ones."""

    name: ClassVar = "log-popularity"
    direction: ClassVar = 1
    trivial: ClassVar = True

    def measure(self, subject: Recommender, users: IntArray, seed: int) -> Array:
        """NaN for a user without a positive interaction."""
        user, item = subject.interactions()
        value = np.log(np.maximum(np.bincount(item, minlength=len(subject.items)), 1))
        return item_means(value, user, item, users)
