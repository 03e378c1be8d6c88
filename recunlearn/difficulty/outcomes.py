"""How hard each probed entity was to unlearn: three definitions of the outcome."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.records import Outcomes

Array = NDArray[np.float64]
OUTCOMES = ("increase", "share-left", "level")


def measurable(outcomes: Outcomes, kind: str) -> NDArray[np.bool_]:
    """``[n]`` bool: entities whose outcome means something.

    ``share-left`` needs L_R − L_0 of at least twice the retraining noise (and above 0); every outcome needs
    losses that are numbers. An infinite loss after unlearning is a loss: wholly forgotten.
    """
    fine: NDArray[np.bool_] = np.isfinite(outcomes.loss_before) & ~np.isnan(outcomes.loss_after).any((0, 1))
    if kind == "share-left":
        gap = retrained_gap(outcomes)
        fine &= np.isfinite(gap) & (gap > 0) & (gap >= 2 * outcomes.noise)
    return fine


def unlearned_methods(outcomes: Outcomes) -> NDArray[np.bool_]:
    """``[M]`` bool: methods that went at least half of the way from the mean L_0 to the mean L_R.

    The ranks of a method that moved nothing are noise. All methods count where there is no way to go
    (L_R <= L_0), no retrained model, or none went half of it.
    """
    everyone = np.ones(len(outcomes.methods), dtype=bool)
    if not outcomes.loss_retrained.size:
        return everyone
    way = float(retrained_gap(outcomes).mean())
    gone = outcomes.loss_after.mean((1, 2), dtype=np.float64) - outcomes.loss_before.mean(dtype=np.float64)
    voting: NDArray[np.bool_] = ~(gone < way / 2)
    return voting if way > 0 and voting.any() else everyone


def retrained_gap(outcomes: Outcomes) -> Array:
    """L_R − L_0 with L_R the mean over retrained models: ``[n]``, what retraining would forget."""
    gap: Array = outcomes.loss_retrained.mean(0, dtype=np.float64) - outcomes.loss_before
    return gap


def hardness(outcomes: Outcomes, kind: str) -> Array:
    """Hardness per method, seed and entity, higher = harder: ``[M, S, n]``; NaN where not measurable.

    increase −(L_U − L_0), share-left (L_R − L_U) / (L_R − L_0), level −L_U: docs/metrics/outcomes.md.

    Raises:
        UsageError: unknown ``kind``.
    """
    after = outcomes.loss_after.astype(np.float64)
    if kind == "increase":
        value: NDArray[Any] = outcomes.loss_before - after
    elif kind == "level":
        value = -after
    elif kind == "share-left":
        gap = retrained_gap(outcomes)
        safe = np.where(measurable(outcomes, kind), gap, np.nan)
        value = (outcomes.loss_before + gap - after) / safe
    else:
        raise UsageError(f"Unknown outcome {kind!r}. Allowed: {', '.join(OUTCOMES)}.")
    return np.where(measurable(outcomes, kind), value, np.nan)


def combined(parts: Sequence[Outcomes]) -> Outcomes:
    """Outcomes of entities that were probed apart, as if in one probe: same methods, seeds, retrained models.

    Noise is pooled over entities. What belongs to a single probe (budgets, settings) is left out.

    Raises:
        ValueError: methods, seeds or the number of retrained models differ.
    """
    first = parts[0]
    if any(
        (p.methods, p.seeds, len(p.loss_retrained)) != (first.methods, first.seeds, len(first.loss_retrained))
        for p in parts
    ):
        raise ValueError("the probes have other methods, seeds or numbers of retrained models")
    sizes = [len(p.entities) for p in parts]
    return Outcomes(
        np.concatenate([p.entities for p in parts]),
        first.methods,
        first.seeds,
        np.concatenate([p.loss_before for p in parts]),
        np.concatenate([p.loss_after for p in parts], axis=2),
        np.concatenate([p.loss_retrained for p in parts], axis=1),
        np.concatenate([p.loss_population for p in parts]),
        noise=float(np.sqrt(np.average([p.noise**2 for p in parts], weights=sizes))),
    )


def part(
    outcomes: Outcomes,
    *,
    rows: NDArray[np.int64] | None = None,
    methods: Sequence[str] | None = None,
    runs: Sequence[int] | None = None,
) -> Outcomes:
    """Outcomes of some entities (rows), methods (names) and unlearning runs (places in ``seeds``)."""
    chosen = np.arange(len(outcomes.entities)) if rows is None else rows
    kept = np.array([outcomes.methods.index(m) for m in (methods or outcomes.methods)], dtype=np.int64)
    places = np.arange(len(outcomes.seeds)) if runs is None else np.array(runs, dtype=np.int64)
    return replace(
        outcomes,
        entities=outcomes.entities[chosen],
        methods=tuple(outcomes.methods[k] for k in kept),
        seeds=tuple(outcomes.seeds[k] for k in places),
        loss_before=outcomes.loss_before[chosen],
        loss_after=outcomes.loss_after[np.ix_(kept, places, chosen)],
        loss_retrained=outcomes.loss_retrained[:, chosen],
        loss_population=outcomes.loss_population[chosen],
    )
