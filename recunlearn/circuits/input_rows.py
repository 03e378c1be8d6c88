"""Input rows: what an auto-encoder reads of a user, scattered from lists of items into a row of all items.

A model keeps padded lists (``ids`` and ``values``), takes those of the batch and writes them into zeros by
``index_put_``. Such a row is looked up like a row of an embedding table, in a table that is never
written out.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

_FLATTENS = frozenset({"flatten", "view", "reshape"})


@dataclass(frozen=True, eq=False)
class InputRows:
    """A table ``[n, width]`` of which only the filled places are stored.

    Args:
        ids: ``[n, H]`` int64, columns of the filled places.
        values: ``[n, H]`` what they hold; unused places hold 0.
        width: number of columns.
    """

    ids: Tensor
    values: Tensor
    width: int

    def __len__(self) -> int:
        """Return the number of rows n."""
        return len(self.ids)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Dense rows: ``[B]`` -> ``[B, width]``."""
        out = self.values.new_zeros(len(rows), self.width)
        return out.scatter_add_(1, self.ids[rows], self.values[rows])

    def mean(self, start: int, end: int) -> Tensor:
        """Mean of the rows ``start`` to ``end`` (exclusive): ``[width]``."""
        out = self.values.new_zeros(self.width)
        out.index_add_(0, self.ids[start:end].flatten(), self.values[start:end].flatten())
        return out / (end - start)

    def most_filled_first(self) -> tuple[int, ...]:
        """Columns by how often they are filled (items by popularity), ties by number."""
        return tuple(self.mean(0, len(self)).argsort(descending=True, stable=True).tolist())


class Scatter:
    """Follows, within one pass, what is taken from fixed tensors by an index of the batch."""

    def __init__(self) -> None:
        self._taken: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def take(self, result: Tensor, fixed: Tensor, index: Tensor) -> None:
        """Note that ``result`` is ``fixed[index]``."""
        self._taken[id(result)] = (fixed, index, result)

    def follow(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        """Note a change of shape of something taken."""
        if name in _FLATTENS and args and id(args[0]) in self._taken:
            self.take(result, *self._taken[id(args[0])][:2])

    def rows(self, target: Tensor, places: Any, values: Any) -> tuple[InputRows, Tensor] | None:
        """``(table, index)`` where ``target.index_put_(places, values)`` fills rows of a table."""
        if target.dim() != 2 or target.requires_grad or not isinstance(places, tuple) or len(places) != 2:
            return None
        columns, filled = self._taken.get(id(places[1])), self._taken.get(id(values))
        if columns is None or filled is None or columns[1].data_ptr() != filled[1].data_ptr():
            return None
        if columns[0].shape != filled[0].shape or len(columns[1]) != len(target):
            return None
        return InputRows(columns[0], filled[0].to(target.dtype), target.shape[1]), columns[1]


__all__ = ["InputRows", "Scatter"]
