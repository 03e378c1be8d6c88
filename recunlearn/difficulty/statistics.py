"""Rank statistics: correlation, partial correlation, concordance, percentiles."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]
Values = NDArray[np.floating[Any]] | NDArray[np.integer[Any]]


def spearman(x: Values, y: Values) -> float:
    """Spearman's rho of ``x`` and ``y`` ``[n]``; pairs with NaN are left out; NaN if one side is constant.

    >>> round(spearman(np.array([1, 2, 3, 4]), np.array([10, 20, 40, 30])), 6)
    0.8
    """
    return partial_spearman(x, y, [])


def partial_spearman(x: Values, y: Values, controls: list[Values]) -> float:
    """Rank correlation of ``x`` and ``y`` with ``controls`` (each ``[n]``) held fixed.

    Pearson correlation of the residuals of the ranks of x and y on the ranks of the controls. Rows with a
    NaN anywhere are left out; NaN where a residual vanishes or too few rows remain.
    """
    table = np.column_stack([np.asarray(v, dtype=np.float64) for v in (x, y, *controls)])
    table = table[~np.isnan(table).any(1)]
    if len(table) < len(controls) + 3:
        return float("nan")
    ranks = stats.rankdata(table, axis=0)
    design = np.column_stack([np.ones(len(ranks)), ranks[:, 2:]])
    left, right = (_residual(ranks[:, i], design) for i in (0, 1))
    # Residuals of what the controls explain wholly are rounding errors: compare with the ranks' own size.
    tiny = 1e-9 * len(ranks) ** 1.5
    sizes = float(np.linalg.norm(left)), float(np.linalg.norm(right))
    if min(sizes) <= tiny:
        return float("nan")
    return float(np.clip(left @ right / (sizes[0] * sizes[1]), -1.0, 1.0))


def _residual(ranks: Array, design: Array) -> Array:
    fitted: Array = design @ np.linalg.lstsq(design, ranks, rcond=None)[0]
    return ranks - fitted


def kendall_w(scores: NDArray[np.floating[Any]]) -> tuple[float, float]:
    """Kendall's coefficient of concordance W and its p-value: ``[m raters, n objects]``.

        W = 12 S / (m² (n³ − n) − m Σ_raters Σ_ties (t³ − t)),   S = Σ_objects (rank sum − mean)²

    p: chi-square m (n − 1) W with n − 1 degrees of freedom. Source: Kendall and Babington Smith (1939),
    tie correction as in Siegel and Castellan (1988). NaN, NaN with one rater, one object or no differences.

    >>> kendall_w(np.array([[1.0, 2, 3], [10.0, 20, 30]]))[0]
    1.0
    """
    m, n = scores.shape
    if m < 2 or n < 2:
        return float("nan"), float("nan")
    ranks = stats.rankdata(scores, axis=1)
    sums = ranks.sum(0)
    ties = sum(float(((c := np.unique(row, return_counts=True)[1]) ** 3 - c).sum()) for row in ranks)
    largest = m**2 * (n**3 - n) - m * ties
    if largest <= 0:
        return float("nan"), float("nan")
    w = float(12 * ((sums - sums.mean()) ** 2).sum() / largest)
    return w, float(stats.chi2.sf(m * (n - 1) * w, n - 1))


def percentile(values: Array, among: Array | None = None) -> Array:
    """Rank from 0 (lowest) to 100 (highest), ties averaged: ``[n] -> [n]``; NaN stays NaN.

    100 · (others below + half of the others equal) / others; 50 where there are no others.
    ``among``: ``[k]`` rank against these values, which do not hold ``values``; default: among themselves.

    >>> percentile(np.array([0.1, 0.5, 0.5, 0.9])).tolist()
    [0.0, 50.0, 50.0, 100.0]
    """
    pool = values if among is None else among
    pool = np.sort(pool[~np.isnan(pool)])
    own = 1 if among is None else 0
    others = len(pool) - own
    below = np.searchsorted(pool, values, side="left")
    equal = np.searchsorted(pool, values, side="right") - below - own
    share = 100.0 * (below + equal / 2) / others if others > 0 else np.full(len(values), 50.0)
    return np.where(np.isnan(values), np.nan, share)


def band(percentiles: Array) -> NDArray[np.str_]:
    """``easy``, ``medium`` or ``hard``: thirds of the percentile; empty where it is NaN: ``[n] -> [n]``.

    >>> band(np.array([0.0, 50.0, 100.0, np.nan])).tolist()
    ['easy', 'medium', 'hard', '']
    """
    names = np.array(["easy", "medium", "hard", ""])
    third = np.digitize(percentiles, [100 / 3, 200 / 3])
    return names[np.where(np.isnan(percentiles), 3, third)]
