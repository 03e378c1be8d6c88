"""What lies between a tensor and the leaves that it was computed from, read off autograd's own graph."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

_MATRIX_PRODUCTS = ("Mm", "Bmm", "Addmm", "Baddbmm", "Mv")


@dataclass(frozen=True)
class Segment:
    """One piece of the forward pass.

    Args:
        parents: numbers of the leaves that it reads, ascending.
        weighted: those that it reads through a softmax.
        selected: places along axis 1 that it takes out one by one (fields, positions), ascending.
        mixes: it multiplies matrices.
    """

    parents: tuple[int, ...]
    weighted: frozenset[int]
    selected: tuple[int, ...]
    mixes: bool


def segment_of(tensor: Tensor, leaves: Mapping[int, int]) -> Segment:
    """Walk from ``tensor`` to the leaves; ``leaves``: id of a leaf -> its number."""
    if id(tensor) in leaves:
        return Segment((leaves[id(tensor)],), frozenset(), (), False)
    walk = _Walk(leaves)
    walk.visit(tensor.grad_fn)
    return Segment(
        tuple(sorted(walk.found)),
        frozenset(walk.weighted),
        tuple(sorted({i for i, node in walk.selects if walk.reaching.get(node)})),
        walk.mixes,
    )


class _Walk:
    """Depth first, without recursion: graphs of recurrent models are deep."""

    def __init__(self, leaves: Mapping[int, int]) -> None:
        self.leaves = leaves
        self.found: set[int] = set()
        self.weighted: set[int] = set()
        self.reaching: dict[Any, bool] = {}
        self.selects: list[tuple[int, Any]] = []
        self.mixes = False

    def visit(self, root: Any) -> None:
        """Collect the leaves below ``root``, first in any way, then through softmax nodes alone."""
        softmaxes: list[Any] = []
        for node in self._below(root):
            name = node.name().partition("Backward")[0]
            if name == "Softmax":
                softmaxes.append(node)
            self.mixes = self.mixes or name in _MATRIX_PRODUCTS
            if name == "Select" and node._saved_dim == 1:
                self.selects.append((node._saved_index, node))
        for node in softmaxes:
            self.weighted |= {i for n in self._below(node) if (i := self._leaf(n)) is not None}

    def _below(self, root: Any) -> list[Any]:
        """Every node from ``root`` on, each after those that it reads."""
        order: list[Any] = []
        stack = [(root, False)] if root is not None else []
        seen = set()
        while stack:
            node, done = stack.pop()
            inputs = [n for n, _ in node.next_functions if n is not None]
            if done:
                leaf = self._leaf(node)
                self.found |= set() if leaf is None else {leaf}
                self.reaching[node] = leaf is not None or any(self.reaching[n] for n in inputs)
                order.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack += [(n, False) for n in inputs]
        return order

    def _leaf(self, node: Any) -> int | None:
        variable = getattr(node, "variable", None)
        return None if variable is None else self.leaves.get(id(variable))


__all__ = ["Segment", "segment_of"]
