"""Does a score predict an outcome? Rank correlations over held-out entities, with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from recunlearn.foundation.errors import RecunlearnError

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
TINY = 1e-9
"""Share of its variance below which what controls leave of a column is rounding error."""
FEWEST = 10
"""Users beyond the number of controls that a correlation needs."""
CONSTANT_SCORE = "the score is the same for all"
CONSTANT_OUTCOME = "the outcome is the same for all"


class LeakError(RecunlearnError):
    """A score was fitted on an entity that it is tested on."""


def check_held_out(name: str, fold: NDArray[np.integer[Any]], fitted: Mask) -> None:
    """Refuse a score whose making saw an entity that it is tested on.

    Args:
        name: of the score, for the sentence.
        fold: ``[n]`` number of the fold in which each entity is tested, −1 nowhere.
        fitted: ``[folds, n]`` whether the score of that fold rests on the entity's outcome (anchors, fit).

    Raises:
        LeakError: with the number of such entities.
    """
    tested = fold[None, :] == np.arange(len(fitted))[:, None]
    if leaks := int((tested & fitted).any(0).sum()):
        raise LeakError(
            f"The score '{name}' was fitted on {leaks} of the entities that it is tested on, so its "
            "correlation would mean nothing. Fit it on other folds only."
        )


def ranks_within(values: Floats, fold: NDArray[np.integer[Any]]) -> Array:
    """Ranks in (0, 1) among the entities of the same fold, ties averaged: ``[..., n] -> [..., n]``.

    (rank − ½) / number. NaN where the value is NaN or the fold −1. Folds were unlearned apart, and scores of
    two folds rest on different anchors: only ranks within a fold are comparable.
    """
    values = np.asarray(values, dtype=np.float64)
    ranks = np.full(values.shape, np.nan)
    for row in np.ndindex(values.shape[:-1]):
        for number in np.unique(fold[fold >= 0]):
            inside = (fold == number) & ~np.isnan(values[row])
            if inside.any():
                ranks[(*row, inside)] = (rankdata(values[row][inside]) - 0.5) / inside.sum()
    return ranks


@dataclass(frozen=True)
class Draws:
    """Correlation with every outcome, as it is and in every bootstrap draw.

    Args:
        raw, partial: ``[1 + draws, M]``; row 0 is the estimate. NaN where there is none.
        n: entities that count.
        reason: why there is no number; "" where there is.
    """

    raw: Array
    partial: Array
    n: int
    reason: str = ""


def correlations(
    score: Floats,
    outcome: Floats,
    controls: Sequence[Floats],
    fold: NDArray[np.integer[Any]],
    *,
    draws: int = 500,
    seed: int = 0,
) -> Draws:
    """Spearman of a score with M outcomes over entities, ranked within folds; raw, and partial over controls.

        ρ_xy·c = S_xy / √(S_xx S_yy),  S = G_bb − G_ba G_aa⁻¹ G_ab,  a = (1, controls), b = (x, y)

    with G the (weighted) products of rank columns. With one fold the estimate is
    :func:`~recunlearn.difficulty.statistics.partial_spearman`. The bootstrap redraws entities within folds
    and keeps their ranks, so that ties of an entity drawn twice are no news.

    Args:
        score: ``[n]``, or ``[M, n]`` one for each outcome.
        outcome: ``[M, n]``.
        controls: each ``[n]``.
        fold: ``[n]``, −1: the entity does not count.
        draws: of the bootstrap.
        seed: of the draws.
    """
    parts = [np.atleast_2d(score), np.atleast_2d(outcome), *(np.atleast_2d(c) for c in controls)]
    table = np.concatenate(parts).astype(np.float64)
    counts = (fold >= 0) & ~np.isnan(table).any(0)
    n, m, inside = int(counts.sum()), len(parts[1]), fold[counts]
    nothing = np.full((1 + draws, m), np.nan)
    if n < len(controls) + FEWEST:
        return Draws(nothing, nothing, n, f"{n} users are too few for {len(controls)} controls")
    ranks = ranks_within(table[:, counts], inside)
    x, y, held = np.split(ranks, [len(parts[0]), len(parts[0]) + m])
    for columns, reason in ((x, CONSTANT_SCORE), (y, CONSTANT_OUTCOME)):
        if (np.ptp(columns, axis=1) < TINY).any():
            return Draws(nothing, nothing, n, reason)
    held = np.concatenate([np.ones((1, n)), held])
    weights = bootstrap_weights(inside, draws, seed)
    raw, partial = (_each(x, y, columns, weights) for columns in (held[:1], held))
    return Draws(raw, partial, n)


def bootstrap_weights(fold: NDArray[np.integer[Any]], draws: int, seed: int) -> Array:
    """How often each entity counts: all ones, then redrawn within folds: ``[1 + draws, n]``."""
    rng = np.random.default_rng(seed)
    weights = np.ones((1 + draws, len(fold)))
    for number in np.unique(fold):
        inside = np.flatnonzero(fold == number)
        share = np.full(len(inside), 1 / len(inside))
        weights[1:, inside] = rng.multinomial(len(inside), share, size=draws)
    return weights


def _each(x: Array, y: Array, held: Array, weights: Array) -> Array:
    """Every row of y with the one row of x, or with its own: ``[B, M]``."""
    if len(x) == 1:
        return _partial(x, y, held, weights)
    pairs = [_partial(x[k : k + 1], y[k : k + 1], held, weights) for k in range(len(y))]
    return np.concatenate(pairs, axis=1)


def _partial(x: Array, y: Array, held: Array, weights: Array) -> Array:
    """Weighted partial correlations of ``[1, n]`` and ``[M, n]``, held ``[c, n]``, weights ``[B, n]``."""
    columns = np.concatenate([held, x, y])
    size, c = len(columns), len(held)
    products = (columns[:, None, :] * columns[None, :, :]).reshape(size * size, -1)
    gram = (weights @ products.T).reshape(-1, size, size)
    solved = np.linalg.pinv(gram[:, :c, :c], hermitian=True) @ gram[:, :c, c:]
    left = gram[:, c:, c:] - gram[:, c:, :c] @ solved
    spread = np.diagonal(left, axis1=1, axis2=2)
    whole = np.diagonal(gram, axis1=1, axis2=2)[:, c:]
    spread = np.where(spread > TINY * whole, spread, np.nan)
    found: Array = left[:, 0, 1:] / np.sqrt(spread[:, :1] * spread[:, 1:])
    return np.clip(found, -1.0, 1.0)


@dataclass(frozen=True)
class Correlation:
    """A correlation over several trainings: medians over them, of the mean over methods and of each.

    Args:
        mean: over methods.
        low, high: 95 % interval of ``mean``: entities redrawn in every training, medians taken anew.
        by_method: method -> correlation.
        by_seed: ``mean`` of each training.
        n: entities that count in the first training.
        reason: why there is no number.
    """

    mean: float
    low: float
    high: float
    by_method: Mapping[str, float]
    by_seed: tuple[float, ...]
    n: int
    reason: str = ""


def over_seeds(found: Sequence[Draws], methods: Sequence[str], kind: str = "raw") -> Correlation:
    """Median over trainings of the mean over methods; ``kind``: "raw" or "partial"."""
    values = np.stack([getattr(one, kind) for one in found])  # [seeds, 1 + draws, M]
    reason = next((one.reason for one in found if one.reason), "")
    if not reason and np.isnan(values[:, 0]).any():
        reason = "nothing is left of the score or the outcome with the controls held fixed"
    if reason:
        nan = float("nan")
        return Correlation(nan, nan, nan, {}, (), found[0].n, reason)
    means = values.mean(2)
    middle = np.median(means, axis=0)
    ends = np.nanquantile(middle[1:], [0.025, 0.975]) if len(middle) > 1 else np.full(2, np.nan)
    by_method = np.median(values[:, 0], axis=0)
    return Correlation(
        float(middle[0]),
        float(ends[0]),
        float(ends[1]),
        dict(zip(methods, by_method.tolist(), strict=True)),
        tuple(means[:, 0].tolist()),
        found[0].n,
    )


def agreement(outcome: Floats, fold: NDArray[np.integer[Any]]) -> float:
    """Mean Spearman of all pairs of rows, ranked within folds: ``[M, n] -> []``.

    NaN with one row, fewer than three entities, or a row that is the same for all.
    """
    rows = np.asarray(outcome)[:, (fold >= 0) & ~np.isnan(outcome).any(0)]
    inside = fold[(fold >= 0) & ~np.isnan(outcome).any(0)]
    if len(rows) < 2 or rows.shape[1] < 3:
        return float("nan")
    ranks = ranks_within(rows, inside)
    if (np.ptp(ranks, axis=1) < TINY).any():
        return float("nan")
    table: Array = np.atleast_2d(np.corrcoef(ranks))
    return float(table[np.triu_indices(len(rows), 1)].mean())


def calibration(predicted: Array, found: Array) -> dict[str, Any]:
    """Predicted against found outcome by tenth of the prediction, and how often the interval holds it.

    Args:
        predicted: ``[3, n]`` value, low and high end.
        found: ``[n]``.

    Empty where nobody was both predicted and measured.
    """
    known = np.isfinite(found) & np.isfinite(predicted).all(0)
    if not known.any():
        return {}
    mean, low, high = predicted[:, known]
    truth = found[known]
    tenths = np.array_split(np.argsort(mean, kind="stable"), min(10, len(mean)))
    return {
        "users": int(known.sum()),
        "coverage": float(((truth >= low) & (truth <= high)).mean()),
        "median_width": float(np.median(high - low)),
        "median_error": float(np.median(np.abs(truth - mean))),
        "tenths": [[float(mean[t].mean()), float(truth[t].mean())] for t in tenths],
    }
