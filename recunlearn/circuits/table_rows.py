"""Rows of a computed table as a function of rows of the tables that it was made of.

A row is pushed through the row-wise operations that made the table (stack, mean, split, linear ...) down
to tables that are none of that: parameters, and outputs of a propagation. Those rows are look-ups like any
other.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

Reader = Callable[[Tensor], Tensor]
"""Reads the batch's rows of a table that no row-wise operation made: ``[n, ...] -> [B, ...]``."""


@dataclass(frozen=True)
class Made:
    """How a tensor came about: ``func(*args, **kwargs)``, its ``part``-th output."""

    func: Any
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    part: int | None


class Rows:
    """One gather, pushed down to tables that no row-wise operation made; shared parts are read once.

    Args:
        made: how each computed table came about, by id.
        part_of: ``part_of(table, start, end)`` is ``table[start:end]``, the same object each time.
        read: reads the rows of a table.
    """

    def __init__(self, made: Mapping[int, Made], part_of: Callable[..., Tensor], read: Reader) -> None:
        self.made, self.part_of, self.read = made, part_of, read
        self.done: dict[tuple[int, int, int], Tensor] = {}

    def of(self, table: Tensor, start: int, end: int) -> Tensor:
        """Rows ``start + index`` of ``table``, known to lie below ``end``."""
        key = (id(table), start, end)
        if key not in self.done:
            made = self.made.get(id(table))
            found = None if made is None else self._through(made, table, start, end)
            self.done[key] = self.read(self.part_of(table, start, end)) if found is None else found
        return self.done[key]

    def _through(self, made: Made, table: Tensor, start: int, end: int) -> Tensor | None:
        """The same rows by the operation that made the table; None where it mixes rows."""
        if made.part is not None:
            return self._part(made, start, end)
        if made.name == "__getitem__":
            return self._item(made.args[0], made.args[1], start, end)
        if made.name in _JOINS:
            return self._joined(made, table, start, end)
        if made.name in _BINARY:
            return self._binary(made, table, start, end)
        return self._again(made, self.of(made.args[0], start, end)) if _is_by_row(made, table) else None

    def _joined(self, made: Made, table: Tensor, start: int, end: int) -> Tensor | None:
        if _axis(made, 1, 0, table.dim()) > 0:
            return self._again(made, [self.of(t, start, end) for t in made.args[0]])
        return None if made.name == "stack" else self._piece(made.args[0], start, end)

    def _again(self, made: Made, first: Any) -> Tensor:
        out: Tensor = made.func(first, *made.args[1:], **made.kwargs)
        return out

    def _binary(self, made: Made, table: Tensor, start: int, end: int) -> Tensor | None:
        if table.dim() < 2 or len(made.args) != 2:
            return None
        sides = [
            self.of(a, start, end)
            if isinstance(a, Tensor) and a.dim() == table.dim() and len(a) == len(table)
            else a
            for a in made.args
        ]
        out: Tensor = made.func(*sides, **made.kwargs)
        return out

    def _piece(self, parts: Any, start: int, end: int) -> Tensor | None:
        """Rows of a concatenation that lie in one of its parts."""
        at = 0
        for part in parts:
            if at <= start and end <= at + len(part):
                return self.of(part, start - at, end - at)
            at += len(part)
        return None

    def _part(self, made: Made, start: int, end: int) -> Tensor | None:
        """Rows of one output of split or chunk."""
        if made.name not in ("split", "chunk", "split_with_sizes") or made.part is None:
            return None
        whole = made.args[0]
        if _axis(made, 2, 0, whole.dim()):
            return made.func(self.of(whole, start, end), *made.args[1:], **made.kwargs)[made.part]  # type: ignore[no-any-return]
        before = sum(len(p) for p in made.func(whole, *made.args[1:], **made.kwargs)[: made.part])
        return self.of(whole, start + before, end + before)

    def _item(self, whole: Tensor, index: Any, start: int, end: int) -> Tensor | None:
        first, *rest = index if isinstance(index, tuple) else (index,)
        if not isinstance(first, slice) or first.step not in (None, 1):
            return None
        before = first.indices(len(whole))[0]
        rows = self.of(whole, start + before, end + before)
        return rows[(slice(None), *rest)] if any(r != slice(None) for r in rest) else rows


_BY_ROW = frozenset(
    {
        "leaky_relu",
        "relu",
        "sigmoid",
        "tanh",
        "elu",
        "gelu",
        "selu",
        "softplus",
        "exp",
        "log",
        "neg",
        "clone",
        "contiguous",
        "dropout",
        "detach",
    }
)
_JOINS = frozenset({"cat", "concat", "stack"})
_REDUCE = frozenset({"mean", "sum", "unsqueeze", "squeeze", "normalize"})
_LINEAR = frozenset({"linear", "mm", "matmul", "__matmul__"})
_BINARY = frozenset(
    {
        "add",
        "sub",
        "mul",
        "div",
        "__add__",
        "__sub__",
        "__mul__",
        "__truediv__",
        "__radd__",
        "__rmul__",
        "true_divide",
    }
)


def _is_by_row(made: Made, table: Tensor) -> bool:
    """Whether row i of the result depends on row i of the first argument alone."""
    if made.name in _LINEAR:
        return made.args[0].dim() == made.args[1].dim() == 2 and len(made.args[0]) == len(table)
    return made.name in _BY_ROW or (made.name in _REDUCE and _reduces_rows_apart(made))


def _axis(made: Made, place: int, default: int, dims: int) -> int:
    given = made.kwargs.get("dim", made.args[place] if len(made.args) > place else default)
    return int(given) % dims


def _reduces_rows_apart(made: Made) -> bool:
    """Whether an operation along ``dim`` leaves the first axis alone."""
    whole: Tensor = made.args[0]
    if made.name == "normalize":
        given = made.kwargs.get("dim", made.args[2] if len(made.args) > 2 else 1)
    else:
        given = made.kwargs.get("dim", made.args[1] if len(made.args) > 1 else None)
    if given is None:
        return False
    extra = made.name == "unsqueeze"
    axes = given if isinstance(given, tuple | list) else (given,)
    return all(int(a) % (whole.dim() + extra) != 0 for a in axes)


__all__ = ["Made", "Reader", "Rows"]
