"""Edge strengths that circuits are compared with: gradients on another piece of the path, and activations."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from recunlearn.circuits.ablation import Ablation
from recunlearn.circuits.interception import frozen
from recunlearn.circuits.sweep import edge_gradients


def gradient_scores(run: Ablation, points: Sequence[tuple[float, float]]) -> Tensor:
    """``[B, E]`` sum over (alpha, weight) of weight * gradient at alpha * change of the source.

    One point at 1 is EAP (Nanda, 2023; Syed et al., 2023, arXiv 2310.10348); :func:`window` gives EAP-IG on a
    piece of the path.
    """
    plan, engine = run.plan, run.engine
    total = torch.zeros(len(run.batch), len(plan.edges), dtype=run.full.dtype, device=run.full.device)
    with frozen(engine.model):
        for alpha, weight in points:
            given = {i: torch.lerp(run.baseline[i], run.actual[i], alpha) for i in plan.sources}
            there = engine.replay(run.batch, given, cut=True)
            edges = [
                plan.components[u].group(g * (run.actual[u] - run.baseline[u]))
                for u, _, _, g in edge_gradients(plan, there, torch.full_like(there.value, weight))
            ]
            total += torch.cat(edges, 1).detach()
    return total


def window(start: float, steps: int) -> list[tuple[float, float]]:
    """Gauss-Legendre nodes on [start, 1] and weights that sum to 1.

    >>> window(0.5, 1)
    [(0.75, 1.0)]
    """
    x, w = np.polynomial.legendre.leggauss(steps)
    return [(float(start + (1 - start) * (a + 1) / 2), float(b / 2)) for a, b in zip(x, w, strict=True)]


def activation_scores(run: Ablation) -> Tensor:
    """``[B, E]`` mean |activation| of each edge's source group: a ranking that looks at no gradient."""
    columns = [z[:, part].abs().mean(1) for z, part in ((run.actual[e.source], e.part) for e in run.edges)]
    return torch.stack(columns, 1)
