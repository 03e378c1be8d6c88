"""Scores of many users for all items, from any RecBole model: its own full-sort method, or tiles of pairs."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from recunlearn.subjects.recbole.compat import Interaction
from recunlearn.subjects.recbole.pairs import PairColumn, dense

# Users and items of a tile, measured on NeuMF (d 64) with ML-1M: fewer cost calls, more cost cache.
SHARED_TILE = (128, 128)
PLAIN_TILE = (16, 128)
_PROBE_ROWS = 4
_REFUSALS = (RuntimeError, TypeError, AttributeError, ValueError, IndexError, NotImplementedError)


@dataclass
class Scorer:
    """Scores ``[rows, n_items]`` of one model.

    Models without ``full_sort_predict`` are scored pair by pair in tiles, with per-user and per-item work
    shared (:mod:`pairs`) where a probe of the first rows gives the plain result up to rounding.

    Args:
        model: in eval mode, on its device.
        inputs: columns of the rows (users with their features, or histories).
        items: columns of all items, in the order of their numbers.
    """

    model: Any
    inputs: Any
    items: Any
    tolerance: float = field(default=0.0, init=False)
    """Scores closer than this may be in another order than plain scoring gives; 0: scores are plain."""

    def __post_init__(self) -> None:
        """Find out which of the three ways the model needs."""
        parameter = next(self.model.parameters(), None)
        self.device = torch.device("cpu") if parameter is None else parameter.device
        self.items = self.items.to(self.device)
        self.n_items = len(self.items)
        self.full_sort = True

    def __call__(self, start: int, stop: int) -> Tensor:
        """Scores of consecutive rows: ``[stop - start, n_items]``, free to be changed."""
        rows = self.inputs[slice(start, stop)].to(self.device)
        if self.full_sort:
            try:
                return self.model.full_sort_predict(rows).view(-1, self.n_items)  # type: ignore[no-any-return]
            except NotImplementedError:
                self.full_sort = False
                self.tolerance = self._probe()
        return self._tiles(rows, shared=self.tolerance > 0)

    def plain(self, rows: Tensor) -> Tensor:
        """Scores by the model's own ``predict`` of ordinary columns: ``[len(rows), n_items]``."""
        columns = {k: v[rows] for k, v in self.inputs.interaction.items()}
        return self._tiles(Interaction(columns).to(self.device), shared=False)

    def _probe(self) -> float:
        """Return the tolerance of shared scoring, or 0 where the model must be scored plainly."""
        rows = self.inputs[slice(0, _PROBE_ROWS)].to(self.device)
        plain = self._tiles(rows, shared=False)
        try:
            shared = self._tiles(rows, shared=True)
        except _REFUSALS:
            return 0.0
        scale = float(plain.abs().max())
        gap = float((plain - shared).abs().max())
        # Written so that NaN is refused too. Sums of a few hundred float32 terms in another order agree
        # to 1e-6.
        if not gap <= 1e-5 * scale:
            return 0.0
        return 8 * max(gap, torch.finfo(plain.dtype).eps * scale)

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
        return dense(self.model.predict(_interaction(columns, grid[0] * grid[1])))


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
