"""Paired comparisons: interval and test of the mean difference of two measurements of the same things."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.floating[Any]]
DRAWS = 9999


def paired_interval(a: Floats, b: Floats, seed: int = 0, level: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap interval of mean(b − a), pairs redrawn together: ``[n], [n]``.

    Pairs with NaN are left out; NaN, NaN with fewer than two pairs.
    """
    apart = _differences(a, b)
    if len(apart) < 2:
        return float("nan"), float("nan")
    draws = np.random.default_rng(seed).multinomial(len(apart), np.full(len(apart), 1 / len(apart)), DRAWS)
    ends = np.quantile(draws @ apart / len(apart), [(1 - level) / 2, (1 + level) / 2])
    return float(ends[0]), float(ends[1])


def paired_p(a: Floats, b: Floats, seed: int = 0) -> float:
    """Two-sided p of mean(b − a) when the signs of the differences are flipped; exact up to 13 pairs.

    Pairs with NaN are left out; NaN with fewer than two pairs.
    """
    apart = _differences(a, b)
    if len(apart) < 2:
        return float("nan")
    found = stats.permutation_test(
        (apart,),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=DRAWS,
        batch=1000,
        random_state=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def _differences(a: Floats, b: Floats) -> NDArray[np.float64]:
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(f"Pairs need two arrays of one shape, but got {first.shape} and {second.shape}.")
    apart: NDArray[np.float64] = second - first
    return apart[~np.isnan(apart)]
