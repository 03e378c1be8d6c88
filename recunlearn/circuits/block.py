"""The tiles of one block of samples: all path points of some samples in one pass, and what is kept of it."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from recunlearn.circuits.path import Path
from recunlearn.circuits.sweep import Pass, edge_gradients, known
from recunlearn.subjects.contract import Batch

if TYPE_CHECKING:
    from recunlearn.circuits.attribution import EdgeAttribution, Lines


class Block:
    """Step-weighted sums of the gradients of B samples; memory is one tile and ``[B, *shape]`` an edge.

    Args:
        engine: plan, model and metric.
        batch: B samples.
        path: points and weights.
        lines: both ends of what lies on a straight line.
    """

    def __init__(self, engine: "EdgeAttribution", batch: Batch, path: Path, lines: "Lines") -> None:
        self.engine, self.plan, self.batch, self.path, self.lines = engine, engine.plan, batch, path, lines
        self.sums = {read: self._empty(read[0]) for read in self.plan.reads}
        self.stopped = {v: self._empty(v) for v in self.plan.affine}
        self.changes = {i: known(lines.top.leaves[i]).detach() - z for i, z in lines.starts.items()}
        if lines.low is not None:
            rest = (i for i in range(len(self.plan.components)) if i not in lines.starts)
            self.changes |= {i: self._empty(i) for i in rest}
        self.value, self.base = self._empty(None), self._empty(None)

    def _empty(self, i: int | None) -> Tensor:
        like = next(iter(self.lines.starts.values()))
        return like.new_empty(len(self.batch), *(() if i is None else self.plan.components[i].shape))

    def tile(self, rows: slice) -> None:
        """Add all steps of some samples, in one pass."""
        n_steps = len(self.path.alphas)
        given = {i: self.on_path(i, rows) for i in self.lines.starts}
        run = self.engine.replay(self.batch[rows].tile(n_steps), given, cut=True)
        self._keep_ends(run, rows)
        weights = self.path.tiled_weights(rows.stop - rows.start)
        stopped: dict[int, Tensor] = {}
        speeds: dict[int, Tensor] = {}
        same: dict[tuple[int, int, int], Tensor] = {}
        for u, v, h, g in edge_gradients(self.plan, run, weights, stopped):
            steps, out = g.view(n_steps, -1, *g.shape[1:]), self.sums[u, v, h][rows]
            if u not in self.changes:
                if u not in speeds:
                    speeds[u] = _differences(known(run.leaves[u]).detach().view_as(steps))
                torch.sum(steps * speeds[u], 0, out=out)
                continue
            # The terms of a sum get one and the same gradient: it is summed once.
            key = (v, h, g.data_ptr())
            if key in same and same[key].shape == out.shape:
                out.copy_(same[key])
            else:
                same[key] = torch.sum(steps, 0, out=out)
        for v, flow in stopped.items():
            torch.sum(flow.view(n_steps, -1, *flow.shape[1:]), 0, out=self.stopped[v][rows])

    def on_path(self, i: int, rows: slice) -> Tensor:
        """Tile of a component that lies on a straight line; one row, repeated, where nobody reads it."""
        end = known(self.lines.top.leaves[i]).detach()[rows]
        if i in self.plan.idle:
            return end[:1].expand(len(end) * len(self.path.alphas), *end.shape[1:])
        return self.path.points(self.lines.starts[i][rows], end)

    def _keep_ends(self, run: Pass, rows: slice) -> None:
        """Metric and components at both ends: the last point is the actual one."""
        samples, low = rows.stop - rows.start, self.lines.low
        value = run.value.detach()
        self.value[rows] = value[-samples:]
        self.base[rows] = value[:samples] if low is None else low.value[rows]
        if low is None:
            return
        for i, change in self.changes.items():
            if i not in self.lines.starts:
                end = known(run.leaves[i]).detach()[-samples:]
                torch.sub(end, known(low.leaves[i])[rows], out=change[rows])

    def through_affine(self) -> None:
        """Edges into affine modules: their Jacobian is constant, so the summed gradient goes through once."""
        top = self.lines.top
        for v in reversed(self.plan.affine):
            component = self.plan.components[v]
            leaves = [known(top.leaves[u]) for u in component.parents]
            for h, part in enumerate(component.parts(self.stopped[v])):
                found = torch.autograd.grad(known(top.before[v]), leaves, part, retain_graph=True)
                for u, g in zip(component.parents, found, strict=True):
                    self.sums[u, v, h] = g.clone()  # gradients may share memory, sums are scaled in place
                    if u in self.stopped:
                        self.stopped[u] += g

    def edges(self) -> Tensor:
        """``[B, E]``; the sums are used up."""
        parts = []
        for (u, _, _), total in self.sums.items():
            factor = self.changes.get(u, (len(self.path.alphas) - 1) / 2)
            parts.append(self.plan.components[u].group(total.mul_(factor)))
        return torch.cat(parts, 1)


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
