"""Graph models: products with a constant adjacency in a fifth of the time, the same bit for bit."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn


def with_fast_graphs(model: nn.Module) -> nn.Module:
    """Replace the sparse adjacencies that a model holds beside its parameters; returns the same model."""
    for name, value in vars(model).items():
        if _is_adjacency(value):
            setattr(model, name, Graph.of(value))
    return model


def _is_adjacency(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.layout != torch.sparse_coo or value.requires_grad:
        return False
    square = value.dim() == 2 and value.shape[0] == value.shape[1] and value.dense_dim() == 0
    return square and value.device.type == "cpu" and value.dtype in (torch.float32, torch.float64)


class Graph(Tensor):
    """A sparse square matrix whose product with a dense one takes rows as they lie (CSR), also backwards.

    As RecBole has it (COO), the product goes over single entries, and its gradient over those of the
    transpose; a row at a time adds the same numbers in the same order, where each row (``rows``) and each
    column (``columns``) keeps its entries in the order that they had. Kernels for some widths of the dense
    matrix (4 to 24 columns here) do not, so every width is tried once, and left to COO where a bit differs.
    """

    rows: Tensor
    columns: Tensor
    same: dict[int, bool]

    @staticmethod
    def of(matrix: Tensor) -> "Graph":
        """Same matrix."""
        found: Graph = Tensor._make_subclass(Graph, matrix)
        (down, across), values = matrix._indices(), matrix._values()
        found.rows, found.columns = (
            _by_rows(*places, values, len(matrix)) for places in ((down, across), (across, down))
        )
        if _equal(found.rows, found.columns):
            found.columns = found.rows  # symmetric: kept once
        found.same = {}
        return found

    def adds_alike(self, width: int) -> bool:
        """Whether both ways give the same bits for dense matrices of ``width`` columns."""
        if width not in self.same:
            size = self.rows.shape[1]
            tried = torch.arange(size * width, dtype=self.rows.dtype).sin().view(size, width)
            pairs: list[tuple[Tensor, Tensor]] = [(self, self.rows)]
            if self.columns is not self.rows:
                pairs.append((self.t(), self.columns))
            self.same[width] = all(
                torch.equal(torch.sparse.mm(a, tried), torch.sparse.mm(b, tried)) for a, b in pairs
            )
        return self.same[width]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Take products of the graph, and leave all else to the matrix as it was."""
        with torch._C.DisableTorchFunctionSubclass():
            if func is torch.sparse.mm and not kwargs and _multiplies(args):
                return _Product.apply(args[0].rows, args[0].columns, args[1])
            return func(*args, **(kwargs or {}))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Graph":
        """Itself: nobody writes to it."""
        return self


def _multiplies(args: tuple[Any, ...]) -> bool:
    """Whether arguments are a graph and a dense matrix of its numbers."""
    if len(args) != 2 or not isinstance(args[0], Graph) or isinstance(args[1], Graph):
        return False
    graph, dense = args
    if not isinstance(dense, Tensor) or dense.layout != torch.strided or dense.dtype != graph.dtype:
        return False
    return graph.adds_alike(dense.shape[1])


class _Product(torch.autograd.Function):
    """A times x; the gradient of x is the transpose of A times that of the product."""

    @staticmethod
    def forward(rows: Tensor, columns: Tensor, dense: Tensor) -> Tensor:
        return torch.sparse.mm(rows, dense)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.rows, ctx.columns, _ = inputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return None, None, _Product.apply(ctx.columns, ctx.rows, gradient.contiguous())


def _by_rows(down: Tensor, across: Tensor, values: Tensor, size: int) -> Tensor:
    """Entries by rows (CSR), those of a row in the order in which they are given, twofold ones too."""
    order = torch.argsort(down, stable=True)
    starts = torch.bincount(down, minlength=size).cumsum(0)
    with warnings.catch_warnings(), torch.sparse.check_sparse_tensor_invariants(enable=False):
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state", UserWarning)
        return torch.sparse_csr_tensor(
            nn.functional.pad(starts, (1, 0)), across[order], values[order], (size, size)
        )


def _equal(a: Tensor, b: Tensor) -> bool:
    parts = ("crow_indices", "col_indices", "values")
    return all(torch.equal(getattr(a, part)(), getattr(b, part)()) for part in parts)


__all__ = ["Graph", "with_fast_graphs"]
