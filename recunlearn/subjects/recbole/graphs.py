"""Graph models: products with a constant symmetric adjacency in a fifth of the time, the same bit for bit."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn


def with_fast_graphs(model: nn.Module) -> nn.Module:
    """Replace the sparse adjacencies that a model holds beside its parameters; returns the same model.

    Only those on a processor whose product with a dense matrix adds up in the same order either way: sorted
    by row and column, and symmetric. Others stay.
    """
    for name, value in vars(model).items():
        if _is_adjacency(value):
            setattr(model, name, SymmetricGraph.of(value))
    return model


def _is_adjacency(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.layout != torch.sparse_coo or value.requires_grad:
        return False
    square = value.dim() == 2 and value.shape[0] == value.shape[1] and value.dense_dim() == 0
    if not square or value.device.type != "cpu" or value.dtype not in (torch.float32, torch.float64):
        return False
    indices, values = value._indices(), value._values()
    place = indices[0] * value.shape[1] + indices[1]
    mirrored = indices[1] * value.shape[1] + indices[0]
    if not bool((place[1:] > place[:-1]).all()):
        return False
    back = torch.argsort(mirrored)
    return torch.equal(mirrored[back], place) and torch.equal(values[back], values)


class SymmetricGraph(Tensor):
    """A sparse symmetric matrix whose product with a dense one takes rows as they lie (CSR), also backwards.

    As RecBole has it (COO), the product goes over single entries, and its gradient over those of the
    transpose; a row at a time adds the same numbers in the same order. Kernels for some widths of the dense
    matrix (4 to 24 columns here) do not, so every width is tried once, and left to COO where a bit differs.
    """

    rows: Tensor
    same: dict[int, bool]

    @staticmethod
    def of(matrix: Tensor) -> "SymmetricGraph":
        """Same matrix."""
        found: SymmetricGraph = Tensor._make_subclass(SymmetricGraph, matrix)
        with warnings.catch_warnings(), torch.sparse.check_sparse_tensor_invariants(enable=False):
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state", UserWarning)
            found.rows = matrix.coalesce().to_sparse_csr()
        found.same = {}
        return found

    def adds_alike(self, width: int) -> bool:
        """Whether both ways give the same bits for dense matrices of ``width`` columns."""
        if width not in self.same:
            size = self.rows.shape[1]
            tried = torch.arange(size * width, dtype=self.rows.dtype).sin().view(size, width)
            self.same[width] = torch.equal(torch.sparse.mm(self, tried), torch.sparse.mm(self.rows, tried))
        return self.same[width]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Take products of the graph, and leave all else to the matrix as it was."""
        with torch._C.DisableTorchFunctionSubclass():
            if func is torch.sparse.mm and not kwargs and _multiplies(args):
                return _Product.apply(args[0].rows, args[1])
            return func(*args, **(kwargs or {}))

    def __deepcopy__(self, memo: dict[int, Any]) -> "SymmetricGraph":
        """Itself: nobody writes to it."""
        return self


def _multiplies(args: tuple[Any, ...]) -> bool:
    """Whether arguments are a graph and a dense matrix of its numbers."""
    if len(args) != 2 or not isinstance(args[0], SymmetricGraph) or isinstance(args[1], SymmetricGraph):
        return False
    graph, dense = args
    if not isinstance(dense, Tensor) or dense.layout != torch.strided or dense.dtype != graph.dtype:
        return False
    return graph.adds_alike(dense.shape[1])


class _Product(torch.autograd.Function):
    """Symmetric A times x; the gradient of x is A times that of the product."""

    @staticmethod
    def forward(rows: Tensor, dense: Tensor) -> Tensor:
        return torch.sparse.mm(rows, dense)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.rows = inputs[0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return None, _Product.apply(ctx.rows, gradient.contiguous())


__all__ = ["SymmetricGraph", "with_fast_graphs"]
