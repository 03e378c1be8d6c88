"""Two groups of users compared: effect size with interval, permutation test, correction for many tests."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from recunlearn.difficulty.sides import resampled

Array = NDArray[np.float64]
Values = NDArray[np.floating[Any]]
Statistic = Callable[..., Any]

PERMUTATIONS = 9999
DRAWS = 2000


def cliffs_delta(low: Values, high: Values) -> float:
    """P(high > low) − P(high < low) of values drawn from two groups ``[n]`` and ``[m]``: −1 to 1.

    Source: Cliff, 1993, "Dominance statistics", Psychological Bulletin 114(3). NaN without values.

    >>> round(cliffs_delta(np.array([1.0, 2, 3]), np.array([2.0, 4])), 4)
    0.5
    """
    if not len(low) or not len(high):
        return float("nan")
    return float(dominance(low, high).mean())


def delta_interval(low: Values, high: Values, seed: int) -> tuple[float, float]:
    """95 % percentile bootstrap of :func:`cliffs_delta`, each group redrawn with replacement."""
    wins, rng = dominance(low, high), np.random.default_rng(seed)
    rows, columns = (resampled(n, DRAWS, rng)[1:] for n in wins.shape)
    deltas = ((rows @ wins) * columns).sum(1) / wins.size
    ends = np.quantile(deltas, [0.025, 0.975])
    return float(ends[0]), float(ends[1])


def dominance(low: Values, high: Values) -> Array:
    """Sign of high − low for every pair: ``[n]``, ``[m]`` -> ``[m, n]``."""
    wins: Array = np.sign(np.asarray(high)[:, None] - np.asarray(low)[None, :]).astype(np.float64)
    return wins


def permutation_p(low: Values, high: Values, seed: int) -> float:
    """Two-sided p of Cliff's delta when group labels are shuffled; exact where there are few shuffles.

    The delta is 2 · (mean rank of high − mean rank of low) / (n + m), and shuffling leaves ranks as they
    are: the shuffled statistic is the difference of mean ranks.
    """
    ranks = stats.rankdata(np.concatenate([low, high]))

    def difference(a: Array, b: Array, axis: int = -1) -> Array:
        apart: Array = b.mean(axis) - a.mean(axis)
        return apart

    return shuffled_p(ranks[: len(low)], ranks[len(low) :], difference, seed)


def shuffled_p(low: NDArray[Any], high: NDArray[Any], statistic: Statistic, seed: int) -> float:
    """Two-sided p of ``statistic(low, high, axis)`` by scipy's permutation test, 9,999 shuffles at most."""
    found = stats.permutation_test(
        (low, high),
        statistic,
        vectorized=True,
        n_resamples=PERMUTATIONS,
        batch=1000,
        alternative="two-sided",
        random_state=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def holm(p: Values) -> Array:
    """p-values corrected for their number: ``[n] -> [n]``; NaN stays NaN and does not count.

    Source: Holm, 1979, "A simple sequentially rejective multiple test procedure".

    >>> holm(np.array([0.01, 0.04, 0.03])).round(4).tolist()
    [0.03, 0.06, 0.06]
    """
    corrected = np.full(len(p), np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return corrected


def correlation_interval(rho: float, n: int, controls: int = 0) -> tuple[float, float]:
    """95 % interval of a (partial) rank correlation over n rows: tanh(atanh ρ ± 1.96 √(1.06 / (n − c − 3))).

    Source: Fieller, Hartley and Pearson, 1957, "Tests for rank correlation coefficients I"; c controls take
    c degrees of freedom. NaN, NaN with too few rows.
    """
    room = n - controls - 3
    if room <= 0 or np.isnan(rho):
        return float("nan"), float("nan")
    centre = np.arctanh(np.clip(rho, -1 + 1e-12, 1 - 1e-12))
    reach = 1.959964 * np.sqrt(1.06 / room)
    return float(np.tanh(centre - reach)), float(np.tanh(centre + reach))
