"""Training samples grouped by user, as columns that a model reads."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recunlearn.foundation.seeds import uniform
from recunlearn.subjects.contract import Batch, IntArray
from recunlearn.subjects.recbole.bundle import Bundle
from recunlearn.subjects.recbole.compat import Interaction
from recunlearn.subjects.recbole.sampling import FixedNegatives


class Samples:
    """Rows of the training part, sorted by user, then time (else file order)."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        feat = bundle.train.inter_feat
        self.user, self.item = feat["user_id"].numpy(), feat["item_id"].numpy()
        time = bundle.train.rows if bundle.time is None else bundle.time[bundle.train.rows]
        self._order = np.lexsort((bundle.train.rows, time, self.user))
        counts = np.bincount(self.user, minlength=len(bundle.users) + 1)[1:]
        self.counts: IntArray = counts.astype(np.int64)
        self._start = np.concatenate(([0], np.cumsum(self.counts)))
        self._negatives = FixedNegatives(self.user, self.item, len(bundle.items) + 1)

    def rows(self, entities: IntArray, per_entity: int | None = None, seed: int = 0) -> IntArray:
        """Rows of ``entities`` in that order, at most ``per_entity`` each: the last by time, or by hash."""
        start, end = self._start[entities], self._start[np.asarray(entities) + 1]
        if per_entity is None:
            return self._order[_ranges(start, end)]
        if self._bundle.time is not None:
            return self._order[_ranges(np.maximum(start, end - per_entity), end)]
        kept = np.sort(self._by_hash(seed)[_ranges(start, np.minimum(end, start + per_entity))])
        # Places within the order are ascending user by user; give them back in the order asked for.
        owner = np.searchsorted(self._start, kept, side="right") - 1
        place = np.argsort(np.asarray(entities), kind="stable")
        rank = np.empty(len(self.counts), dtype=np.int64)
        rank[np.asarray(entities)[place]] = place
        return self._order[kept[np.argsort(rank[owner], kind="stable")]]

    def _by_hash(self, seed: int) -> IntArray:
        """Places of the order, user by user, shuffled within each user by a hash of the pair."""
        return np.lexsort((uniform(self._pairs(self._order), seed), self.user[self._order]))

    def _pairs(self, rows: IntArray) -> NDArray[np.uint64]:
        return (self.user[rows] * (len(self._bundle.items) + 1) + self.item[rows]).astype(np.uint64)

    def batches(self, rows: IntArray, size: int, seed: int) -> Iterator[Batch]:
        """All ``rows`` in pieces of ``size``."""
        for start in range(0, len(rows), size):
            yield self.batch(rows[start : start + size], seed)

    def batch(self, rows: IntArray, seed: int, *, sampled: int = 0) -> Batch:
        """Columns of ``rows``; with ``sampled`` that many negatives (label 0) per row come after them."""
        bundle = self._bundle
        data = bundle.train.__getitem__(rows, join=False)
        if sampled:
            data = data.repeat(1 + sampled)
            others = [self._negatives(self.user[rows], self.item[rows], seed + i) for i in range(sampled)]
            data["item_id"][len(rows) :] = torch.from_numpy(np.concatenate(others))
        data = bundle.train.join(data)
        if bundle.objective == "pairwise":
            self._add_negatives(data, rows, seed)
        if bundle.objective == "pointwise" and not bundle.labelled:
            data["label"] = (torch.arange(len(data)) < len(rows)).float()
        columns = data.to(bundle.config["device"]).interaction
        return Batch(columns, columns["user_id"] - 1)

    def _add_negatives(self, data: Any, rows: IntArray, seed: int) -> None:
        negative = torch.from_numpy(self._negatives(self.user[rows], self.item[rows], seed))
        other = Interaction({"item_id": negative})
        if self._bundle.train.item_feat is not None:
            other = self._bundle.train.join(other)
        other.add_prefix("neg_")
        data.update(other)


def _ranges(start: IntArray, end: IntArray) -> IntArray:
    """``[start_0 .. end_0), [start_1 .. end_1), ...`` in a row."""
    size = end - start
    before = np.cumsum(size) - size
    return np.repeat(start - before, size) + np.arange(size.sum())
