"""Meet the components of a forward pass: module outputs by hooks, look-ups and products by a mode."""

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from recunlearn.circuits.field_pairs import is_pairwise, pair_products
from recunlearn.circuits.input_rows import InputRows, Scatter
from recunlearn.circuits.tables import Tables

_FUNCTIONS = "mul multiply matmul bmm mm mv dot einsum baddbmm scaled_dot_product_attention stack"
_OPERATORS = "__mul__ __rmul__ __matmul__ __rmatmul__"
PRODUCTS = frozenset([*_FUNCTIONS.split(), *_OPERATORS.split()])
"""Names of the torch functions whose result can be an interaction (``stack``: of many pairs of fields)."""
READS = frozenset({"embedding", "__getitem__", "index_select"})
"""Names of the torch functions that read rows of a table."""
GATHERED = "rows"
"""Name of the product that stands for rows of a computed table, put together from several look-ups."""

OnLookup = Callable[[int, Tensor, Tensor | InputRows, Callable[[], Tensor]], Tensor]
OnProduct = Callable[[int, str, list[Tensor], Tensor], Tensor]
OnModule = Callable[..., Tensor]
"""Called with path, number of the call, output, and what is to be kept beside it: the input of a machine left
whole, or of a layer over heads."""


class Meeting(TorchFunctionMode):
    """Counts embedding look-ups and products and lets the callbacks replace their results.

    ``computed`` tells whether the pass read a computed table or input rows.
    """

    def __init__(self, on_lookup: OnLookup, on_product: OnProduct, tables: Tables, direct: bool) -> None:
        super().__init__()
        self.on_lookup, self.on_product, self.tables, self.direct = on_lookup, on_product, tables, direct
        self.lookups = self.products = -1
        self.computed = False
        self.gathered: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = {}
        self.scatter = Scatter()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if self.direct:
            return self._directly(name, func, args, kwargs)
        known, result = self.tables.remembered(func, args, kwargs)
        if known:
            self.computed |= name in PRODUCTS or name in READS
            return result
        read = _gather(func, args, kwargs)
        if read is not None and self.tables.is_table(read[0]):
            return self._rows(*read, lambda: func(*args, **kwargs))
        if name == "index_put_" and (scattered := self.scatter.rows(*args[:3])) is not None:
            return self._input(args[0], *scattered)
        result = func(*args, **kwargs)
        if name in PRODUCTS:
            return self._product(name, _tensors(args), result)
        if read is not None and self.tables.is_fixed(read[0]):
            self.scatter.take(result, *read)
        self.scatter.follow(name, args, result)
        return result

    def _directly(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Without computed tables and input rows only products and rows of parameters count."""
        if name in READS and (read := _gather(func, args, kwargs)) and id(read[0]) in self.tables.parameters:
            return self._lookup(read[1], read[0], lambda: func(*args, **kwargs))
        result = func(*args, **kwargs)
        return self._product(name, _tensors(args), result) if name in PRODUCTS else result

    def _input(self, target: Tensor, table: InputRows, index: Tensor) -> Tensor:
        """Rows of all items are a look-up; whoever holds ``target`` reads the result of the callback."""
        self.computed = True
        table = self.tables.input_rows(table)
        return target.copy_(self._lookup(index, table, lambda: table[index]))

    def _product(self, name: str, operands: list[Tensor], result: Tensor) -> Tensor:
        self.products += 1
        return self.on_product(self.products, name, operands, result)

    def _lookup(self, index: Tensor, weight: Tensor | InputRows, compute: Callable[[], Tensor]) -> Tensor:
        self.lookups += 1
        return self.on_lookup(self.lookups, index, weight, compute)

    def _rows(self, table: Tensor, index: Tensor, compute: Callable[[], Tensor]) -> Tensor:
        """Rows of a parameter are one look-up; those of a computed table are made of several."""
        if self.tables.origin(table) is None:
            return self._lookup(index, table, compute)
        self.computed = True
        key = (id(table), *address(index))
        if key not in self.gathered:
            found: list[Tensor] = []

            def read(leaf: Tensor) -> Tensor:
                found.append(self._lookup(index, leaf, lambda: leaf[index]))
                return found[-1]

            rows = self.tables.rows(table, read)
            if not any(rows is f for f in found):
                rows = self._product(GATHERED, found, rows)
            self.gathered[key] = rows, index
        return self.gathered[key][0]


def address(index: Tensor) -> tuple[int, ...]:
    """Where an index lies in memory: equal for two views of the same numbers."""
    return (index.data_ptr(), *index.shape, *index.stride())


def _gather(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor] | None:
    """``(table, index)`` where a call reads rows of its first or second argument."""
    if func is functional.embedding:
        index = args[0] if args else kwargs["input"]
        table = args[1] if len(args) > 1 else kwargs["weight"]
    elif func is Tensor.__getitem__:
        table, index = args
    elif func is torch.index_select or func is Tensor.index_select:
        table, index = args[0], args[2] if len(args) > 2 else kwargs.get("index")
        if kwargs.get("dim", args[1] if len(args) > 1 else None) != 0:
            return None
    else:
        return None
    if not isinstance(index, Tensor) or index.is_floating_point() or index.dtype == torch.bool:
        return None
    return table, index


def _tensors(args: tuple[Any, ...]) -> list[Tensor]:
    found: list[Tensor] = []
    for a in args:
        if isinstance(a, Tensor):
            found.append(a)
        elif isinstance(a, (list, tuple)):
            found += [t for t in a if isinstance(t, Tensor)]
    return found


@contextmanager
def intercepted(
    modules: dict[str, nn.Module],
    on_lookup: OnLookup,
    on_product: OnProduct,
    on_module: OnModule,
    tables: Tables,
    pairs: Mapping[str, int] | None = None,
    *,
    direct: bool = False,
    whole: bool = False,
    heads: Container[str] = (),
) -> Iterator["Meeting"]:
    """Run a forward pass with the three callbacks in place.

    Args:
        modules: those whose outputs are met, by path.
        tables: what is known to depend on the parameters alone.
        pairs: factorisation machines among the modules -> number of their fields: met is what
            :func:`recunlearn.circuits.field_pairs.pair_products` makes of their input.
        direct: an earlier pass met no computed table and no input rows: they are not looked for.
        whole: leave factorisation machines whole; their input is handed over beside the output (all pairs
            have one gradient, that of their sum).
        heads: modules whose input is handed over beside the output.
    """
    calls: Counter[str] = Counter()
    fields = pairs or {}

    def hook(name: str) -> Any:
        def after(_module: nn.Module, inputs: Any, output: Any) -> Any:
            call = calls[name]
            calls[name] += 1
            if name in fields and is_pairwise(inputs[0], output, fields[name]):
                if whole:
                    return on_module(name, call, output, inputs[0].detach())
                return on_module(name, call, pair_products(inputs[0])).sum(1)
            if name in heads:
                return on_module(name, call, output, inputs[0].detach())
            if isinstance(output, Tensor):
                return on_module(name, call, output)
            if isinstance(output, tuple) and output and isinstance(output[0], Tensor):
                return (on_module(name, call, output[0]), *output[1:])
            return output

        return after

    with ExitStack() as stack:
        for name, module in modules.items():
            handle = module.register_forward_hook(hook(name))
            stack.callback(handle.remove)
        if not direct:
            stack.enter_context(tables.whole_forward())
        yield stack.enter_context(Meeting(on_lookup, on_product, tables, direct))


@contextmanager
def frozen(model: nn.Module) -> Iterator[nn.Module]:
    """Put ``model`` in eval mode without parameter gradients, and give both back afterwards."""
    wanted = [(p, p.requires_grad) for p in model.parameters()]
    modes = [(m, m.training) for m in model.modules()]
    try:
        model.eval()
        for p, _ in wanted:
            p.requires_grad_(False)
        with torch.enable_grad():
            yield model
    finally:
        for p, flag in wanted:
            p.requires_grad_(flag)
        for m, flag in modes:
            m.training = flag
