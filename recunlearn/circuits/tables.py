"""Tables: what a forward pass computes from the parameters alone, and how to read single rows of it.

Graph models propagate whole tables and then take the rows of a batch. A gradient with respect to a table is
not per sample; one with respect to its rows is (:mod:`recunlearn.circuits.table_rows`). What is computed here
is remembered: later passes do not propagate again.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from recunlearn.circuits.input_rows import InputRows
from recunlearn.circuits.table_rows import Made, Reader, Rows


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
        self._attributes = list(_tensors_of(model))
        self._fixed = {id(t) for t in self._attributes}
        self.clear()

    def clear(self) -> None:
        """Forget what was computed: the parameters may have changed."""
        self._alive: list[Any] = []  # ids are keys, so what they stand for must not die
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
        return Rows(self._made, self.slice, read).of(table, 0, len(table))

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


__all__ = ["Tables"]
