"""Scores of many users for all items, from any RecBole model: its own full-sort method, or tiles of pairs."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from recunlearn.subjects.recbole.compat import Interaction
from recunlearn.subjects.recbole.pairs import PairColumn, dense
from recunlearn.subjects.recbole.scoring import predicted

# Users and items of a tile, measured on NeuMF (d 64) with ML-1M: fewer cost calls, more cost cache.
SHARED_TILE = (128, 128)
# Pairs as RecBole batches them by default: one user, at most 4096 items.
PLAIN_TILE = (1, 4096)
_PROBE_ROWS = 4
_REFUSALS = (RuntimeError, TypeError, AttributeError, ValueError, IndexError, NotImplementedError)


@dataclass
class Scorer:
    """Scores ``[rows, n_items]`` of one model, many rows at a time.

    Scores of many rows at once differ from those of RecBole's small batches in the last bit, because sums are
    taken in another order. A probe of the first rows measures by how much; where an order hangs on less than
    that, :meth:`plain` repeats RecBole's batches.

    Models without ``full_sort_predict`` are scored pair by pair in tiles, with per-user and per-item work
    shared (:mod:`pairs`) unless the probe finds other values.

    Args:
        model: in eval mode, on its device.
        inputs: columns of the rows (users with their features, or histories).
        items: columns of all items, in the order of their numbers.
        group: rows in a batch of RecBole's evaluation; 0: its last bits are not asked for.
        raw: whether pairs are scored before a final sigmoid, whose output tells high scores hardly apart.
    """

    model: Any
    inputs: Any
    items: Any
    group: int = 1
    raw: bool = False
    tolerance: float = field(default=0.0, init=False)
    """Scores closer than this may be in another order than in RecBole's batches; 0: they never are."""

    def __post_init__(self) -> None:
        """Find out which way the model needs."""
        parameter = next(self.model.parameters(), None)
        self.device = torch.device("cpu") if parameter is None else parameter.device
        self.items = self.items.to(self.device)
        self.n_items = len(self.items)
        self.full_sort = True
        if len(self.inputs):
            self.tolerance = self._probe()

    def __call__(self, start: int, stop: int) -> Tensor:
        """Scores of consecutive rows: ``[stop - start, n_items]``, free to be changed."""
        rows = self.inputs[slice(start, stop)].to(self.device)
        return self._full(rows) if self.full_sort else self._tiles(rows, shared=self.tolerance > 0)

    def plain(self, rows: Tensor) -> Tensor:
        """Scores of single rows as RecBole's batches give them: ``[len(rows), n_items]``."""
        if not self.full_sort:
            columns = {k: v[rows] for k, v in self.inputs.interaction.items()}
            return self._tiles(Interaction(columns).to(self.device), shared=False)
        scores = []
        for number in (rows // self.group).unique().tolist():
            first = number * self.group
            batch = self._full(self.inputs[slice(first, first + self.group)].to(self.device))
            scores.append(batch[rows[rows // self.group == number] - first])
        return torch.cat(scores)

    def _full(self, rows: Any) -> Tensor:
        scores: Tensor = self.model.full_sort_predict(rows)
        return scores.view(-1, self.n_items)

    def _probe(self) -> float:
        """Choose the way of scoring and return its tolerance."""
        head = self.inputs[slice(0, _PROBE_ROWS)].to(self.device)
        try:
            many = self._full(head)
        except NotImplementedError:
            self.full_sort = False
            return self._probe_pairs(head)
        return _tolerance(self.plain(torch.arange(len(head))), many) if self.group else 0.0

    def _probe_pairs(self, head: Any) -> float:
        try:
            shared = self._tiles(head, shared=True)
        except _REFUSALS:
            return 0.0
        return _tolerance(self._tiles(head, shared=False), shared)

    def _tiles(self, rows: Any, shared: bool) -> Tensor:
        height, width = SHARED_TILE if shared else PLAIN_TILE
        out = torch.empty(len(rows), self.n_items, device=self.device)
        for top in range(0, len(rows), height):
            users = rows[slice(top, top + height)]
            for left in range(0, self.n_items, width):
                items = self.items[slice(left, left + width)]
                tile = out[top : top + height, left : left + width]
                tile.copy_(self._pairs(users, items, shared).view(tile.shape))
        return out

    def _pairs(self, rows: Any, items: Any, shared: bool) -> Tensor:
        grid = (len(rows), len(items))
        columns: dict[str, Tensor] = {k: PairColumn([v[:, None]], grid) for k, v in rows.interaction.items()}
        columns |= {k: PairColumn([v[None]], grid) for k, v in items.interaction.items()}
        if not shared:
            columns = {k: dense(v) for k, v in columns.items()}
        made = _interaction(columns, grid[0] * grid[1])
        return dense(predicted(self.model, made) if self.raw else self.model.predict(made))


def _tolerance(plain: Tensor, fast: Tensor) -> float:
    """Eight times the largest rounding difference; 0 where the difference is more than rounding."""
    scale = float(plain[plain.isfinite()].abs().max()) if plain.isfinite().any() else 0.0
    gap = float(torch.where(plain == fast, 0, (plain - fast).abs()).max())
    # Written so that NaN is refused too. Sums of some hundred float32 terms agree to about 1e-6 in any order.
    if not gap <= 1e-5 * scale:
        return 0.0
    return 8 * max(gap, torch.finfo(plain.dtype).eps * scale)


class ItemScores(nn.Module):
    """One score per item, the same for everybody: a baseline such as popularity.

    Args:
        scores: ``[n_items]``.
    """

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores = scores

    def full_sort_predict(self, interaction: Any) -> Tensor:
        """``[B * n_items]``."""
        return self.scores.repeat(len(interaction))


def _interaction(columns: dict[str, Tensor], length: int) -> Any:
    """Fill an Interaction directly: its constructor would measure, and so unfold, every column."""
    made = Interaction({})
    made.interaction, made.length = columns, length
    return made
