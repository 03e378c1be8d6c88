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

from recunlearn.circuits.checks import check_at_least_one, check_granularity, check_place
from recunlearn.circuits.field_pairs import pair_labels
from recunlearn.circuits.input_rows import InputRows
from recunlearn.circuits.interception import Meeting, address, frozen, intercepted
from recunlearn.circuits.linearity import is_affine
from recunlearn.circuits.naming import Seen, names_for
from recunlearn.circuits.plan import Component, ComponentPlan, Granularity, Kind, Layout, labels_for
from recunlearn.circuits.segments import Segment, segment_of
from recunlearn.circuits.subject import Metric, Traceable, traced_metric
from recunlearn.circuits.tables import Tables
from recunlearn.foundation.errors import TraceError, UsageError, is_memory_error
from recunlearn.subjects.contract import COMPUTED, Batch, PlanHints

MINIMUM_EDGES = 100
DEFAULT_GROUPS = 32
_NOTHING = Segment((), frozenset(), (), False)
SAMPLES = 7
"""Samples that a forward pass is traced on: a number that no other axis is likely to have."""


def discover(
    subject: Traceable,
    batch: Batch,
    *,
    groups: int | None = None,
    granularity: Granularity = "group",
    sinks: Granularity = "module",
) -> ComponentPlan:
    """Trace one forward pass and return its plan.

    Args:
        subject: a model with a metric; the model is brought to eval mode and back.
        batch: a few samples, at least 2; the first :data:`SAMPLES` are used.
        groups: groups of each component; None: 32, doubled until a circuit has 100 edges or every unit
            is its own group.
        granularity: what is apart in a source of edges.
        sinks: what is apart in a sink of edges; every part costs a backward segment of its own.

    Raises:
        TraceError: no embedding look-up feeds the metric, or the pass cannot be cut.
        UsageError: fewer than two samples, or an unknown granularity.
    """
    check_granularity(granularity=granularity, sinks=sinks)
    check_at_least_one(groups=groups)
    if len(batch) < 2:
        raise UsageError(f"A plan needs at least 2 samples to be found with, but got {len(batch)}.")
    model, some = subject.model, batch[:SAMPLES]
    check_place(model, some)
    try:
        hints = subject.hints()
    except RuntimeError as error:  # a subject may run its model to know them
        raise _untraceable(model, error) from None
    search, value = _searched(model, traced_metric(subject.log_likelihood, hints), some, hints)
    _check(value, len(some))
    search.settle_affine()
    end = segment_of(value, search.leaves)
    if not end.parents:
        raise TraceError(
            f"{type(model).__name__} cannot be traced: its score does not depend on any embedding look-up "
            "or input row. Choose another model."
        )
    search.settle_names(end)
    return _with_groups(search, end.parents, groups, granularity, sinks)


def _searched(model: nn.Module, metric: Metric, batch: Batch, hints: PlanHints) -> tuple["_Search", Tensor]:
    """Run the metric once; a model that writes into its activations gets copies of the leaves."""
    for clones in (False, True):
        search = _Search(model, hints, batch, clones)
        try:
            with frozen(model), search.watching() as meeting:
                value = metric(model, batch)
                search.direct = not (meeting.computed or search.tables.forwarded)
                return search, value
        except (RuntimeError, IndexError) as error:
            if clones or "in-place" not in str(error):
                raise _untraceable(model, error) from None
    raise AssertionError("unreachable")


def _untraceable(model: nn.Module, error: Exception) -> Exception:
    """Sentence for a model that fails by itself; the error itself where memory is short."""
    if is_memory_error(error):
        return error
    said = (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")
    return TraceError(f"{type(model).__name__} cannot be traced: {said}. Choose another model.")


def leaf_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Modules whose outputs are components: leaves with parameters, and custom leaves without.

    torch's own attention counts as a leaf: it takes the weights of its one child, which itself never runs.
    """
    return {
        name: m
        for name, m in model.named_modules()
        if name
        and not isinstance(m, nn.Embedding)
        and (not any(True for _ in m.children()) or isinstance(m, nn.MultiheadAttention))
        and (any(True for _ in m.parameters()) or not type(m).__module__.startswith("torch.nn"))
        and not isinstance(m, nn.modules.loss._Loss)
    }


def named_modules(model: nn.Module, hints: PlanHints) -> dict[str, nn.Module]:
    """Modules that the hints name as components, by path."""
    return {name: model.get_submodule(name) for name in hints.components}


def _check(value: Tensor, samples: int) -> None:
    """A metric has one finite value a sample."""
    if not isinstance(value, Tensor):
        raise TraceError(f"The metric must be a tensor of shape [B], but got {type(value).__name__}.")
    if value.dim() != 1 or len(value) != samples:
        raise TraceError(
            f"The metric must have shape [B], but got {tuple(value.shape)} for {samples} samples."
        )
    if not torch.isfinite(value).all():
        raise TraceError("The model's scores are not finite numbers. Check its weights and its training.")


class _Search:
    """Collects components while one forward pass runs."""

    def __init__(self, model: nn.Module, hints: PlanHints, batch: Batch, clones: bool) -> None:
        self.clones, self.direct = clones, False
        self.copies: list[tuple[int, Tensor]] = []
        self.named = bool(hints.components)
        self.modules = named_modules(model, hints) if self.named else leaf_modules(model)
        self.pairs = {name: len(hints.order) for name in hints.pairs if name in self.modules}
        self.hints, self.samples = hints, len(batch)
        self.columns = {address(v): name for name, v in batch.columns.items()}
        self.tables = Tables(model)
        self.names = {id(m.weight): n for n, m in model.named_modules() if isinstance(m, nn.Embedding)}
        self.leaves: dict[int, int] = {}
        self.kept: list[Tensor] = []
        self.found: list[Component] = []
        self.seen: list[Seen] = []
        self.pair_labels: dict[int, tuple[str, ...]] = {}
        self.aliases: dict[int, int] = {}
        self.rows: dict[tuple[int, ...], int] = {}
        self.indices: list[Tensor] = []

    def watching(self) -> AbstractContextManager[Meeting]:
        """Meet the components of one forward pass."""
        return intercepted(
            self.modules,
            self.on_lookup,
            self.on_product,
            self.on_module,
            self.tables,
            self.pairs,
            direct=self.named,
        )

    def on_lookup(
        self, call: int, index: Tensor, weight: Tensor | InputRows, compute: Callable[[], Tensor]
    ) -> Tensor:
        if not len(index.shape) or len(index) != self.samples:
            return compute()
        key = (id(weight), *address(index))
        if key in self.rows:
            self.aliases[call] = self.rows[key]
            return self._handed_out(self.kept[self.rows[key]])
        self.rows[key] = len(self.found)
        self.indices.append(index)  # alive, so that no other index can take its address
        column = self.columns.get(address(index), "")
        table = self._table(weight, column)
        layer = None
        if not isinstance(weight, InputRows) and self.tables.origin(weight) is not None:
            layer = self.tables.propagations(weight)
        seen = Seen("source", table, _NOTHING, column=column, layer=layer)
        leaf = self._cut("source", "", call, compute(), seen, table)
        if isinstance(weight, InputRows):
            self.found[-1] = replace(self.found[-1], order=weight.most_filled_first())
        return leaf

    def on_product(self, call: int, name: str, operands: list[Tensor], result: Tensor) -> Tensor:
        grads = [] if self.named else [t for t in operands if t.requires_grad]
        if len(grads) < 2 or not result.requires_grad or not self._per_sample(result):
            return result
        if name == "stack":
            return self._stacked_pairs(call, operands, result)
        factors = [segment_of(t, self.leaves) for t in grads]
        origins = tuple(f.parents for f in factors)
        if all(o == origins[0] for o in origins):
            return result
        weights = frozenset().union(*(f.weighted for f in factors))
        segment = segment_of(result, self.leaves)
        if self._pair(segment) or not self._own_rows(result, segment):
            return result
        seen = Seen("product", name.strip("_"), segment, operands=origins, weights=weights)
        return self._cut("product", "", call, result, seen)

    def _stacked_pairs(self, call: int, operands: list[Tensor], result: Tensor) -> Tensor:
        """Products of two fields each, stacked (FFM, FwFM), are one component with a group per pair."""
        pairs = [self._pair(segment_of(t, self.leaves)) for t in operands]
        segment = segment_of(result, self.leaves)
        if result.dim() != 3 or len(pairs) != result.shape[1] or not all(pairs):
            return result
        if not self._own_rows(result, segment):
            return result
        self.pair_labels[call] = tuple(pairs)
        leaf = self._cut("product", "", call, result, Seen("product", "fm", segment))
        self.found[-1] = replace(self.found[-1], layout="fields")
        return leaf

    def _pair(self, segment: Segment) -> str:
        """Label of the two fields that a segment takes out of the stacked ones, else ""."""
        chosen, order = segment.selected, self.hints.order
        return f".pair({order[chosen[0]]},{order[chosen[1]]})" if _are_two_of(chosen, order) else ""

    def on_module(self, name: str, call: int, output: Tensor) -> Tensor:
        if not output.requires_grad or id(output) in self.leaves or not self._per_sample(output):
            return output
        segment = segment_of(output, self.leaves)
        # Components that were named are known to have rows of their own: trying that costs 7 backward passes.
        if not self.named and not self._own_rows(output, segment):
            return output
        norm = "norm" in type(self.modules[name]).__name__.lower()
        unit = output.dim() < 3 and output.numel() == len(output)
        return self._cut("module", name, call, output, Seen("module", name, segment, norm=norm, unit=unit))

    def _per_sample(self, tensor: Tensor) -> bool:
        """Whether the first axis is that of the samples; other tensors are not cut."""
        return tensor.dim() > 0 and len(tensor) == self.samples and not tensor.is_complex()

    def _own_rows(self, tensor: Tensor, segment: Segment) -> bool:
        """Whether row b depends on sample b alone: packed sequences, for one, are sorted by length."""
        leaves = [self.kept[p] for p in segment.parents]
        uneven = torch.linspace(0.5, 1.5, tensor[0].numel(), dtype=tensor.dtype, device=tensor.device)
        for b in range(self.samples):
            only = torch.zeros_like(tensor)
            only[b] = uneven.view_as(tensor[b])
            for g in torch.autograd.grad(tensor, leaves, only, retain_graph=True, allow_unused=True):
                if g is not None and (g[:b].any() or g[b + 1 :].any()):
                    return False
        return True

    def _table(self, weight: Tensor | InputRows, column: str) -> str:
        """Path of an embedding table; computed ones are named after the column that reads them."""
        path = self.names.get(id(weight)) or self.tables.parameters.get(id(weight))
        if path is not None:
            return path
        kind = "input" if isinstance(weight, InputRows) else str(len(self.found))
        return f"{COMPUTED}{column.removesuffix('_id')}.{kind}"

    def settle_affine(self) -> None:
        """Keep ``affine`` where every parent lies on a line too, and the module runs once (it is skipped)."""
        calls = Counter(c.place for c in self.found if c.kind == "module")
        for i, c in enumerate(self.found):
            straight = all(self.found[u].kind == "source" or self.found[u].affine for u in c.parents)
            self.found[i] = replace(c, affine=c.affine and straight and calls[c.place] == 1)

    def settle_names(self, end: Segment) -> None:
        """Give every component its name, now that all are known."""
        names, attention = names_for(self.seen, end, self.hints)
        for i, c in enumerate(self.found):
            self.found[i] = replace(c, name=names[i], attention=attention[i] or c.heads > 1)

    def _cut(self, kind: Kind, place: str, call: int, tensor: Tensor, seen: Seen, table: str = "") -> Tensor:
        leaf = tensor.detach().requires_grad_()
        shape = tuple(tensor.shape[1:])
        self.leaves[id(leaf)] = len(self.found)
        self.kept.append(leaf)
        self.seen.append(seen)
        affine = kind == "module" and is_affine(tensor)
        parents = seen.segment.parents
        paired = place in self.pairs and len(shape) == 2
        layout: Layout = "fields" if paired else self._layout(shape, table)
        heads = self.hints.heads.get(place, 1)
        found = Component("", kind, place, call, shape, layout, ("",), parents, table, affine, heads=heads)
        self.found.append(found)
        return self._handed_out(leaf)

    def _handed_out(self, leaf: Tensor) -> Tensor:
        if not self.clones:
            return leaf
        self.copies.append((self.leaves[id(leaf)], leaf.clone()))
        return self.copies[-1][1]

    def written(self) -> frozenset[int]:
        """Components that the model wrote into: autograd counts the versions of a tensor and its views."""
        return frozenset(i for i, copy in self.copies if copy._version > 0)

    def labels(
        self, c: Component, groups: int, granularity: Granularity, *, sink: bool = False
    ) -> tuple[str, ...]:
        """Names of the groups of a component; a layer over heads has theirs as a source only."""
        if c.heads > 1 and not sink and granularity != "module":
            return tuple(f".head.{h}" for h in range(c.heads))
        if c.layout == "fields" and c.place in self.pairs and granularity != "module":
            return pair_labels(self.hints.order)
        if c.kind == "product" and c.call in self.pair_labels and granularity != "module":
            return self.pair_labels[c.call]
        fields = self.hints.fields.get(c.table, ())
        return labels_for(c.shape, c.layout, groups, fields, granularity)

    def _layout(self, shape: tuple[int, ...], table: str) -> Layout:
        if table in self.hints.fields and len(shape) == 2 and shape[0] == len(self.hints.fields[table]):
            return "fields"
        return "vector" if len(shape) < 2 else "positions" if len(shape) == 2 else "heads"


def _are_two_of(chosen: tuple[int, ...], order: tuple[str, ...]) -> bool:
    return len(chosen) == 2 and chosen[1] < len(order)


def _with_groups(
    search: _Search,
    outputs: tuple[int, ...],
    groups: int | None,
    granularity: Granularity,
    sinks: Granularity,
) -> ComponentPlan:
    """Split the components; without a number, finer until a circuit has enough edges."""
    k = groups or DEFAULT_GROUPS
    largest = max((c.shape[-1] for c in search.found if c.shape), default=1)
    while True:
        components = tuple(
            replace(
                c, labels=search.labels(c, k, granularity), sink_labels=search.labels(c, k, sinks, sink=True)
            )
            for c in search.found
        )
        plan = ComponentPlan(
            components, outputs, dict(search.aliases), search.written(), search.pairs, search.direct
        )
        fixed = groups is not None or granularity != "group"
        if fixed or len(plan.edges) >= MINIMUM_EDGES or k >= largest:
            return plan
        k *= 2
