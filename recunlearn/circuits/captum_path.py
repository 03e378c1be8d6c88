"""Let Captum's IntegratedGradients drive the path: the reference for the chunked loop.

Captum builds the tile of path points, weights the steps and sums them. Next to the sources it gets one more
input, a carrier ``ones[B, E]`` with baseline 0, whose "gradient" is the per-step integrand of every edge: its
attribution is then the edge. ``gradient_func`` is replaced for that, as Captum's own layer attributions do.
"""

from collections.abc import Sequence
from typing import Any

import torch
from captum.attr import IntegratedGradients
from torch import Tensor

from recunlearn.circuits.attribution import EdgeAttribution, EdgeAttributions, Ends
from recunlearn.circuits.block import speed
from recunlearn.circuits.checks import refuse_heads
from recunlearn.circuits.interception import frozen
from recunlearn.circuits.path import Method
from recunlearn.circuits.plan import ComponentPlan
from recunlearn.circuits.subject import Traceable
from recunlearn.circuits.sweep import edge_gradients, known
from recunlearn.subjects.contract import Batch

CAPTUM_METHODS: dict[Method, str] = {"eap-ig": "gausslegendre", "conductance": "riemann_trapezoid"}


class CaptumEdgeAttribution(EdgeAttribution):
    """Same edges as :class:`EdgeAttribution`, with Captum as the driver.

    Captum has no Gauss-Radau nodes: ``eap-ig`` takes its Gauss-Legendre ones and differs by the error of the
    two quadratures. ``riemann_trapezoid`` of Captum 0.9.0 has weights that sum to (n - 1) / n; the integrand
    of ``conductance`` is scaled by n / (n - 1) to make up for it.
    """

    def __init__(self, subject: Traceable, plan: ComponentPlan, **options: Any) -> None:
        refuse_heads(plan, "path 'captum'", "path 'chunked'")
        super().__init__(subject, plan, **options)

    def _block(self, batch: Batch, method: Method, n_steps: int, size: int) -> EdgeAttributions:
        parts = [self._drive(batch[at : at + size], method, n_steps) for at in range(0, len(batch), size)]
        return EdgeAttributions(*(torch.cat([getattr(p, f) for p in parts]) for f in vars(parts[0])))

    def _drive(self, batch: Batch, method: Method, n_steps: int) -> EdgeAttributions:
        ends = self.ends(batch)
        names = sorted(batch.columns)
        extra = (*(batch.columns[k] for k in names), batch.entity)
        carrier = ends.value.new_ones(len(batch), len(self.plan.edges))

        def rebuilt(columns: tuple[Tensor, ...]) -> Batch:
            return Batch(dict(zip(names, columns[:-1], strict=True)), columns[-1])

        def forward(*inputs: Tensor) -> Tensor:
            k = len(self.plan.sources)
            return self.replay(rebuilt(inputs[k:]), self.given(inputs[:k])).value

        def gradients(
            inputs: tuple[Tensor, ...], additional_forward_args: Any, **_: Any
        ) -> tuple[Tensor, ...]:
            return self._integrands(rebuilt(additional_forward_args), inputs[:-1], ends, method, n_steps)

        driver = IntegratedGradients(forward)
        driver.gradient_func = gradients
        options = {"n_steps": n_steps, "method": CAPTUM_METHODS[method], "additional_forward_args": extra}
        inputs, starts = path_ends(self, ends)
        *sources, edges = driver.attribute(
            (*inputs, carrier), baselines=(*starts, torch.zeros_like(carrier)), **options
        )
        with torch.no_grad():
            delta = driver.compute_convergence_delta(
                tuple(sources), starts, inputs, additional_forward_args=extra
            )
        still = torch.stack([(a == b).flatten(1).all(1) for a, b in zip(inputs, starts, strict=True)])
        return EdgeAttributions(edges, delta.to(edges.dtype), ends.change, ends.value, still.all(0))

    def given(self, sources: Sequence[Tensor]) -> dict[int, Tensor]:
        """Sources in the order of the plan, by component."""
        return dict(zip(self.plan.sources, sources, strict=True))

    def _integrands(
        self, batch: Batch, sources: tuple[Tensor, ...], ends: Ends, method: Method, n_steps: int
    ) -> tuple[Tensor, ...]:
        """Per row of Captum's tile: the gradient of every source, and every edge's integrand."""
        run = self.replay(batch, self.given(sources), cut=True)
        steps = len(batch) // len(ends.value)
        scale = 1.0 if method == "eap-ig" else n_steps / (n_steps - 1)
        flow: dict[int, Tensor] = {}
        columns = []
        for u, _, _, g in edge_gradients(self.plan, run, torch.ones_like(run.value)):
            flow[u] = flow[u] + g if u in flow else g.clone()
            if method == "eap-ig" or u in ends.starts:
                moved = ends.changes[u].repeat(steps, *([1] * (g.dim() - 1)))
            else:
                leaf = known(run.leaves[u]).detach()
                moved = speed(leaf.view(n_steps, -1, *g.shape[1:])).flatten(0, 1)
            columns.append(self.plan.components[u].group(g * moved) * scale)
        gradients = [
            flow.get(i, torch.zeros_like(x)) * scale for i, x in zip(self.plan.sources, sources, strict=True)
        ]
        return (*gradients, torch.cat(columns, 1))


def path_ends(engine: EdgeAttribution, ends: Ends) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Actual values and baselines of the sources, as Captum takes them."""
    actual = [leaf.detach() for i in engine.plan.sources if (leaf := ends.top.leaves[i]) is not None]
    return tuple(actual), tuple(ends.starts[i] for i in engine.plan.sources)


def source_attributions(
    engine: EdgeAttribution, batch: Batch, n_steps: int
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Plain Captum integrated gradients of the sources, no edge machinery: ``([B, *shape] each, delta [B])``.

    The oracle: a source's attribution is the sum over the edges that leave it.
    """
    names = sorted(batch.columns)
    extra = (*(batch.columns[k] for k in names), batch.entity)
    k = len(engine.plan.sources)

    def forward(*inputs: Tensor) -> Tensor:
        rest = Batch(dict(zip(names, inputs[k:-1], strict=True)), inputs[-1])
        return engine.replay(rest, dict(zip(engine.plan.sources, inputs[:k], strict=True))).value

    with frozen(engine.model):
        inputs, starts = path_ends(engine, engine.ends(batch))
        return IntegratedGradients(forward).attribute(
            inputs,
            baselines=starts,
            additional_forward_args=extra,
            n_steps=n_steps,
            return_convergence_delta=True,
        )
