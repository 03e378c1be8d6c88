"""The tiles of one block of samples: all path points of some samples in one pass, and what is kept of it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from recunlearn.circuits.checks import check_shapes
from recunlearn.circuits.field_pairs import pair_products
from recunlearn.circuits.heads import edges_by_head, flows_by_head, head_terms
from recunlearn.circuits.path import Path
from recunlearn.circuits.sweep import Pass, edge_gradients, known
from recunlearn.subjects.contract import Batch

if TYPE_CHECKING:
    from recunlearn.circuits.attribution import EdgeAttribution, Lines

STRAIGHT = 1e-4
"""Largest relative distance from a straight line that is rounding error."""


class Block:
    """Edges of B samples; memory is one tile, and ``[B, *shape]`` for what lies on a straight line.

    Args:
        engine: plan, model and metric.
        batch: B samples.
        path: points and weights.
        lines: both ends of what lies on a straight line.
    """

    def __init__(self, engine: "EdgeAttribution", batch: Batch, path: Path, lines: "Lines") -> None:
        self.engine, self.plan, self.batch, self.path, self.lines = engine, engine.plan, batch, path, lines
        self.stopped = {v: self._like(lines.top.leaves[v]) for v in self.plan.affine}
        self.changes = {i: known(lines.top.leaves[i]).detach() - z for i, z in lines.starts.items()}
        self.edges = self._empty(len(self.plan.edges))
        self.value, self.base = self._empty(), self._empty()

    def _empty(self, *shape: int) -> Tensor:
        return next(iter(self.lines.starts.values())).new_empty(len(self.batch), *shape)

    def _like(self, leaf: Tensor | None) -> Tensor:
        """Of the shape that a component has in this batch: sequences may be longer than those of the plan."""
        return self._empty(*known(leaf).shape[1:])

    def tile(self, rows: slice) -> None:
        """Edges of some samples: all their path points in one pass."""
        try:
            self._sweep(rows)
        except RuntimeError as error:
            if self.engine.shared or "second time" not in str(error):
                raise
            self.engine.shared = True
            self._sweep(rows)

    def _sweep(self, rows: slice) -> None:
        n_steps = len(self.path.alphas)
        given = {i: self.on_path(i, rows) for i in self.lines.starts}
        samples = rows.stop - rows.start
        run = self.engine.replay(self.batch[rows].tile(n_steps), given, cut=True, whole=self._keeps_whole())
        pairs = {i: Pairs.of(fields, self.path, samples) for i, fields in run.fields.items()}
        if self.lines.low is None and not all(p.straight for p in pairs.values()):
            self.engine.curved = True
            self._sweep(rows)
            return
        check_shapes(self.plan, [pairs[i].end if i in pairs else z for i, z in enumerate(run.leaves)])
        moves = self._moves(run, pairs, rows)
        weights = self.path.tiled_weights(samples)
        speeds: dict[int, Tensor] = {}
        stopped: dict[int, Tensor] = {}
        walk = edge_gradients(self.plan, run, weights, stopped, retain=self.engine.shared)
        before: tuple[Any, Tensor | None] = None, None
        for u, v, h, g in walk:
            move, steps = moves[u], g.view(n_steps, -1, *g.shape[1:])
            if move is None and self.plan.components[u].by_head:
                self.edges[rows, self.plan.columns[u, v, h]] = self._flow_by_head(u, run, steps)
                continue
            if move is None and u in pairs:
                total = pairs[u].along(steps)
            elif move is None:
                if u not in speeds:
                    speeds[u] = _differences(known(run.leaves[u]).detach().view_as(steps))
                total = torch.sum(steps * speeds[u], 0).mul_((n_steps - 1) / 2)
            else:
                # The terms of a sum get one and the same gradient: it is summed once.
                key = (v, h, g.data_ptr(), g.shape)
                before = before if before[0] == key else (key, torch.sum(steps, 0))
                summed = known(before[1])
                if self.plan.components[u].by_head:
                    self.edges[rows, self.plan.columns[u, v, h]] = edges_by_head(move, summed)
                    continue
                total = (summed.unsqueeze(-1) if u in pairs else summed) * move
            self.edges[rows, self.plan.columns[u, v, h]] = self.plan.components[u].group(total)
        for v, flow in stopped.items():
            torch.sum(flow.view(n_steps, -1, *flow.shape[1:]), 0, out=self.stopped[v][rows])

    def _flow_by_head(self, u: int, run: Pass, steps: Tensor) -> Tensor:
        """Edges of all heads along their inputs' speed: ``[n_steps, B, ..., d] -> [B, heads]``."""
        inputs = run.inputs[u].view(len(steps), -1, *run.inputs[u].shape[1:])
        weights = self.engine.head_weights(u, inputs.shape[-1])
        total = torch.sum(flows_by_head(weights, steps) * _differences(inputs), 0)
        total = total.mul_((len(steps) - 1) / 2).unflatten(-1, weights.shape[:2])
        return total.sum(-1).flatten(1, -2).sum(1)

    def on_path(self, i: int, rows: slice) -> Tensor:
        """Tile of a component that lies on a straight line; one row, repeated, where nobody reads it."""
        end = known(self.lines.top.leaves[i]).detach()[rows]
        if i in self.plan.idle:
            return end[:1].expand(len(end) * len(self.path.alphas), *end.shape[1:])
        return self.path.points(self.lines.starts[i][rows], end)

    def _keeps_whole(self) -> bool:
        """Whether factorisation machines need not be written as pairs at every point of the path."""
        known_ends = self.lines.low is not None or not self.engine.curved
        return self.plan.has_whole_sinks and bool(self.plan.field_pairs) and known_ends

    def _moves(self, run: Pass, pairs: "dict[int, Pairs]", rows: slice) -> list[Tensor | None]:
        """z(1) - z(0) of every component, None where the score takes its speed; keeps the metric's ends."""
        samples, low = rows.stop - rows.start, self.lines.low
        value = run.value.detach()
        self.value[rows] = value[-samples:]  # the last point is the actual one
        self.base[rows] = value[:samples] if low is None else low.value[rows]
        found: list[Tensor | None] = []
        for i, leaf in enumerate(run.leaves):
            if i in self.changes:
                found.append(self.changes[i][rows])
            elif low is None:
                found.append(None)
            elif i in run.inputs:
                change = run.inputs[i][-samples:] - low.inputs[i][rows]
                found.append(head_terms(self.engine.head_weights(i, change.shape[-1]), change))
            else:
                end = pairs[i].end if i in pairs else known(leaf).detach()[-samples:]
                found.append(end - known(low.leaves[i])[rows])
        return found

    def degenerate(self, total: Tensor) -> Tensor:
        """``[B]`` bool: no source moves; looked at only where the source edges sum to exactly 0."""
        found = total == 0
        for i in self.plan.sources if bool(found.any()) else ():
            found[found.clone()] &= (self.changes[i][found] == 0).flatten(1).all(1)
        return found

    def through_affine(self) -> None:
        """Edges into affine modules: their Jacobian is constant, so the summed gradient goes through once."""
        top = self.lines.top
        for v in reversed(self.plan.affine):
            component = self.plan.components[v]
            leaves = [known(top.leaves[u]) for u in component.parents]
            for h, part in enumerate(component.parts(self.stopped[v])):
                found = torch.autograd.grad(known(top.before[v]), leaves, part, retain_graph=True)
                for u, g in zip(component.parents, found, strict=True):
                    grouped = self.plan.components[u].group(g * self.changes[u])
                    self.edges[:, self.plan.columns[u, v, h]] = grouped
                    if u in self.stopped:
                        self.stopped[u] += g


@dataclass(frozen=True)
class Pairs:
    """A factorisation machine's pairs along a straight line of its fields: z(a) = z(0) + a c1 + a^2 c2.

    Args:
        end: z(1), ``[B, pairs, 1]``.
        first, second: c1 and c2; None where the path does not start at the baseline.
        slopes: ``[n_steps]`` b with :func:`speed` equal to c1 + b c2.
        straight: whether the fields do lie on a straight line.
    """

    end: Tensor
    first: Tensor | None
    second: Tensor | None
    slopes: Tensor
    straight: bool

    @staticmethod
    def of(fields: Tensor, path: Path, samples: int) -> "Pairs":
        """From the fields at all points, step-major: ``[n_steps * B, F, d]``."""
        end, slopes = pair_products(fields[-samples:]), 2 * path.alphas
        if not path.starts_at_baseline:
            return Pairs(end, None, None, slopes, True)
        slopes = slopes.clone()
        slopes[0], slopes[-1] = path.alphas[1], 2 - path.alphas[1]  # one-sided differences at the ends
        steps = fields.view(len(slopes), samples, *fields.shape[1:])
        second = pair_products(steps[-1] - steps[0])
        middle = len(slopes) // 2
        line = torch.lerp(steps[0], steps[-1], path.alphas[middle])
        straight = torch.allclose(steps[middle], line, rtol=STRAIGHT, atol=STRAIGHT * float(line.abs().max()))
        return Pairs(end, end - pair_products(steps[0]) - second, second, slopes, straight)

    def along(self, steps: Tensor) -> Tensor:
        """Sum over the points of gradient times speed: gradient of the sum ``[n_steps, B, 1]``."""
        by_slope = torch.tensordot(self.slopes, steps, 1)
        return torch.sum(steps, 0).unsqueeze(-1) * known(self.first) + by_slope.unsqueeze(-1) * known(
            self.second
        )


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
