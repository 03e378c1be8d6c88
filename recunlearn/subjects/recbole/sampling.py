"""Negative items: RecBole's training sampler, draw for draw but vectorised, and negatives fixed by a hash."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recunlearn.foundation.arrays import distinct
from recunlearn.foundation.errors import DataError
from recunlearn.foundation.seeds import uniform
from recunlearn.subjects.recbole.compat import RepeatableSampler, Sampler

_DENSE_CELLS = 100_000_000


class Used:
    """Which pairs (user, item) occur: a bit table while that is small, else sorted keys.

    Args:
        user, item: ``[n]`` internal ids.
        n_users, n_items: table sizes with the padding row.
    """

    def __init__(self, user: NDArray[Any], item: NDArray[Any], n_users: int, n_items: int) -> None:
        self.n_items = n_items
        keys = user.astype(np.int64) * n_items + item
        self._dense = n_users * n_items <= _DENSE_CELLS
        if self._dense:
            self._table = np.zeros(n_users * n_items, dtype=bool)
            self._table[keys] = True
        else:
            self._keys = distinct(keys)

    def __call__(self, user: NDArray[Any], item: NDArray[Any]) -> NDArray[np.bool_]:
        """Tell which pairs occur: ``[m]`` -> ``[m]`` bool."""
        keys = user * self.n_items + item
        if self._dense:
            return self._table[keys]
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.asarray(self._keys[place] == keys)


class TrainSampler(Sampler):
    """RecBole's ``Sampler`` in its training phase: the same draws from numpy's global generator.

    Source: RecBole 1.2.1, ``AbstractSampler.sample_by_key_ids``; the test for used items is one look-up
    instead of a Python loop, and only the training phase is prepared.
    """

    def __init__(self, built: list[Any], distribution: str, alpha: float) -> None:
        super().__init__(["train", "valid", "test"], built, distribution, alpha)

    def get_used_ids(self) -> Any:
        """Pairs of the training part."""
        train = self.datasets[0].inter_feat
        user, item = train[self.uid_field].numpy(), train[self.iid_field].numpy()
        _refuse_full_users(user, item, self.item_num)
        return Used(user, item, self.user_num, self.item_num)

    def sample_by_user_ids(self, user_ids: Any, item_ids: Any, num: int) -> torch.Tensor:
        """Draw ``num`` unused items per user: ``[m]`` -> ``[num * m]``, all users ``num`` times over."""
        return _rejection(self.sampling, self.used_ids, np.tile(np.asarray(user_ids), num))


class TrainRepeatableSampler(RepeatableSampler):
    """RecBole's ``RepeatableSampler`` (sequential models): only the positive itself is excluded."""

    def __init__(self, dataset: Any, distribution: str, alpha: float) -> None:
        super().__init__(["train"], dataset, distribution, alpha)

    def sample_by_user_ids(self, user_ids: Any, item_ids: Any, num: int) -> torch.Tensor:
        """Draw ``num`` items other than the positive: ``[m]`` -> ``[num * m]``."""
        return _rejection(self.sampling, np.equal, np.tile(np.asarray(item_ids), num))


def _rejection(draw: Any, used: Any, keys: NDArray[Any]) -> torch.Tensor:
    values = np.zeros(len(keys), dtype=np.int64)
    left = np.arange(len(keys))
    while len(left):
        values[left] = draw(len(left))
        left = left[used(keys[left], values[left])]
    return torch.tensor(values, dtype=torch.long)


def _refuse_full_users(user: NDArray[Any], item: NDArray[Any], n_items: int) -> None:
    pairs = distinct(user.astype(np.int64) * n_items + item)
    full = np.count_nonzero(np.bincount(pairs // n_items) >= n_items - 1)
    if full:
        raise DataError(
            f"{full} of the users have interacted with all {n_items - 1} items, so there is no negative item "
            "to compare with. Use data with more items, a higher --min-rating, or a sequential model."
        )


class FixedNegatives:
    """One negative item per (user, item), fixed by the pair and a seed: uniform over the user's unused items.

    Args:
        user, item: ``[n]`` internal ids (from 1) of the training interactions.
        n_items: table size with the padding row; item 0 is never drawn.
    """

    def __init__(self, user: NDArray[Any], item: NDArray[Any], n_items: int) -> None:
        self._n = n_items
        pairs = distinct(user.astype(np.int64) * n_items + item)
        owner, used = pairs // n_items, pairs % n_items
        n_owners = int(owner.max()) + 2 if len(owner) else 1
        self._start = np.searchsorted(owner, np.arange(n_owners + 1))
        # Free items below a used one; together with its owner a sorted key, so that one search over all
        # users finds how many used items lie before the k-th free one.
        free_below = used - 1 - (np.arange(len(pairs)) - self._start[owner])
        self._keys = owner * n_items + free_below

    def __call__(self, user: NDArray[Any], item: NDArray[Any], seed: int) -> NDArray[np.int64]:
        """Draw for every pair: ``[m]``, ``[m]`` -> ``[m]`` internal item ids."""
        user = np.asarray(user, dtype=np.int64)
        inside = np.minimum(user, len(self._start) - 2)
        start = self._start[inside]
        free = self._n - 1 - (self._start[inside + 1] - start)
        pair = (user * self._n + np.asarray(item, dtype=np.int64)).astype(np.uint64)
        k = np.minimum((uniform(pair, seed) * free).astype(np.int64), free - 1)
        before = np.searchsorted(self._keys, inside * self._n + k, side="right") - start
        return np.asarray(1 + k + before, dtype=np.int64)
