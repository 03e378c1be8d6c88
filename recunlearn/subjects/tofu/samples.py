"""Rows as batches, grouped by the entity that they belong to."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from recunlearn.foundation.seeds import uniform
from recunlearn.subjects.contract import Batch, IntArray
from recunlearn.subjects.tofu.encoding import Encoded

MOST_ROWS = 16
"""Rows of one batch: logits over a vocabulary are large, so a batch may be smaller than asked for."""


@dataclass(frozen=True)
class Samples:
    """Encoded rows and their entities.

    Args:
        encoded: tokens of every row.
        owner: ``[n]`` number of the entity of every row.
        entities: number of entities.
    """

    encoded: Encoded
    owner: IntArray
    entities: int

    @cached_property
    def counts(self) -> IntArray:
        """Rows of each entity: ``[entities]``."""
        return np.bincount(self.owner, minlength=self.entities).astype(np.int64)

    @cached_property
    def _order(self) -> IntArray:
        return np.argsort(self.owner, kind="stable").astype(np.int64)

    @cached_property
    def _starts(self) -> IntArray:
        return np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)

    def rows(self, entities: IntArray, per_entity: int | None = None, seed: int = 0) -> IntArray:
        """Rows of some entities in their order; at most ``per_entity`` each, a choice fixed by ``seed``."""
        parts = [self._rows_of(int(e), per_entity, seed) for e in entities]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def _rows_of(self, entity: int, most: int | None, seed: int) -> IntArray:
        own = self._order[self._starts[entity] : self._starts[entity + 1]]
        if most is None or len(own) <= most:
            return own
        lot = uniform(own.astype(np.uint64), seed)
        return own[np.sort(np.argsort(lot, kind="stable")[:most])]

    def batches(self, rows: IntArray, batch_size: int) -> Iterator[Batch]:
        """Rows in their order, at most :data:`MOST_ROWS` at once."""
        size = min(batch_size, MOST_ROWS)
        for at in range(0, len(rows), size):
            yield self.batch(rows[at : at + size])

    def batch(self, rows: IntArray) -> Batch:
        """Columns ``tokens`` (``[B, T]``, zeros after the end), ``prompt`` and ``length`` (``[B]``)."""
        length = self.encoded.length[rows]
        tokens = np.zeros((len(rows), int(length.max())), dtype=np.int64)
        for n, row in enumerate(rows):
            tokens[n, : length[n]] = self.encoded.tokens[row]
        columns = {"tokens": tokens, "prompt": self.encoded.prompt[rows], "length": length}
        return Batch({k: torch.from_numpy(v) for k, v in columns.items()}, torch.from_numpy(self.owner[rows]))
