"""Exact ablation: runs in which chosen edges read the baseline value of their source.

The edge u[g] -> v is ablated when v alone reads u with the dimensions of group g at their value in the
baseline run, and everything after v follows. Nothing of the model is touched: one run with every component
but v given (u altered) says what v becomes, one run with that v given says what it does to the metric. A
circuit keeps some edges and ablates all others: its components are computed in order of execution, each in
a run of its own in which every parent is a mixture of its value in the circuit and its baseline value.

Definition: Conmy et al., 2023 (ACDC, arXiv 2304.14997); Mueller et al., 2025 (MIB, arXiv 2504.13151).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from recunlearn.circuits.attribution import EdgeAttribution
from recunlearn.circuits.checks import refuse_heads
from recunlearn.circuits.interception import frozen
from recunlearn.circuits.plan import Component, ComponentPlan
from recunlearn.subjects.contract import Batch

Values = dict[int, Tensor]


@dataclass(frozen=True)
class Edge:
    """One column: part ``part`` (bool, shape of the source) of ``source``, read by ``sink``.

    ``into``: the part of the sink that the edge leads to, by its label; "" where the sink is whole.
    """

    source: int
    sink: int
    part: Tensor
    into: str


class Ablation:
    """Clamped runs of B samples.

    Args:
        engine: with the model, the plan and the baseline.
        batch: the samples.
        rows: most rows of one run, at least B; results do not depend on it.

    Attributes:
        actual, baseline: value of every component in the run as it is and in the baseline run.
        full, empty: ``[B]`` m(N), with every edge, and m(empty), with none.
    """

    def __init__(self, engine: EdgeAttribution, batch: Batch, *, rows: int = 4096) -> None:
        refuse_heads(engine.plan, "Exact ablation", "granularity 'module'")
        self.engine, self.batch, self.plan = engine, batch, engine.plan
        self.width = max(rows // len(batch), 1)
        self.output = len(self.plan.components)
        with frozen(engine.model):
            starts = engine.ends(batch).starts
            with torch.no_grad():
                top = engine.replay(batch)
                low = engine.replay(batch, {i: starts[i] for i in self.plan.sources})
        self.actual, self.baseline = values_of(top.leaves), values_of(low.leaves)
        self.full, self.empty = top.value.detach(), low.value.detach()

    @cached_property
    def edges(self) -> list[Edge]:
        """Every column of the plan."""
        graph = self.plan.graph
        columns = zip(graph.source, graph.sink, graph.source_group, graph.sink_group, strict=True)
        return [Edge(u, v, self._parts[u][own], into) for u, v, own, into in columns]

    def single(self) -> Tensor:
        """``[B, E]`` m(N) - m(N without the edge): the effect of ablating every edge by itself."""
        effects = self.full.new_empty(len(self.batch), len(self.edges))
        pairs: dict[tuple[int, int], list[int]] = {}
        for column, edge in enumerate(self.edges):
            pairs.setdefault((edge.source, edge.sink), []).append(column)
        with frozen(self.engine.model), torch.no_grad():
            for columns in pairs.values():
                for at in range(0, len(columns), self.width):
                    some = columns[at : at + self.width]
                    effects[:, some] = (self.full - self._without(some)).T
        return effects

    def kept(self, keep: Tensor) -> Tensor:
        """``[K, B]`` metric of K circuits that keep the edges of ``keep``, bool ``[K, B or 1, E]``."""
        keep = keep.to(self.full.device).expand(-1, len(self.batch), -1)
        with frozen(self.engine.model), torch.no_grad():
            return torch.cat([self._kept(part) for part in keep.split(self.width)])

    def _without(self, columns: list[int]) -> Tensor:
        """``[columns, B]`` metric without each of some edges, all from one source to one sink."""
        times, edges = len(columns), [self.edges[c] for c in columns]
        u, v = edges[0].source, edges[0].sink
        parts = torch.stack([e.part for e in edges]).unsqueeze(1)
        altered = torch.where(parts, self.baseline[u], self.actual[u]).flatten(0, 1)
        reached = self._read(v, times, self._clamped(times, but={v}) | {u: altered})
        if v == self.output:
            return reached
        if edges[0].into:
            parts = torch.stack([self._sinks[v][e.into] for e in edges]).unsqueeze(1)
            there = reached.view(times, *self.actual[v].shape)
            reached = torch.where(parts, there, self.actual[v]).flatten(0, 1)
        fixed = self._clamped(times, but=followers(self.plan, v))
        return self._read(self.output, times, fixed | {v: reached})

    def _kept(self, keep: Tensor) -> Tensor:
        times = len(keep)
        now = self._clamped(times)
        for v, ways in self._ways():
            for into, columns in ways.items():
                reached = self._read(
                    v, times, self._clamped(times, but={v}) | self._mixed(keep, columns, now)
                )
                if v == self.output:
                    return reached
                now[v] = torch.where(self._sinks[v][into], reached, now[v]) if into else reached
        return self.full.expand(times, -1)

    def _ways(self) -> Iterator[tuple[int, dict[str, list[int]]]]:
        """Sinks in order of execution, the output last, with the columns into each of their parts."""
        found: dict[int, dict[str, list[int]]] = {}
        for column, edge in enumerate(self.edges):
            found.setdefault(edge.sink, {}).setdefault(edge.into, []).append(column)
        yield from sorted(found.items())

    def _mixed(self, keep: Tensor, columns: list[int], now: Values) -> Values:
        """Parents as a sink reads them: kept parts as they are in the circuit, the others at the baseline."""
        mixed: Values = {}
        for u in dict.fromkeys(self.edges[c].source for c in columns):
            own = [c for c in columns if self.edges[c].source == u]  # in the order of the groups
            here = keep[:, :, own][..., self._owner[u].flatten()].view(-1, *self._owner[u].shape)
            low = self.baseline[u].repeat(len(keep), *[1] * self._owner[u].dim())
            mixed[u] = torch.where(here, now[u], low)
        return mixed

    def _read(self, v: int, times: int, given: Values) -> Tensor:
        """Value of component v (``[times * B, ...]``) or of the metric (``[times, B]``)."""
        run = self.engine.replay(self.batch.tile(times), given)
        return run.value.view(times, -1) if v == self.output else values_of(run.leaves)[v]

    def _clamped(self, times: int, *, but: set[int] | frozenset[int] = frozenset()) -> Values:
        """Actual values of all components except ``but``: ``[times * B, ...]`` each."""
        return {i: z.repeat(times, *[1] * (z.dim() - 1)) for i, z in enumerate(self.actual) if i not in but}

    @cached_property
    def _owner(self) -> list[Tensor]:
        """Number of the group that each dimension of a component belongs to."""
        return [_owners(c, z) for c, z in zip(self.plan.components, self.actual, strict=True)]

    @cached_property
    def _parts(self) -> list[dict[str, Tensor]]:
        """Bool mask of every group of a component, by its label."""
        pairs = zip(self.plan.components, self._owner, strict=True)
        return [{label: owner == g for g, label in enumerate(c.labels)} for c, owner in pairs]

    @cached_property
    def _sinks(self) -> list[dict[str, Tensor]]:
        """Bool mask of every part that a component has as a sink, by its label."""
        pairs = zip(self.plan.components, self.actual, strict=True)
        return [
            {
                label: part[0] != 0
                for label, part in zip(c.sink_labels, c.parts(torch.ones_like(z[:1])), strict=True)
            }
            for c, z in pairs
        ]


def _owners(component: Component, value: Tensor) -> Tensor:
    """Group of every dimension: where the derivative of the groups' weighted sum says so."""
    probe = torch.zeros_like(value[:1], requires_grad=True)
    with torch.enable_grad():
        sums = component.group(probe)[0]
        (numbers,) = torch.autograd.grad(sums @ torch.arange(len(sums)).to(sums), probe)
    return numbers[0].round().long()


def followers(plan: ComponentPlan, v: int) -> frozenset[int]:
    """Components that read v, directly or not."""
    found = {v}
    for i, component in enumerate(plan.components):
        if found & set(component.parents):
            found.add(i)
    return frozenset(found - {v})


def values_of(leaves: list[Tensor | None]) -> list[Tensor]:
    """Values of a pass that met every component, without their graph."""
    return [leaf.detach() for leaf in leaves if leaf is not None]
