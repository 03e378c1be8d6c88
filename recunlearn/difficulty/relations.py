"""Is a score more than something trivial? Rank correlations with plain facts, and their p-values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from recunlearn.difficulty.effects import holm

Floats = NDArray[np.floating[Any]]
LEAST = 4
"""Pairs below which a rank correlation says nothing."""


@dataclass(frozen=True)
class Relation:
    """Spearman's rank correlation of a score with one fact.

    Args:
        name: of the fact.
        rho: correlation; NaN where one side is constant or there are fewer than :data:`LEAST` pairs.
        low, high: its 95 % interval.
        p: two-sided p of no relation.
        p_holm: p corrected over the facts that were looked at.
        n: pairs.
    """

    name: str
    rho: float
    low: float
    high: float
    p: float
    p_holm: float
    n: int


def relations(score: Floats, facts: Mapping[str, Floats]) -> list[Relation]:
    """Relation of ``score`` with each fact: ``[n]`` each, pairs with NaN left out.

    p by Student's t with n − 2 degrees of freedom; the interval by Fisher's z with the variance
    (1 + rho²/2) / (n − 3) of Bonett and Wright (2000).
    """
    found = [_relation(name, np.asarray(score), np.asarray(values)) for name, values in facts.items()]
    corrected = holm(np.array([r.p for r in found], dtype=np.float64))
    return [Relation(**{**vars(r), "p_holm": float(p)}) for r, p in zip(found, corrected, strict=True)]


def _relation(name: str, score: Floats, values: Floats) -> Relation:
    known = np.isfinite(score) & np.isfinite(values)
    a, b, n = score[known], values[known], int(known.sum())
    nothing = float("nan")
    if n < LEAST or np.ptp(a) == 0 or np.ptp(b) == 0:
        return Relation(name, nothing, nothing, nothing, nothing, nothing, n)
    test = stats.spearmanr(a, b)
    rho = float(test.statistic)
    z = np.arctanh(np.clip(rho, -1 + 1e-15, 1 - 1e-15))
    wide = stats.norm.ppf(0.975) * np.sqrt((1 + rho**2 / 2) / (n - 3))
    low, high = np.tanh([z - wide, z + wide])
    return Relation(name, rho, float(low), float(high), float(test.pvalue), nothing, n)
