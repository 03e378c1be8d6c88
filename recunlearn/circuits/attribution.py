"""Attribution of every edge of every sample by a path integral over the cut graph.

With z_u(a) the output of component u when the sources lie at ``baseline + a * (actual - baseline)``, and
g_uv(a) the gradient of the metric that flows from u through v alone:

- ``eap-ig``: S(u -> v) = sum_dim (z_u(1) - z_u(0)) * int g_uv(a) da. Source: EAP-IG (inputs), Hanna,
  Pezzelle, Belinkov, 2024 (arXiv 2403.17806); deviation: Gauss-Legendre nodes instead of a left Riemann sum.
- ``conductance``: S(u -> v) = sum_dim int g_uv(a) z_u'(a) da. After layer conductance, Dhamdhere,
  Sundararajan, Yan, 2018 (arXiv 1805.12233), read per edge; trapezoid nodes, centred differences for z'.

Modules that are affine in the look-ups (a first linear layer) lie on a straight line and have one Jacobian
for the whole path: they are not computed at its points, and the step-summed gradient goes through them once.
For ``eap-ig`` the edges that leave the sources sum to m(actual) - m(baseline); for ``conductance`` every
cut does.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from recunlearn.circuits.baselines import Baseline, other_rows, spans, table_means
from recunlearn.circuits.discovery import Metric
from recunlearn.circuits.interception import frozen
from recunlearn.circuits.plan import ComponentPlan
from recunlearn.circuits.sweep import Pass, edge_gradients, replay, traced_modules
from recunlearn.circuits.tables import Tables
from recunlearn.subjects.contract import Batch, PlanHints

Score = Literal["eap-ig", "conductance"]


@dataclass(frozen=True)
class EdgeAttributions:
    """Edges of B samples.

    Args:
        edges: ``[B, E]`` signed strengths, columns named by ``plan.edges``.
        delta: ``[B]`` sum of the source edges minus the change of the metric (Captum's convergence delta).
        change: ``[B]`` m(actual) - m(baseline).
        value: ``[B]`` m(actual).
    """

    edges: Tensor
    delta: Tensor
    change: Tensor
    value: Tensor


@dataclass(frozen=True)
class Path:
    """Quadrature: points ``alphas`` in [0, 1] and their ``weights``, both ``[n_steps]``."""

    alphas: Tensor
    weights: Tensor

    @staticmethod
    @lru_cache(maxsize=32)
    def of(score: Score, n_steps: int, dtype: torch.dtype, device: torch.device) -> "Path":
        """Gauss-Legendre for ``eap-ig``; trapezoid with both ends for ``conductance``."""
        if score == "eap-ig":
            x, w = np.polynomial.legendre.leggauss(n_steps)
            nodes, weights = (x + 1) / 2, w / 2
        else:
            nodes = np.linspace(0, 1, n_steps)
            weights = np.full(n_steps, 1 / (n_steps - 1))
            weights[[0, -1]] /= 2
        return Path(*(torch.tensor(x, dtype=dtype, device=device) for x in (nodes, weights)))

    def points(self, start: Tensor, end: Tensor) -> Tensor:
        """Tile of all points, step-major: ``[n_steps * B, ...]``."""
        alphas = self.alphas.view(-1, *([1] * end.dim()))
        return torch.lerp(start.unsqueeze(0), end.unsqueeze(0), alphas).flatten(0, 1)

    def tiled_weights(self, samples: int) -> Tensor:
        """Weight of every row of a tile: ``[n_steps * B]``."""
        return self.weights.repeat_interleave(samples)


@dataclass(frozen=True)
class Ends:
    """Both ends of the path for B samples.

    Args:
        top: the pass at the actual values; its graph leads through the affine modules.
        starts: z(0) of every source and affine module, ``[B, *shape]``.
        changes: per component z(1) - z(0), the speed that the score multiplies the gradient by;
            None where the speed varies along the path (``conductance``).
        value, change: ``[B]`` m(actual) and m(actual) - m(baseline).
    """

    top: Pass
    starts: dict[int, Tensor]
    changes: list[Tensor | None]
    value: Tensor
    change: Tensor


class EdgeAttribution:
    """Attributes edges of a module, in the manner of Captum's attribution classes.

    Args:
        model: the module.
        metric: ``metric(model, batch) -> [B]``.
        plan: what :func:`recunlearn.circuits.discovery.discover` returned for them.
        hints: row ranges and padding of the embedding tables.
        baseline, seed: where the path starts.
        score: ``eap-ig`` or ``conductance``.
    """

    def __init__(
        self,
        model: nn.Module,
        metric: Metric,
        plan: ComponentPlan,
        hints: PlanHints | None = None,
        *,
        baseline: Baseline = "mean",
        score: Score = "eap-ig",
        seed: int = 0,
    ) -> None:
        self.model, self.metric, self.plan = model, metric, plan
        self.hints, self.baseline, self.score, self.seed = hints or PlanHints(), baseline, score, seed
        self.modules = traced_modules(plan, model)
        self._place = {pair: e for e, pair in enumerate(plan.pairs)}
        self._means: dict[str, Tensor] = {}
        self._tables = Tables(model)

    def copy(self) -> "EdgeAttribution":
        """The same engine on a copy of the model, to run in another thread (hooks sit on modules)."""
        return type(self)(
            copy.deepcopy(self.model),
            self.metric,
            self.plan,
            self.hints,
            baseline=self.baseline,
            score=self.score,
            seed=self.seed,
        )

    def attribute(
        self, batch: Batch, *, n_steps: int = 16, internal_batch_size: int | None = None
    ) -> EdgeAttributions:
        """Edges of every sample of ``batch``.

        Args:
            n_steps: points on the path, at least 2.
            internal_batch_size: samples whose whole path is computed at once; None: all. Memory grows with
                it, results do not depend on it (to rounding).
        """
        size = internal_batch_size or len(batch)
        self._means.clear()
        self._tables.clear()
        block = size * n_steps
        with frozen(self.model):
            parts = [self._block(batch[at : at + block], n_steps, size) for at in range(0, len(batch), block)]
        return EdgeAttributions(*(torch.cat([getattr(p, f) for p in parts]) for f in vars(parts[0])))

    def _block(self, batch: Batch, n_steps: int, size: int) -> EdgeAttributions:
        """Ends of the whole block at once (as many rows as one tile), then tile after tile."""
        ends = self.ends(batch)
        path = Path.of(self.score, n_steps, ends.value.dtype, ends.value.device)
        shapes = [c.shape for c in self.plan.components]
        sums = [ends.value.new_empty(len(batch), *shapes[u]) for u, _ in self.plan.pairs]
        stopped = {v: ends.value.new_empty(len(batch), *shapes[v]) for v in self.plan.affine}
        for at in range(0, len(batch), size):
            self._tile(batch, slice(at, min(at + size, len(batch))), ends, path, sums, stopped)
        self._through_affine(ends.top, sums, stopped)
        parts = []
        for (u, _), total in zip(self.plan.pairs, sums, strict=True):
            change = ends.changes[u]
            factor = (n_steps - 1) / 2 if change is None else change
            parts.append(self.plan.components[u].group(total.mul_(factor)))
        edges = torch.cat(parts, 1)
        leaving = torch.zeros(edges.shape[1], dtype=edges.dtype, device=edges.device)
        leaving[list(self.plan.source_columns)] = 1
        return EdgeAttributions(edges, edges @ leaving - ends.change, ends.change, ends.value)

    def _tile(
        self,
        batch: Batch,
        rows: slice,
        ends: Ends,
        path: Path,
        sums: list[Tensor],
        stopped: dict[int, Tensor],
    ) -> None:
        """All steps of some samples in one pass: writes the step-weighted sums of the edges' gradients."""
        n_steps = len(path.alphas)
        given = {i: self._on_path(i, rows, ends, path) for i in (*self.plan.sources, *self.plan.affine)}
        run = self.replay(batch[rows].tile(n_steps), given, cut=True)
        speeds: dict[int, Tensor] = {}
        flows: dict[int, Tensor] = {}
        weights = path.tiled_weights(rows.stop - rows.start)
        for u, v, g in edge_gradients(self.plan, run, weights, flows):
            steps = g.view(n_steps, -1, *g.shape[1:])
            if ends.changes[u] is None:
                if u not in speeds:
                    speeds[u] = _differences(_tensor(run.leaves[u]).detach().view_as(steps))
                steps = steps * speeds[u]
            torch.sum(steps, 0, out=sums[self._place[u, v]][rows])
        for v, flow in flows.items():
            torch.sum(flow.view(n_steps, -1, *flow.shape[1:]), 0, out=stopped[v][rows])

    def _on_path(self, i: int, rows: slice, ends: Ends, path: Path) -> Tensor:
        """Tile of a component that lies on a straight line; one row, repeated, where nobody reads it."""
        end = _tensor(ends.top.leaves[i]).detach()[rows]
        if i in self.plan.idle:
            return end[:1].expand(len(end) * len(path.alphas), *end.shape[1:])
        return path.points(ends.starts[i][rows], end)

    def _through_affine(self, top: Pass, sums: list[Tensor], stopped: dict[int, Tensor]) -> None:
        """Edges into affine modules: their Jacobian is constant, so the summed gradient goes through once."""
        for v in reversed(self.plan.affine):
            parents = self.plan.components[v].parents
            leaves = [_tensor(top.leaves[u]) for u in parents]
            found = torch.autograd.grad(_tensor(top.before[v]), leaves, stopped[v], retain_graph=True)
            for u, g in zip(parents, found, strict=True):
                sums[self._place[u, v]] = g.clone()  # gradients may share memory, sums are scaled in place
                if u in stopped:
                    stopped[u] += g

    def replay(self, batch: Batch, given: Mapping[int, Tensor] | None = None, *, cut: bool = False) -> Pass:
        """Run the metric along the plan (:func:`recunlearn.circuits.sweep.replay`)."""
        return replay(
            self.plan,
            self.model,
            self.metric,
            batch,
            given,
            cut=cut,
            modules=self.modules,
            tables=self._tables,
        )

    def ends(self, batch: Batch) -> Ends:
        """Look up the sources, choose their baselines and run both ends of the path."""
        with torch.set_grad_enabled(bool(self.plan.affine)):
            top = self.replay(batch, cut=bool(self.plan.affine))
        with torch.no_grad():
            starts = {i: self._start(top, i) for i in self.plan.sources}
            low = self.replay(batch, starts)
            starts |= {v: _tensor(low.leaves[v]) for v in self.plan.affine}
            changes = [
                _tensor(a) - _tensor(b) if self.score == "eap-ig" or i in starts else None
                for i, (a, b) in enumerate(zip(top.leaves, low.leaves, strict=True))
            ]
        value = top.value.detach()
        return Ends(top, starts, changes, value, value - low.value)

    def _start(self, top: Pass, i: int) -> Tensor:
        found, table = top.lookups[i], self.plan.components[i].table
        actual = _tensor(top.leaves[i]).detach()
        if self.baseline == "mean":
            if table not in self._means:
                self._means[table] = table_means(table, found.weight, self.hints)
            start = self._means[table].expand_as(actual)
        elif self.baseline == "zero":
            start = torch.zeros_like(actual)
        else:
            start = found.weight[other_rows(found.index, spans(table, found.weight, self.hints), self.seed)]
        nothing = self.hints.nothing(table)
        if nothing is not None:
            empty = found.index == nothing
            start = torch.where(empty.view(*empty.shape, *([1] * (start.dim() - empty.dim()))), actual, start)
        return start


def _tensor(value: Tensor | None) -> Tensor:
    if value is None:
        raise RuntimeError("a component was not met")
    return value


def speed(z: Tensor) -> Tensor:
    """dz/da on uniform points: centred differences, one-sided at the ends: ``[n_steps, ...]`` -> same."""
    return _differences(z).mul_((len(z) - 1) / 2)


def _differences(z: Tensor) -> Tensor:
    """2 / (n_steps - 1) times :func:`speed`, which saves a pass over the tile."""
    out = torch.empty_like(z)
    if len(z) > 2:
        torch.sub(z[2:], z[:-2], out=out[1:-1])
    torch.sub(z[1], z[0], out=out[0]).mul_(2)
    torch.sub(z[-1], z[-2], out=out[-1]).mul_(2)
    return out
