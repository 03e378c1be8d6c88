"""Means over the training samples of each user."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from recunlearn.studies.competitors.contract import Array
from recunlearn.studies.losses import BATCH
from recunlearn.subjects.contract import Batch, IntArray, Subject


class Sums:
    """Sums over the samples of each entity, in float64, and their number."""

    def __init__(self, count: int) -> None:
        self.total = torch.zeros(count, dtype=torch.float64)
        self.count = torch.zeros(count, dtype=torch.float64)

    def add(self, batch: Batch, values: Tensor) -> None:
        """Add a value ``[B]`` of each sample of ``batch``."""
        found, owner = values.detach().double().cpu(), batch.entity.cpu()
        self.total.index_add_(0, owner, found)
        self.count.index_add_(0, owner, torch.ones_like(found))

    def mean(self, users: IntArray) -> Array:
        """Mean of each of ``users``: ``[n]``, NaN without samples."""
        rows = torch.from_numpy(users)
        mean: Array = (self.total[rows] / self.count[rows]).numpy()
        return mean


@torch.no_grad()
def user_means(subject: Subject, users: IntArray, seed: int, value: Callable[[Batch], Tensor]) -> Array:
    """Mean of ``value(batch)``, ``[B]``, over the training samples of each of ``users``: ``[n]``.

    Everybody is measured, so that batches, and with them last digits, are the same for any ``users``.
    """
    sums = Sums(len(subject.entities))
    for batch in subject.batches(batch_size=BATCH, seed=seed):
        sums.add(batch, value(batch))
    return sums.mean(users)


def item_means(value: Array, user: IntArray, item: IntArray, users: IntArray) -> Array:
    """Mean of an item's ``value``, ``[n_items]``, over the pairs of each of ``users``: ``[n]``."""
    n = int(max(user.max(initial=0), users.max(initial=0))) + 1
    total, count = np.bincount(user, value[item], n), np.bincount(user, minlength=n)
    with np.errstate(invalid="ignore"):
        mean: Array = (total / count)[users]
    return mean
