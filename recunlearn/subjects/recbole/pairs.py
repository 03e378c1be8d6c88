"""Columns of a grid of users and items that are computed once per user and once per item.

A model that scores pairs repeats the same work for every pair: look-ups, and the part of a linear layer that
reads the user or the item alone. :class:`PairColumn` is a tensor of ``U * I`` rows that remembers what each
row depends on. Operations listed in ``_RULES`` keep that knowledge (``W [u; i] = W_u u + W_i i``); every
other operation sees an ordinary tensor. Nothing here knows a model.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class PairColumn(Tensor):
    """``[U * I, ...]`` rows of a grid, as parts that broadcast to ``[U, I, ...]``.

    Args:
        parts: tensors ``[U or 1, I or 1, ...]``; several are joined along their last axis.
        grid: ``(U, I)``.
    """

    parts: list[Tensor]
    grid: tuple[int, int]

    @staticmethod
    def __new__(cls, parts: list[Tensor], grid: tuple[int, int]) -> "PairColumn":  # noqa: D102
        tail = list(parts[0].shape[2:])
        if tail:
            tail[-1] = sum(p.shape[-1] for p in parts)
        rows = grid[0] * grid[1]
        return Tensor._make_wrapper_subclass(  # type: ignore[attr-defined, no-any-return]
            cls, (rows, *tail), dtype=parts[0].dtype, device=parts[0].device
        )

    def __init__(self, parts: list[Tensor], grid: tuple[int, int]) -> None:
        """Keep the parts; the shape was set by ``__new__``."""
        self.parts, self.grid = parts, grid

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Apply the rule of ``func``, or ``func`` itself to ordinary tensors."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _SHAPE:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args)
        rule = _RULES.get(name)
        result = rule(func, args, kwargs) if rule else NotImplemented
        return func(*_dense(args), **_dense(kwargs)) if result is NotImplemented else result

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Serve what bypasses ``__torch_function__``."""
        return func(*_dense(args), **_dense(kwargs or {}))

    def dense(self) -> Tensor:
        """Return the ordinary tensor ``[U * I, ...]``."""
        wide = [p.expand(*self.grid, *p.shape[2:]) for p in self.parts]
        whole = wide[0] if len(wide) == 1 else torch.cat(wide, -1)
        return whole.reshape(self.grid[0] * self.grid[1], *whole.shape[2:])


def dense(value: Tensor) -> Tensor:
    """Return an ordinary tensor for either kind."""
    return value.dense() if isinstance(value, PairColumn) else value


def _dense(value: Any) -> Any:
    if isinstance(value, PairColumn):
        return value.dense()
    if isinstance(value, list | tuple):
        return type(value)(_dense(v) for v in value)
    if isinstance(value, dict):
        return {k: _dense(v) for k, v in value.items()}
    return value


def _single(value: Any) -> bool:
    return isinstance(value, PairColumn) and len(value.parts) == 1


def _embedding(func: Any, args: Any, kwargs: Any) -> Any:
    index, weight = args[0], args[1]
    if not _single(index) or index.dim() != 1:
        return NotImplemented
    return PairColumn([functional.embedding(index.parts[0], weight)], index.grid)


def _elementwise(func: Any, args: Any, kwargs: Any) -> Any:
    x = args[0]
    if not isinstance(x, PairColumn) or kwargs.get("training"):
        return NotImplemented
    return PairColumn([func(p, *args[1:], **kwargs) for p in x.parts], x.grid)


def _cat(func: Any, args: Any, kwargs: Any) -> Any:
    columns, axis = args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
    if axis not in (1, -1) or any(c.dim() != 2 for c in columns):
        return NotImplemented
    grid = next(c.grid for c in columns if isinstance(c, PairColumn))
    parts: list[Tensor] = []
    for c in columns:
        parts += c.parts if isinstance(c, PairColumn) else [c.view(*grid, -1)]
    return PairColumn(parts, grid)


def _linear(func: Any, args: Any, kwargs: Any) -> Any:
    x, weight = args[0], args[1]
    bias = args[2] if len(args) > 2 else kwargs.get("bias")
    if not isinstance(x, PairColumn) or x.dim() != 2:
        return NotImplemented
    slices = weight.split([p.shape[-1] for p in x.parts], 1)
    terms = sorted(zip(x.parts, slices, strict=True), key=lambda t: t[0].shape[0] * t[0].shape[1])
    total = functional.linear(*terms[0], bias)
    for part, columns in terms[1:]:
        total = _broadcast(torch.add, total, functional.linear(part, columns))
    return PairColumn([total], x.grid)


def _binary(func: Any, args: Any, kwargs: Any) -> Any:
    a, b = args[0], args[1]
    if kwargs or not (_single(a) and _single(b)) or a.dim() != b.dim():
        return NotImplemented
    return PairColumn([_broadcast(func, a.parts[0], b.parts[0])], a.grid)


def _broadcast(func: Any, a: Tensor, b: Tensor) -> Tensor:
    """``func`` of two parts into a contiguous result: torch's own strides would force a copy later."""
    if a.shape[:2] == b.shape[:2] or a.dim() != b.dim() or func not in _OUT:
        return func(a, b)  # type: ignore[no-any-return]
    shape = [max(i, j) for i, j in zip(a.shape, b.shape, strict=True)]
    out = torch.empty(shape, dtype=torch.result_type(a, b), device=a.device)
    return _OUT[func](a, b, out=out)  # type: ignore[no-any-return]


_SHAPE = {"__get__", "dim", "size", "numel", "__len__"}
_OUT: dict[Any, Callable[..., Tensor]] = {
    torch.add: torch.add, Tensor.add: torch.add, Tensor.__add__: torch.add,
    torch.mul: torch.mul, Tensor.mul: torch.mul, Tensor.__mul__: torch.mul,
    torch.sub: torch.sub, Tensor.sub: torch.sub, Tensor.__sub__: torch.sub,
}  # fmt: skip
_RULES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "embedding": _embedding,
    "cat": _cat,
    "linear": _linear,
    **dict.fromkeys(("relu", "sigmoid", "tanh", "dropout", "leaky_relu"), _elementwise),
    **dict.fromkeys(("mul", "add", "sub"), _binary),
}
