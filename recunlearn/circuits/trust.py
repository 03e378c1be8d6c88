"""Try an engine on a few samples before it is trusted with all: a model it does not fit is refused."""

import torch
from torch import Tensor

from recunlearn.circuits.attribution import EdgeAttribution, EdgeAttributions, Ends
from recunlearn.circuits.interception import frozen
from recunlearn.foundation.errors import TraceError
from recunlearn.subjects.contract import Batch

COARSE, FINE = 16, 256
FEW = 2
"""Samples of a large model that are tried."""
SHARE = 1e-3
"""Largest difference between two ways to the same number, as a share of the largest such number."""
ROUNDING = 1e-5
"""Digits of a float32 score that say nothing."""
LARGEST_GAP = 0.05


def check_trust(engine: EdgeAttribution, batch: Batch, steps: int = COARSE, *, large: bool = False) -> None:
    """Refuse a model whose edges would be wrong.

    Three things must hold: the pass along the components gives the model's own value; a sample has the same
    edges alone and among others; the edges that leave the sources add up to the change of the value, or do
    so ever better with more steps.

    Args:
        batch: a few samples, at least 2.
        steps: points on the path that will be used; the finer try has at least 256.
        large: one sample alone fills the memory meant for a tile: two samples are tried, with ``steps``
            points only, and not whether the edges add up (the gap is stored with every circuit).

    Raises:
        TraceError: one of them does not hold; says which.
    """
    batch, coarse = (batch[:FEW], steps) if large else (batch, COARSE)
    with frozen(engine.model), torch.no_grad():
        plain, ends = engine.metric(engine.model, batch), engine.ends(batch)
    if not _same(ends.value, plain):
        raise _refusal(engine, "its pass along the components does not give its own score")
    found = engine.explain(batch, n_steps=coarse)
    alone = engine.explain(batch[:2], n_steps=coarse, internal_batch_size=1)
    if not _same(found.edges[:2], alone.edges):
        raise _refusal(engine, "the edges of a sample depend on the other samples of its batch")
    gap = _gap(found, ends)
    if large or gap <= LARGEST_GAP:
        return
    finer = _gap(engine.explain(batch, n_steps=max(FINE, steps), internal_batch_size=1), ends)
    if finer > max(LARGEST_GAP, gap / 2):
        raise _refusal(
            engine,
            "the edges that leave its sources do not add up to the change of its score from the "
            f"{engine.baseline} baseline",
            " or baseline",
        )


def _same(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() <= SHARE * b.abs().max() + ROUNDING * ROUNDING)


def _gap(found: EdgeAttributions, ends: Ends) -> float:
    """Gap beyond what rounding of the value explains, as a share of the change."""
    gap = found.delta + found.change - ends.change
    beyond = (gap.abs() - ROUNDING * (1 + ends.value.abs())).clamp_min(0)
    return float(beyond.sum() / ends.change.abs().sum().clamp_min(ROUNDING * ROUNDING))


def _refusal(engine: EdgeAttribution, reason: str, other: str = "") -> TraceError:
    name = type(engine.model).__name__
    return TraceError(f"{name} cannot be traced: {reason}. Choose another model{other}.")


__all__ = ["check_trust"]
