"""Find the components of a model once, on a tiny batch, without a rule per model.

A component is the output of a leaf module (elementwise activations and dropout excepted), an embedding
look-up, or a product of two activations that stem from different components. Parents are read off
autograd's own graph, so concatenation, skips and post-norm blocks need no assumption.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from torch import Tensor, nn

from recunlearn.circuits.input_rows import InputRows
from recunlearn.circuits.interception import address, frozen, intercepted
from recunlearn.circuits.linearity import is_affine
from recunlearn.circuits.plan import Component, ComponentPlan, Kind, Layout, labels_for
from recunlearn.circuits.tables import Tables
from recunlearn.foundation.errors import TraceError
from recunlearn.subjects.contract import COMPUTED, Batch, PlanHints

Metric = Callable[[nn.Module, Batch], Tensor]
MINIMUM_EDGES = 100
DEFAULT_GROUPS = 32
LONGEST_NAME = 60
SAMPLES = 7


def discover(
    model: nn.Module, metric: Metric, batch: Batch, hints: PlanHints, groups: int | None = None
) -> ComponentPlan:
    """Trace one forward pass and return its plan.

    Args:
        model: any module; brought to eval mode and back.
        metric: ``metric(model, batch) -> [B]``, the value that edges explain.
        batch: a few samples (at least 2).
        hints: names of fields, row ranges, padding.
        groups: groups of each component; None: 32, doubled until a circuit has 100 edges or every unit
            is its own group.

    Raises:
        TraceError: no embedding look-up feeds the metric, or the pass cannot be cut.
    """
    search, value = _searched(model, metric, batch, hints)
    _check(value)
    search.settle_affine()
    outputs = search.ancestors(value) if value.requires_grad else ()
    if not outputs:
        raise TraceError(
            f"{type(model).__name__} cannot be traced: its score does not depend on any embedding look-up "
            "(models that read whole tables or input rows are not supported). Choose another model."
        )
    return _with_groups(search, outputs, groups)


def _searched(model: nn.Module, metric: Metric, batch: Batch, hints: PlanHints) -> tuple["_Search", Tensor]:
    """Run the metric once; a model that writes into its activations gets copies of the leaves."""
    for clones in (False, True):
        search = _Search(model, hints, batch, clones)
        try:
            with frozen(model), search.watching():
                return search, metric(model, batch)
        except RuntimeError as error:
            if clones or "in-place" not in str(error):
                raise TraceError(
                    f"{type(model).__name__} cannot be traced: {str(error).splitlines()[0]} "
                    "Choose another model."
                ) from None
    raise AssertionError("unreachable")


def leaf_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Modules whose outputs are components: leaves with parameters, and custom leaves without."""
    return {
        name: m
        for name, m in model.named_modules()
        if name
        and not isinstance(m, nn.Embedding)
        and not any(True for _ in m.children())
        and (any(True for _ in m.parameters()) or not type(m).__module__.startswith("torch.nn"))
        and not isinstance(m, nn.modules.loss._Loss)
    }


def _check(value: Tensor) -> None:
    """A metric has one finite value a sample."""
    if value.dim() != 1:
        raise TraceError(f"The metric must have shape [B], but got {tuple(value.shape)}.")
    if not torch.isfinite(value).all():
        raise TraceError("The model's scores are not finite numbers. Check its weights and its training.")


class _Search:
    """Collects components while one forward pass runs."""

    def __init__(self, model: nn.Module, hints: PlanHints, batch: Batch, clones: bool) -> None:
        self.clones = clones
        self.modules = leaf_modules(model)
        self.hints, self.samples = hints, len(batch)
        self.columns = {address(v): name for name, v in batch.columns.items()}
        self.tables = Tables(model)
        self.names = {id(m.weight): n for n, m in model.named_modules() if isinstance(m, nn.Embedding)}
        self.leaves: dict[int, int] = {}
        self.kept: list[Tensor] = []
        self.found: list[Component] = []
        self.aliases: dict[int, int] = {}
        self.rows: dict[tuple[int, ...], int] = {}
        self.indices: list[Tensor] = []

    def watching(self) -> AbstractContextManager[None]:
        """Meet the components of one forward pass."""
        return intercepted(self.modules, self.on_lookup, self.on_product, self.on_module, self.tables)

    def on_lookup(
        self, call: int, index: Tensor, weight: Tensor | InputRows, compute: Callable[[], Tensor]
    ) -> Tensor:
        if not len(index.shape) or len(index) != self.samples:
            return compute()
        key = (id(weight), *address(index))
        if key in self.rows:
            self.aliases[call] = self.rows[key]
            return self._handed_out(self.kept[self.rows[key]])
        table = self._table(weight, index)
        self.rows[key] = len(self.found)
        self.indices.append(index)  # alive, so that no other index can take its address
        return self._cut("source", table, "", call, compute(), table)

    def on_product(self, call: int, name: str, operands: list[Tensor], result: Tensor) -> Tensor:
        grads = [t for t in operands if t.requires_grad]
        if len(grads) < 2 or not result.requires_grad or not self._per_sample(result):
            return result
        origins = [self.ancestors(t) for t in grads]
        if all(o == origins[0] for o in origins):
            return result
        inside = ", ".join(" + ".join(self.found[i].name for i in o) for o in origins)
        title = f"{name.strip('_')}({inside})"
        return self._cut(
            "product", title if len(title) <= LONGEST_NAME else name.strip("_"), "", call, result
        )

    def on_module(self, name: str, call: int, output: Tensor) -> Tensor:
        if not output.requires_grad or id(output) in self.leaves or not self._per_sample(output):
            return output
        return self._cut("module", name, name, call, output)

    def _per_sample(self, tensor: Tensor) -> bool:
        """Whether the first axis is that of the samples; other tensors are not cut."""
        return tensor.dim() > 0 and len(tensor) == self.samples and not tensor.is_complex()

    def _table(self, weight: Tensor | InputRows, index: Tensor) -> str:
        """Path of an embedding table; computed ones are named after the column that reads them."""
        path = self.names.get(id(weight)) or self.tables.parameters.get(id(weight))
        if path is not None:
            return path
        column = self.columns.get(address(index), "rows").removesuffix("_id")
        if isinstance(weight, InputRows):
            return f"{COMPUTED}{column}_history"
        return f"{COMPUTED}{column}_layer_{self.tables.propagations(weight)}"

    def ancestors(self, tensor: Tensor) -> tuple[int, ...]:
        """Components whose leaves ``tensor`` reads, nearest cut first met."""
        if id(tensor) in self.leaves:
            return (self.leaves[id(tensor)],)
        seen, found, stack = set(), set(), [tensor.grad_fn]
        while stack:
            node = stack.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            leaf = getattr(node, "variable", None)
            if leaf is not None and id(leaf) in self.leaves:
                found.add(self.leaves[id(leaf)])
            stack += [n for n, _ in node.next_functions]
        return tuple(sorted(found))

    def settle_affine(self) -> None:
        """Keep ``affine`` where every parent lies on a line too, and the module runs once (it is skipped)."""
        calls = Counter(c.place for c in self.found if c.kind == "module")
        for i, c in enumerate(self.found):
            straight = all(self.found[u].kind == "source" or self.found[u].affine for u in c.parents)
            self.found[i] = replace(c, affine=c.affine and straight and calls[c.place] == 1)

    def _cut(self, kind: Kind, name: str, place: str, call: int, tensor: Tensor, table: str = "") -> Tensor:
        parents = self.ancestors(tensor) if tensor.requires_grad else ()
        leaf = tensor.detach().requires_grad_()
        shape = tuple(tensor.shape[1:])
        self.leaves[id(leaf)] = len(self.found)
        self.kept.append(leaf)
        name, layout = self._unique(name), self._layout(shape, table)
        affine = kind == "module" and is_affine(tensor)
        self.found.append(Component(name, kind, place, call, shape, layout, ("",), parents, table, affine))
        return self._handed_out(leaf)

    def _handed_out(self, leaf: Tensor) -> Tensor:
        return leaf.clone() if self.clones else leaf

    def _unique(self, name: str) -> str:
        names = {c.name for c in self.found}
        number, unique = 2, name
        while unique in names:
            unique, number = f"{name}#{number}", number + 1
        return unique

    def _layout(self, shape: tuple[int, ...], table: str) -> Layout:
        if table in self.hints.fields and len(shape) == 2 and shape[0] == len(self.hints.fields[table]):
            return "fields"
        return "vector" if len(shape) < 2 else "positions" if len(shape) == 2 else "heads"


def _with_groups(search: _Search, outputs: tuple[int, ...], groups: int | None) -> ComponentPlan:
    """Split the components; without a number, finer until a circuit has enough edges."""
    k = groups or DEFAULT_GROUPS
    largest = max((c.shape[-1] for c in search.found if c.shape), default=1)
    while True:
        components = tuple(
            Component(
                **{
                    **vars(c),
                    "labels": labels_for(c.shape, c.layout, k, search.hints.fields.get(c.table, ())),
                }
            )
            for c in search.found
        )
        plan = ComponentPlan(components, outputs, dict(search.aliases), search.clones)
        if groups is not None or len(plan.edges) >= MINIMUM_EDGES or k >= largest:
            return plan
        k *= 2


def tiny(batch: Batch) -> Batch:
    """A few samples, enough to trace a forward pass: a number that no other axis is likely to have."""
    return batch[:SAMPLES] if len(batch) > 1 else batch.tile(2)
