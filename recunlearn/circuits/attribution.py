"""Attribution of every edge of every sample by a path integral over the cut graph.

With z_u(a) the output of component u when the sources lie at ``baseline + a * (actual - baseline)``, and
g_uv(a) the gradient of the metric that flows from u through v alone:

- ``eap-ig``: S(u -> v) = sum_dim (z_u(1) - z_u(0)) * int g_uv(a) da. Source: EAP-IG (inputs), Hanna,
  Pezzelle, Belinkov, 2024 (arXiv 2403.17806); deviation: Gauss-Radau nodes instead of a left Riemann sum.
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

import torch
from torch import Tensor

from recunlearn.circuits.baselines import Baseline, counterfactual_rows, table_means
from recunlearn.circuits.block import Block
from recunlearn.circuits.checks import (
    check_baseline,
    check_batch,
    check_options,
    check_plan,
    refuse_not_finite,
)
from recunlearn.circuits.heads import head_weights
from recunlearn.circuits.interception import frozen
from recunlearn.circuits.path import Method, Path
from recunlearn.circuits.plan import ComponentPlan
from recunlearn.circuits.subject import Traceable, traced_metric
from recunlearn.circuits.sweep import Pass, known, replay, traced_modules
from recunlearn.circuits.tables import Tables
from recunlearn.subjects.contract import Batch


@dataclass(frozen=True)
class EdgeAttributions:
    """Edges of B samples.

    Args:
        edges: ``[B, E]`` signed strengths, columns named by ``plan.edges``.
        delta: ``[B]`` sum of the source edges minus the change of the metric (Captum's convergence delta).
        change: ``[B]`` m(actual) - m(baseline).
        value: ``[B]`` m(actual).
        degenerate: ``[B]`` bool: the baseline equals the input, nothing moves and every edge is 0.
    """

    edges: Tensor
    delta: Tensor
    change: Tensor
    value: Tensor
    degenerate: Tensor


@dataclass(frozen=True)
class Ends:
    """Both ends of the path for B samples.

    Args:
        top: the pass at the actual values.
        starts: z(0) of every source, ``[B, *shape]``.
        changes: z(1) - z(0) of every component.
        value, change: ``[B]`` m(actual) and m(actual) - m(baseline).
    """

    top: Pass
    starts: dict[int, Tensor]
    changes: list[Tensor]
    value: Tensor
    change: Tensor


@dataclass(frozen=True)
class Lines:
    """Both ends of the components that lie on a straight line: look-ups and affine modules.

    Args:
        top: the pass at the actual values, at least as far as those components; its graph leads through the
            affine modules.
        starts: their z(0), ``[B, *shape]``.
        low: the pass at the baseline; None where the path itself starts there.
    """

    top: Pass
    starts: dict[int, Tensor]
    low: Pass | None


class EdgeAttribution:
    """Attributes edges of a module, in the manner of Captum's attribution classes.

    Args:
        subject: a model, its log-likelihood and what is known about its tables; for any ``nn.Module``:
            :class:`recunlearn.circuits.subject.ModuleSubject`.
        plan: what :func:`recunlearn.circuits.discovery.discover` returned for them.
        baseline, seed: where the path starts.
    """

    def __init__(
        self, subject: Traceable, plan: ComponentPlan, *, baseline: Baseline = "mean", seed: int = 0
    ) -> None:
        check_baseline(baseline)
        check_plan(subject.model, plan)
        self.model, self.metric, self.hints = subject.model, subject.log_likelihood, subject.hints()
        self.traced = traced_metric(self.metric, self.hints)
        """The metric as passes along the plan compute it."""
        self.plan, self.baseline, self.seed = plan, baseline, seed
        self.modules = traced_modules(plan, self.model)
        self.shared = False
        """Whether two segments share an operation: what autograd saved of it is then kept for both."""
        self.curved = False
        """Whether a factorisation machine reads something that leaves its straight line."""
        self._means: dict[str, Tensor] = {}
        self._heads: dict[int, Tensor] = {}
        self._tables = Tables(self.model)

    def copy(self) -> "EdgeAttribution":
        """The same engine on a copy of the model, to run in another thread (hooks sit on modules)."""
        twin = copy.copy(self)
        twin.model, twin._means, twin._heads = copy.deepcopy(self.model), {}, {}
        twin.modules = traced_modules(self.plan, twin.model)
        twin._tables = Tables(twin.model)
        return twin

    def attribute(
        self,
        batch: Batch,
        *,
        n_steps: int = 16,
        method: Method = "eap-ig",
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Edges of every sample of ``batch``: ``[B, E]``, and the convergence delta ``[B]`` where asked for.

        Args:
            n_steps: points on the path, at least 2.
            method: edge score, ``eap-ig`` or ``conductance``.
            internal_batch_size: samples whose whole path is computed at once; None: all. Memory grows with
                it, results do not depend on it (to rounding).

        Raises:
            UsageError: too few steps, an empty batch or one on another device, or dropout that is on.
            TraceError: a component or a gradient is not a finite number.
        """
        found = self.explain(batch, n_steps=n_steps, method=method, internal_batch_size=internal_batch_size)
        return (found.edges, found.delta) if return_convergence_delta else found.edges

    def explain(
        self,
        batch: Batch,
        *,
        n_steps: int = 16,
        method: Method = "eap-ig",
        internal_batch_size: int | None = None,
    ) -> EdgeAttributions:
        """Like :meth:`attribute`, with all that is known about the samples' paths."""
        check_options(method, n_steps, internal_batch_size)
        check_batch(self.model, batch)
        size = internal_batch_size or len(batch)
        block = size * n_steps
        self._means.clear()
        self._heads.clear()
        self._tables.clear()
        with frozen(self.model):
            parts = [
                self._block(batch[at : at + block], method, n_steps, size)
                for at in range(0, len(batch), block)
            ]
            found = EdgeAttributions(*(torch.cat([getattr(p, f) for p in parts]) for f in vars(parts[0])))
            if not torch.isfinite(found.delta).all():  # a bad edge makes it bad, whatever its column
                self._name_the_culprit(batch, found.edges, method, n_steps)
        return found

    def _block(self, batch: Batch, method: Method, n_steps: int, size: int) -> EdgeAttributions:
        """Lines of the whole block at once (as many rows as one tile), then tile after tile."""
        block = self._begun(batch, method, n_steps)
        for at in range(0, len(batch), size):
            block.tile(slice(at, min(at + size, len(batch))))
        block.through_affine()
        edges, change = block.edges, block.value - block.base
        leaving = torch.zeros(edges.shape[1], dtype=edges.dtype, device=edges.device)
        leaving[list(self.plan.source_columns)] = 1
        total = edges @ leaving
        degenerate = block.degenerate(total)
        edges[degenerate] = 0  # nothing moves: what is left is rounding
        return EdgeAttributions(edges, total - change, change, block.value, degenerate)

    def _begun(self, batch: Batch, method: Method, n_steps: int) -> Block:
        like = next(self.model.parameters())
        path = Path.of(method, n_steps, like.dtype, like.device)
        return Block(self, batch, path, self.lines(batch, whole=not path.starts_at_baseline))

    def _name_the_culprit(self, batch: Batch, edges: Tensor, method: Method, n_steps: int) -> None:
        bad = (~torch.isfinite(edges)).any(1).nonzero()[0]
        block = self._begun(batch[bad], method, n_steps)
        given = {i: block.on_path(i, slice(0, 1)) for i in block.lines.starts}
        with torch.no_grad():
            run = self.replay(batch[bad].tile(n_steps), given)
        refuse_not_finite(self.plan, run.leaves, edges[bad])

    def replay(
        self,
        batch: Batch,
        given: Mapping[int, Tensor] | None = None,
        *,
        cut: bool = False,
        until: frozenset[int] | None = None,
        whole: bool = False,
    ) -> Pass:
        """Run the metric along the plan (:func:`recunlearn.circuits.sweep.replay`)."""
        return replay(
            self.plan,
            self.model,
            self.traced,
            batch,
            given,
            cut=cut,
            until=until,
            whole=whole,
            modules=self.modules,
            tables=self._tables,
        )

    def lines(self, batch: Batch, *, whole: bool) -> Lines:
        """Look up the sources, choose their baselines, and run affine modules at both ends.

        Args:
            whole: run the metric to its end at the baseline.
        """
        affine, straight = self.plan.affine, frozenset((*self.plan.sources, *self.plan.affine))
        with torch.set_grad_enabled(bool(affine)):
            top = self.replay(batch, cut=bool(affine), until=straight)
        with torch.no_grad():
            starts = {i: self._start(top, i) for i in self.plan.sources}
            low = None
            if whole or affine:
                low = self.replay(batch, starts, until=None if whole else straight)
                starts |= {v: known(low.leaves[v]) for v in affine}
        return Lines(top, starts, low if whole else None)

    def head_weights(self, u: int, size: int) -> Tensor:
        """What component u, a layer over heads, does to each head's part of its input of that size."""
        if u not in self._heads:
            c = self.plan.components[u]
            self._heads[u] = head_weights(self.modules[c.place], size, c.heads)
        return self._heads[u]

    def ends(self, batch: Batch) -> Ends:
        """Run the metric at both ends of the path."""
        with torch.no_grad():
            top = self.replay(batch)
            starts = {i: self._start(top, i) for i in self.plan.sources}
            low = self.replay(batch, starts)
            changes = [known(a) - known(b) for a, b in zip(top.leaves, low.leaves, strict=True)]
        return Ends(top, starts, changes, top.value, top.value - low.value)

    def _start(self, top: Pass, i: int) -> Tensor:
        found, table = top.lookups[i], self.plan.components[i].table
        actual = known(top.leaves[i]).detach()
        if self.baseline == "mean":
            if table not in self._means:
                self._means[table] = table_means(table, found.weight, self.hints)
            start = self._means[table].expand_as(actual)
        elif self.baseline == "zero":
            start = torch.zeros_like(actual)
        else:
            rows = counterfactual_rows(found.index, table, found.weight, self.hints, self.seed)
            start = found.weight[rows]
        nothing = self.hints.nothing(table)
        if nothing is not None:
            empty = found.index == nothing
            start = torch.where(empty.view(*empty.shape, *([1] * (start.dim() - empty.dim()))), actual, start)
        return start
