"""Tables: what a forward pass computes from the parameters alone, and how to read single rows of it.

Graph models propagate whole tables and then take the rows of a batch. A gradient with respect to a table is
not per sample; one with respect to its rows is. So a row of a table is pushed through the row-wise operations
that made the table (stack, mean, split, linear, normalisation ...) down to tables that are none of that:
parameters and outputs of a propagation. Those rows are look-ups like any other.

Everything here is computed once and remembered: later passes do not propagate again.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from recunlearn.circuits.input_rows import InputRows

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


class Tables:
    """Remembers every result that depends on parameters and fixed tensors only.

    Args:
        model: its parameters, buffers and tensor attributes are fixed while this object is in use.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model, self._inside = model, False
        self.forwarded = False
        """Whether ``model.forward`` was taken as a computed table."""
        self.parameters = {id(p): name for name, p in model.named_parameters()}
        self._alive: list[Any] = list(_tensors_of(model))
        self._fixed = {id(t) for t in self._alive}
        self.clear()

    def clear(self) -> None:
        """Forget what was computed: the parameters may have changed."""
        self._made: dict[int, Made] = {}
        self._results: dict[Any, Any] = {}
        self._slices: dict[tuple[int, int, int], Tensor] = {}
        self._inputs: dict[tuple[int, int, int], InputRows] = {}

    def is_table(self, tensor: Any) -> bool:
        """Whether ``tensor`` is a parameter or computed from parameters alone."""
        return id(tensor) in self.parameters or id(tensor) in self._made

    def is_fixed(self, tensor: Any) -> bool:
        """Whether ``tensor`` is the same for every batch."""
        return self._inside or id(tensor) in self._fixed or self.is_table(tensor)

    def remembered(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """Compute ``func`` or remember its result; ``(False, None)`` where it depends on the batch."""
        tensors = list(_tensors((*args, *kwargs.values())))
        if not any(map(self.is_table, tensors)):
            return False, None
        name = getattr(func, "__name__", "")
        if _writes(name):
            self._forget(args[0])
            return False, None
        if not all(map(self.is_fixed, tensors)):
            return False, None
        key = _key((func, args, tuple(sorted(kwargs.items()))))
        if key is None:
            return False, None
        if key not in self._results:
            self._results[key] = result = func(*args, **kwargs)
            self._alive.append((args, kwargs))
            several = isinstance(result, tuple | list)
            for part, out in enumerate(result if several else [result]):
                if isinstance(out, Tensor) and id(out) not in self._fixed and not self.is_table(out):
                    self._made[id(out)] = Made(func, name, args, kwargs, part if several else None)
        return True, self._results[key]

    def _forget(self, tensor: Any) -> None:
        """A tensor that is written to is no table any more, nor will its origin be remembered."""
        made = self._made.pop(id(tensor), None)
        if made is not None:
            self._alive.append(tensor)
            self._results = {k: v for k, v in self._results.items() if v is not tensor}

    def rows(self, table: Tensor, read: Reader) -> Tensor:
        """Rows of ``table`` as a function of rows of the tables that ``read`` knows how to read."""
        return _Rows(self, read).of(table, 0, len(table))

    def slice(self, table: Tensor, start: int, end: int) -> Tensor:
        """``table[start:end]``, the same object each time."""
        if (start, end) == (0, len(table)):
            return table
        key = (id(table), start, end)
        if key not in self._slices:
            self._slices[key] = table[start:end]
            self._made[id(self._slices[key])] = Made(
                Tensor.__getitem__, "__getitem__", (table, slice(start, end)), {}, None
            )
        return self._slices[key]

    def input_rows(self, table: InputRows) -> InputRows:
        """The same table, the same object each time."""
        return self._inputs.setdefault((id(table.ids), id(table.values), table.width), table)

    @contextmanager
    def whole_forward(self) -> Iterator[None]:
        """Take what ``model.forward`` makes of fixed arguments (of none, mostly) as computed tables."""
        forward: Any = self._model.forward

        def fixed(*args: Any, **kwargs: Any) -> Any:
            if not all(isinstance(t, Tensor) and self.is_fixed(t) for t in _flat((*args, *kwargs.values()))):
                return forward(*args, **kwargs)
            self._inside = self.forwarded = True
            try:
                with torch.no_grad():
                    return forward(*args, **kwargs)
            finally:
                self._inside = False

        before = self._model.__dict__.get("forward")
        self._model.__dict__["forward"] = fixed
        try:
            yield
        finally:
            if before is None:
                del self._model.__dict__["forward"]
            else:
                self._model.__dict__["forward"] = before

    def origin(self, tensor: Tensor) -> Made | None:
        """How a table was computed; None for parameters."""
        return self._made.get(id(tensor))

    def propagations(self, tensor: Tensor) -> int:
        """Most products with a sparse matrix (graph layers) between the parameters and ``tensor``."""
        depths: dict[int, int] = {}

        def depth(t: Any) -> int:
            made = self._made.get(id(t))
            if made is None:
                return 0
            if id(t) not in depths:
                inner = max(map(depth, _tensors((*made.args, *made.kwargs.values()))), default=0)
                depths[id(t)] = inner + (any(a.is_sparse for a in _tensors(made.args)))
            return depths[id(t)]

        return depth(tensor)


class _Rows:
    """One gather, pushed down to tables that no row-wise operation made; shared parts are read once."""

    def __init__(self, tables: Tables, read: Reader) -> None:
        self.tables, self.read = tables, read
        self.done: dict[tuple[int, int, int], Tensor] = {}

    def of(self, table: Tensor, start: int, end: int) -> Tensor:
        """Rows ``start + index`` of ``table``, known to lie below ``end``."""
        key = (id(table), start, end)
        if key not in self.done:
            made = self.tables.origin(table)
            found = None if made is None else self._through(made, table, start, end)
            self.done[key] = self.read(self.tables.slice(table, start, end)) if found is None else found
        return self.done[key]

    def _through(self, made: Made, table: Tensor, start: int, end: int) -> Tensor | None:
        """The same rows by the operation that made the table; None where it mixes rows."""
        name, args = made.name, made.args
        if made.part is not None:
            return self._part(made, start, end)
        if name in ("cat", "concat") and _axis(made, 1, 0, table.dim()) == 0:
            return self._piece(args[0], start, end)
        if name == "__getitem__":
            return self._item(args[0], args[1], start, end)
        if name in ("cat", "concat", "stack") and _axis(made, 1, 0, table.dim()) > 0:
            parts = [self.of(t, start, end) for t in args[0]]
            return self._again(made, parts)
        if name in _BY_ROW or (name in _REDUCE and _reduces_rows_apart(made)):
            return self._again(made, self.of(args[0], start, end))
        if name in _LINEAR and args[0].dim() == 2 and len(args[0]) == len(table) and args[1].dim() == 2:
            return self._again(made, self.of(args[0], start, end))
        if name in _BINARY:
            return self._binary(made, table, start, end)
        return None

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


def _writes(name: str) -> bool:
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")


def _flat(values: Any) -> Iterator[Any]:
    for v in values:
        if isinstance(v, tuple | list):
            yield from _flat(v)
        else:
            yield v


def _tensors(values: Any) -> Iterator[Tensor]:
    for v in values:
        if isinstance(v, Tensor):
            yield v
        elif isinstance(v, tuple | list):
            yield from _tensors(v)


def _key(value: Any) -> Any:
    """Hashable stand-in for the arguments of a call; None where there is none."""
    if isinstance(value, Tensor):
        return ("tensor", id(value))
    if isinstance(value, slice):
        return ("slice", value.start, value.stop, value.step)
    if isinstance(value, tuple | list):
        parts = tuple(map(_key, value))
        return None if any(p is None for p in parts) else parts
    if value is None:
        return "None"
    try:
        hash(value)
    except TypeError:
        return None
    return None if isinstance(value, float) and math.isnan(value) else value


def _tensors_of(model: nn.Module) -> Iterator[Tensor]:
    """Parameters, buffers and plain tensor attributes of every module, also in lists."""
    yield from model.parameters()
    yield from model.buffers()
    for module in model.modules():
        yield from _tensors(vars(module).values())


__all__ = ["Made", "Reader", "Tables"]
