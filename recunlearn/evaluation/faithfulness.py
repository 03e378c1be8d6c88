"""How far edge strengths agree with exact ablation, and how much of a model a few edges carry.

Source: Mueller et al., 2025 (MIB, arXiv 2504.13151) for f(k), CPR and CMD; deviation: the curve begins at
(0, 0), where no edge is kept, and a circuit of k has round(k E) edges, at least one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import trapezoid

Array = NDArray[np.float64]
Values = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]
Ranking = Literal["absolute", "signed"]

FRACTIONS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of the edges that circuits keep (MIB)."""
SMALLEST_CHANGE = 0.01
"""|m(N) - m(empty)| below this share of the mean |change of a sample| leaves nothing to divide by."""


@dataclass(frozen=True)
class Agreement:
    """Agreement of scores with exact effects; a figure is None where ``reasons`` says why.

    Args:
        spearman, pearson: pooled over samples and edges.
        interval: 95 % bootstrap interval of ``spearman``, resampling units (users) with all their edges.
        per_sample: mean over samples of Spearman's rho over edges.
        sign, sign_weighted: share of edges with the sign of their effect, plain and weighted by |effect|;
            edges without an effect are left out.
        reasons: name of a missing figure -> why it is missing.
    """

    spearman: float | None
    pearson: float | None
    interval: tuple[float, float] | None
    per_sample: float | None
    sign: float | None
    sign_weighted: float | None
    reasons: dict[str, str] = field(default_factory=dict)


def agreement(
    exact: Values, scores: Values, units: NDArray[Any] | None = None, *, resamples: int = 500, seed: int = 0
) -> Agreement:
    """Compare scores with exact effects, both ``[B, E]``.

    Args:
        units: ``[B]`` what is resampled as a whole (the user of each sample); None: samples.
        resamples: bootstrap draws (percentile interval); 0: no interval.

    Raises:
        ValueError: shapes differ, or a value is not finite.
    """
    x, y = np.asarray(exact, np.float64), np.asarray(scores, np.float64)
    if x.shape != y.shape or x.ndim != 2:
        raise ValueError(f"Effects and scores must share a shape [B, E], but got {x.shape} and {y.shape}.")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("Effects and scores must be finite numbers.")
    constant = [n for n, v in (("exact effects", x), ("scores", y)) if not v.size or np.ptp(v) == 0]
    if constant:
        reasons = dict.fromkeys(
            ("spearman", "pearson", "interval", "per_sample"),
            f"the {' and the '.join(constant)} are all equal",
        )
        if not x.any():
            reasons |= dict.fromkeys(("sign", "sign_weighted"), "no edge has an effect")
        return Agreement(None, None, None, None, *_signs(x, y), reasons=reasons)
    pooled, one = (_Ranks(x), _Ranks(y)), np.ones(x.shape[1])
    each = [_spearman(_Ranks(a), _Ranks(b), one) for a, b in zip(x, y, strict=True)]
    rows = [rho for rho in each if rho is not None]
    units = np.arange(len(x)) if units is None else units
    single = len(np.unique(units)) < 2
    reasons = {}
    if single:
        reasons["interval"] = "one sample cannot be resampled"
    if not rows:
        reasons["per_sample"] = "in every sample the effects or the scores are all equal"
    return Agreement(
        spearman=_spearman(*pooled, np.ones(x.size)),
        pearson=_pearson(x, y),
        interval=None if single or not resamples else _interval(pooled, units, resamples, seed),
        per_sample=float(np.mean(rows)) if rows else None,
        **dict(zip(("sign", "sign_weighted"), _signs(x, y), strict=True)),
        reasons=reasons,
    )


class _Ranks:
    """Ranks of pooled values ``[B, E]``, sorted only once however often samples are weighted anew."""

    def __init__(self, values: Array) -> None:
        distinct, place = np.unique(values.ravel(), return_inverse=True)
        self.place, self.size = place.ravel(), len(distinct)

    def centred(self, weight: Array) -> tuple[Array, float]:
        """Midranks minus their mean when pair i counts ``weight[i]`` times, and their sum of squares."""
        tied = np.bincount(self.place, weight, self.size)
        ranks = np.cumsum(tied) - tied / 2 - tied.sum() / 2
        return ranks[self.place], float(tied @ ranks**2)


def _spearman(x: _Ranks, y: _Ranks, weight: Array) -> float | None:
    """Spearman's rho; None where a side is constant."""
    (a, a_size), (b, b_size) = x.centred(weight), y.centred(weight)
    size = np.sqrt(a_size * b_size)
    return float(np.clip((weight * a) @ b / size, -1, 1)) if size > 0 else None


def _interval(
    ranks: tuple[_Ranks, _Ranks], units: NDArray[Any], resamples: int, seed: int
) -> tuple[float, float] | None:
    _, unit = np.unique(units, return_inverse=True)
    n, rng = int(unit.max()) + 1, np.random.default_rng(seed)
    found: list[float] = []
    edges = len(ranks[0].place) // len(unit)
    for _ in range(resamples):
        weight = np.bincount(rng.integers(n, size=n), minlength=n)[unit].astype(np.float64)
        rho = _spearman(*ranks, np.repeat(weight, edges))
        found += [] if rho is None else [rho]
    if not found:
        return None
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def _pearson(x: Array, y: Array) -> float:
    x, y = x.ravel() - x.mean(), y.ravel() - y.mean()
    return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1, 1))


def _signs(exact: Array, scores: Array) -> tuple[float | None, float | None]:
    size = np.abs(exact)
    if not size.any():
        return None, None
    same = np.sign(exact) == np.sign(scores)
    return float(same[size > 0].mean()), float(size[same].sum() / size.sum())


def circuit_sizes(edges: int, fractions: Sequence[float] = FRACTIONS) -> list[int]:
    """Numbers of edges that circuits of ``fractions`` keep: rounded, at least one, each once.

    >>> circuit_sizes(100)
    [1, 2, 5, 10, 20, 50, 100]
    """
    return sorted({max(1, round(k * edges)) for k in fractions})


def top_edges(scores: Values, sizes: Sequence[int], ranking: Ranking = "absolute") -> Bools:
    """Circuits of every sample, ``[len(sizes), B, E]``: largest scores first, ties in column order."""
    key = np.abs(scores) if ranking == "absolute" else scores
    order = np.argsort(-key, axis=1, kind="stable")
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.arange(order.shape[1])[None], 1)
    return places[None] < np.asarray(sizes)[:, None, None]


def faithfulness(kept: Values, full: Values, empty: Values) -> Array | str:
    """f = (m(C) - m(empty)) / (m(N) - m(empty)) of the means over samples, or why there is none.

    Args:
        kept: ``[K, B]`` metric of K circuits.
        full, empty: ``[B]`` metric of the whole model and of the baseline.
    """
    change = np.asarray(full, np.float64) - empty
    typical = float(np.abs(change).mean())
    if typical == 0 or abs(change.mean()) < SMALLEST_CHANGE * typical:
        return (
            f"degenerate: the metric of the whole model ({np.mean(full):.4g}) and of the baseline "
            f"({np.mean(empty):.4g}) hardly differ"
        )
    f: Array = (np.asarray(kept, np.float64) - empty).mean(1) / change.mean()
    return f


def areas(sizes: Sequence[int], f: Values) -> tuple[float, float]:
    """CPR (area under f) and CMD (area of |1 - f|) over the share of edges kept, from 0 to the largest.

    >>> areas([50, 100], np.array([1.0, 1.0]))
    (0.75, 0.25)
    """
    x = np.array([0, *sizes], np.float64) / sizes[-1]
    y = np.array([0.0, *f])
    return float(trapezoid(y, x)), float(trapezoid(np.abs(1 - y), x))


def jaccard(a: Bools, b: Bools) -> float:
    """Mean over samples of |A and B| / |A or B| of sets of edges ``[B, E]``; 1 where both are empty."""
    both, either = (a & b).sum(-1), (a | b).sum(-1)
    return float(np.where(either > 0, both / np.maximum(either, 1), 1.0).mean())
