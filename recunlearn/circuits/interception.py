"""Meet the components of a forward pass: module outputs by hooks, look-ups and products by a mode."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_FUNCTIONS = "mul multiply matmul bmm mm mv dot einsum baddbmm scaled_dot_product_attention"
_OPERATORS = "__mul__ __rmul__ __matmul__ __rmatmul__"
PRODUCTS = frozenset([*_FUNCTIONS.split(), *_OPERATORS.split()])
"""Names of the torch functions whose result can be an interaction of two activations."""

OnLookup = Callable[[int, Tensor, Tensor, Callable[[], Tensor]], Tensor]
OnProduct = Callable[[int, str, list[Tensor], Tensor], Tensor]
OnModule = Callable[[str, int, Tensor], Tensor]


class _Mode(TorchFunctionMode):
    """Counts embedding look-ups and products and lets the callbacks replace their results."""

    def __init__(self, on_lookup: OnLookup, on_product: OnProduct) -> None:
        super().__init__()
        self.on_lookup, self.on_product = on_lookup, on_product
        self.lookups = self.products = -1

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is functional.embedding:
            self.lookups += 1
            index = args[0] if args else kwargs["input"]
            weight = args[1] if len(args) > 1 else kwargs["weight"]
            return self.on_lookup(self.lookups, index, weight, lambda: func(*args, **kwargs))
        if getattr(func, "__name__", "") in PRODUCTS:
            self.products += 1
            return self.on_product(self.products, func.__name__, _tensors(args), func(*args, **kwargs))
        return func(*args, **kwargs)


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
    modules: dict[str, nn.Module], on_lookup: OnLookup, on_product: OnProduct, on_module: OnModule
) -> Iterator[None]:
    """Run forward passes with the three callbacks in place; ``modules`` are those whose outputs are met."""
    calls: Counter[str] = Counter()

    def hook(name: str) -> Any:
        def after(_module: nn.Module, _inputs: Any, output: Any) -> Any:
            call = calls[name]
            calls[name] += 1
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
        stack.enter_context(_Mode(on_lookup, on_product))
        yield


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
