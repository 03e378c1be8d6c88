"""Where the path starts: one vector per look-up, from the table that was looked up."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from recunlearn.circuits.input_rows import InputRows
from recunlearn.foundation.seeds import mix
from recunlearn.subjects.contract import PlanHints

Baseline = Literal["mean", "zero", "counterfactual"]
"""``mean``: mean over the table's rows (per field, without the padding row); ``zero``: zeros;
``counterfactual``: the row of another entity of the same field. Padding positions keep their actual value,
so that "nothing" is never moved along the path."""

Spans = tuple[tuple[int, int], ...]


def spans(table: str, weight: Tensor | InputRows, hints: PlanHints) -> Spans:
    """First and last row (exclusive) of every field of a table; without hints all but the padding row."""
    return tuple(hints.rows.get(table, ((0 if hints.nothing(table) is None else 1, len(weight)),)))


def table_means(table: str, weight: Tensor | InputRows, hints: PlanHints) -> Tensor:
    """Population mean of a table: ``[d]``, or ``[fields, d]`` where a look-up reads several fields."""
    ranges = spans(table, weight, hints)
    if isinstance(weight, InputRows):
        return weight.mean(*ranges[0])
    nothing = _inner_padding(table, hints)
    if nothing:
        weight, ranges = torch.cat([weight[:nothing], weight[nothing + 1 :]]), ((0, len(weight) - 1),)
    means = torch.stack([weight[a:b].detach().mean(0) for a, b in ranges])
    return means if len(means) > 1 else means[0]


def _inner_padding(table: str, hints: PlanHints) -> int:
    """Padding row of a table without row ranges, where it is not the first row; else 0."""
    return 0 if table in hints.rows else hints.nothing(table) or 0


def counterfactual_rows(
    index: Tensor, table: str, weight: Tensor | InputRows, hints: PlanHints, seed: int
) -> Tensor:
    """Rows of :func:`other_rows` in a table, never the padding row."""
    nothing = _inner_padding(table, hints)

    def swapped(rows: Tensor) -> Tensor:
        """The padding row takes the place of the first one, and the other way round."""
        if not nothing:
            return rows
        return torch.where(rows == 0, nothing, torch.where(rows == nothing, 0, rows))

    return swapped(other_rows(swapped(index), spans(table, weight, hints), seed))


def other_rows(index: Tensor, ranges: Spans, seed: int) -> Tensor:
    """Another row of the same field for every index, fixed by ``seed`` and the index alone.

    A shift by 1 to size - 1, so never the row itself (unless a field has one row only).

    Args:
        index: ``[B, ...]`` or ``[B, fields]`` int64.
        ranges: one for all positions, or one per field.
    """
    lo = torch.tensor([a for a, _ in ranges], device=index.device)
    size = torch.tensor([b - a for a, b in ranges], device=index.device)
    if len(ranges) == 1:
        lo, size = lo[0], size[0]
    drawn = mix(index.cpu().numpy().astype(np.uint64).ravel(), seed) >> np.uint64(33)
    shift = torch.from_numpy(drawn.astype(np.int64)).reshape(index.shape).to(index.device)
    return lo + (index - lo + 1 + shift % (size - 1).clamp_min(1)) % size
