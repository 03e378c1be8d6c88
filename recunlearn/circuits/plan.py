"""What a circuit is made of: components of one forward pass, their groups, and the edges between them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from recunlearn.foundation.errors import UsageError, near_miss
from recunlearn.foundation.records import CircuitGraph

OUTPUT = "output"
"""Name of the sink that stands for the metric (the log-likelihood)."""

Kind = Literal["source", "module", "product"]
Layout = Literal["vector", "positions", "fields", "heads"]
Granularity = Literal["module", "group", "head", "unit"]
GRANULARITIES: tuple[Granularity, ...] = get_args(Granularity)
"""``module``: components are whole; ``group``: k groups of dimensions, fields and heads apart; ``head``:
fields and heads apart, the rest whole; ``unit``: every dimension (of every field, heads apart)."""


@dataclass(frozen=True)
class Component:
    """One place of the forward pass that is cut into a leaf.

    Args:
        name: what a person sees (:mod:`recunlearn.circuits.naming`).
        kind: embedding look-up ("source"), module output, or product of two activations.
        place: where the forward pass meets it: module path for modules, else "".
        call: n-th call of that kind (of that module).
        shape: shape of one sample's tensor.
        layout: how ``shape`` is read: ``[d]``, ``[positions, d]``, ``[fields, d]`` or ``[heads, ...]``.
        labels: names of the groups, in the order of :meth:`group`.
        parents: components (by number) that its segment reads.
        table: embedding table of a source, else "".
        affine: a module whose output is an affine function of look-ups (or of such modules): it lies on a
            straight line along the path, and its Jacobian is the same at every point.
        attention: it belongs to an attention.
        order: columns of an input row, the most filled first: groups are runs of this order; () for others.
        sink_labels: names of the parts that it is split into as a sink of edges, as ``labels`` for sources.
        heads: of a linear layer over so many concatenated heads, else 1.
    """

    name: str
    kind: Kind
    place: str
    call: int
    shape: tuple[int, ...]
    layout: Layout
    labels: tuple[str, ...]
    parents: tuple[int, ...]
    table: str = ""
    affine: bool = False
    attention: bool = False
    sink_labels: tuple[str, ...] = ("",)
    order: tuple[int, ...] = ()
    heads: int = 1

    @property
    def by_head(self) -> bool:
        """Whether its groups are the terms of heads (:mod:`recunlearn.circuits.heads`), not dimensions."""
        return self.heads > 1 and self.groups > 1

    @property
    def groups(self) -> int:
        """Number of groups that the component is split into as a source of edges."""
        return len(self.labels)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an output of another shape (longer sequences) falls into the same parts."""
        if shape == self.shape:
            return True
        if len(shape) != len(self.shape) or self.layout == "fields":
            return False
        if self.groups == len(self.sink_labels) == 1:
            return True
        return shape[0] == self.shape[0] if self.layout == "heads" else shape[-1] == self.shape[-1]

    def group(self, values: Tensor) -> Tensor:
        """Sum ``[B, *shape]`` within groups of dimensions: ``[B, groups]``; not for the terms of heads."""
        n = len(values)
        if self.layout == "fields":
            return values.reshape(n, self.groups, -1).sum(-1)
        if self.layout == "heads" and self.groups > 1:
            return values.flatten(2).sum(-1)
        if self.layout == "heads" or (self.layout == "vector" and self.groups == 1):
            return values.reshape(n, -1).sum(-1, keepdim=True)
        if self.layout == "positions":
            values = values.sum(1)
        if self.order:
            values = values[:, list(self.order)]
        if values.dim() == 2 and values.shape[-1] == self.groups:
            return values
        if values.dim() > 1 and values.shape[-1] % self.groups:
            values = functional.pad(values, (0, -values.shape[-1] % self.groups))
        return values.reshape(n, self.groups, -1).sum(-1)

    def parts(self, values: Tensor) -> list[Tensor]:
        """``[B, *shape]`` once per part of the sink, zero outside the part."""
        parts = len(self.sink_labels)
        if parts == 1:
            return [values]
        if self.layout == "heads":
            at = torch.arange(parts).view(-1, *([1] * (len(self.shape) - 1)))
        elif self.layout == "fields":
            at = (torch.arange(values[0].numel()) // (values[0].numel() // parts)).view(self.shape)
        else:
            at = torch.arange(self.shape[-1]) // -(-self.shape[-1] // parts)
        at = at.to(values.device)
        return [values * (at == h) for h in range(parts)]


@dataclass(frozen=True)
class ComponentPlan:
    """Components in order of execution; sweeps replay it without searching anything again.

    Args:
        components: in order of execution.
        outputs: components that the metric reads directly.
        aliases: further look-ups of the same rows, call number -> component.
        written: components that the model writes into: it gets copies of their leaves.
        field_pairs: modules written as a sum over pairs of fields -> number of fields.
        direct: the model reads no computed table and no input rows.
    """

    components: tuple[Component, ...]
    outputs: tuple[int, ...]
    aliases: Mapping[int, int]
    written: frozenset[int] = frozenset()
    field_pairs: Mapping[str, int] = field(default_factory=dict)
    direct: bool = False

    @cached_property
    def sources(self) -> tuple[int, ...]:
        """Numbers of the embedding look-ups."""
        return tuple(i for i, c in enumerate(self.components) if c.kind == "source")

    @cached_property
    def affine(self) -> tuple[int, ...]:
        """Numbers of the affine modules."""
        return tuple(i for i, c in enumerate(self.components) if c.affine)

    @cached_property
    def idle(self) -> frozenset[int]:
        """Look-ups that only affine modules read: where those are known, their values do not matter."""
        read = {u for u, v in self.pairs if v == len(self.components) or not self.components[v].affine}
        return frozenset(self.sources) - read

    @cached_property
    def lookups(self) -> Mapping[int, int]:
        """Call number of ``F.embedding`` -> component."""
        own = {c.call: i for i, c in enumerate(self.components) if c.kind == "source"}
        return {**own, **self.aliases}

    @cached_property
    def by_head(self) -> Mapping[str, int]:
        """Module path -> component, of the linear layers that are split into the terms of their heads."""
        return {c.place: i for i, c in enumerate(self.components) if c.by_head}

    @cached_property
    def products(self) -> Mapping[int, int]:
        """Call number of a product function -> component."""
        return {c.call: i for i, c in enumerate(self.components) if c.kind == "product"}

    @cached_property
    def modules(self) -> Mapping[str, Mapping[int, int]]:
        """Module path -> call number -> component."""
        found: dict[str, dict[int, int]] = {}
        for i, c in enumerate(self.components):
            if c.kind == "module":
                found.setdefault(c.place, {})[c.call] = i
        return found

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Edges between whole components, (source, sink), in the order of :attr:`reads`."""
        return tuple(dict.fromkeys((u, v) for u, v, _ in self.reads))

    @cached_property
    def reads(self) -> tuple[tuple[int, int, int], ...]:
        """``(source, sink, part of the sink)``, in the order of the columns.

        That is the order of the sweep: sinks backwards, the output (number ``len(components)``) first.
        """
        end = len(self.components)
        found = []
        for v in range(end, -1, -1):
            parents = self.outputs if v == end else self.components[v].parents
            parts = 1 if v == end else len(self.components[v].sink_labels)
            found += [(u, v, h) for h in range(parts) for u in parents]
        return tuple(found)

    @cached_property
    def has_whole_sinks(self) -> bool:
        """Whether no sink is split."""
        return all(len(c.sink_labels) == 1 for c in self.components)

    @cached_property
    def segments(self) -> int:
        """Backward segments of one sweep: one a sink, or one a part of it."""
        return len({(v, h) for _, v, h in self.reads})

    def number(self, name: str) -> int:
        """Number of a component by its name; :data:`OUTPUT` is the last.

        Raises:
            UsageError: there is none (with the near miss and the names).
        """
        names = self.graph.nodes
        if name not in names:
            hint = near_miss(str(name), names)
            raise UsageError(f"The plan has no component '{name}'.{hint} It has: {', '.join(names)}.")
        return names.index(name)

    def columns_of(self, source: str | None = None, sink: str | None = None) -> list[int]:
        """Columns of the edges that leave a component, that enter one, or both.

        Raises:
            UsageError: unknown name.
        """
        u, v = (None if name is None else self.number(name) for name in (source, sink))
        joined = enumerate(zip(self.graph.source, self.graph.sink, strict=True))
        return [e for e, (a, b) in joined if u in (None, a) and v in (None, b)]

    @cached_property
    def columns(self) -> Mapping[tuple[int, int, int], slice]:
        """Columns of every read, one a group of the source."""
        found, at = {}, 0
        for read in self.reads:
            width = self.components[read[0]].groups
            found[read], at = slice(at, at + width), at + width
        return found

    @cached_property
    def edges(self) -> tuple[str, ...]:
        """Name of every edge ``source[group] -> sink``, in the order of the columns of a circuit."""
        names, g = self.graph.nodes, self.graph
        joined = zip(g.source, g.source_group, g.sink, g.sink_group, strict=True)
        return tuple(f"{names[u]}{a} -> {names[v]}{b}" for u, a, v, b in joined)

    @cached_property
    def graph(self) -> CircuitGraph:
        """The same graph without torch, stored with the circuits."""
        depths: list[int] = []
        for parents in (*(c.parents for c in self.components), self.outputs):
            depths.append(1 + max((depths[u] for u in parents), default=-1))
        sinks = [*(c.sink_labels for c in self.components), ("",)]
        columns = [(u, v, a, sinks[v][h]) for u, v, h in self.reads for a in self.components[u].labels]
        return CircuitGraph(
            nodes=(*(c.name for c in self.components), OUTPUT),
            kinds=(*(c.kind for c in self.components), OUTPUT),
            attention=(*(c.attention for c in self.components), False),
            depths=tuple(depths),
            source=tuple(u for u, _, _, _ in columns),
            sink=tuple(v for _, v, _, _ in columns),
            source_group=tuple(a for _, _, a, _ in columns),
            sink_group=tuple(b for _, _, _, b in columns),
        )

    @cached_property
    def source_columns(self) -> tuple[int, ...]:
        """Columns of the edges that leave an embedding look-up: together they carry the whole metric."""
        sources = set(self.sources)
        return tuple(e for e, u in enumerate(self.graph.source) if u in sources)


def labels_for(
    shape: tuple[int, ...],
    layout: Layout,
    groups: int,
    fields: tuple[str, ...],
    granularity: Granularity = "group",
) -> tuple[str, ...]:
    """Names of the groups: the last axis in at most ``groups`` parts, of equal size where that divides it."""
    if granularity == "module" or not shape:
        return ("",)
    if layout == "heads":
        return tuple(f".head.{h}" for h in range(shape[0]))
    k = {"group": groups, "head": 1, "unit": shape[-1]}[granularity]
    parts = _parts(shape[-1], k, layout)
    places = ("",) if parts == 1 else tuple(f"[{g}]" for g in range(parts))
    return tuple(f".{f}{g}" for f in fields for g in places) if layout == "fields" else places


def _parts(size: int, groups: int, layout: Layout) -> int:
    """The largest divisor of ``size`` up to ``groups``; if that is coarse, the last part is smaller."""
    equal = next(k for k in range(min(groups, size), 0, -1) if size % k == 0)
    if layout == "fields" or equal > groups // 2 or equal == size:
        return equal
    return -(-size // -(-size // groups))
