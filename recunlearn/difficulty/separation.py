"""Which signatures and which single edges separate easy from hard users, and what activity leaves of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from recunlearn.difficulty.effects import (
    cliffs_delta,
    correlation_interval,
    delta_interval,
    holm,
    permutation_p,
)
from recunlearn.difficulty.overlap import Overlap, pairwise
from recunlearn.difficulty.signatures import SIGNATURES, Signature, shapes
from recunlearn.difficulty.statistics import Values, partial_spearman, spearman
from recunlearn.foundation.records import Circuits

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
LEAST = 6
"""Fewest users a group: with 5 and 5 the smallest p is 2 / 252 = .008, above .05 / 7 for seven signatures."""
LEVEL = 0.05
AS_CLAIMED, OPPOSITE, NO_DIFFERENCE, CONSTANT = (
    "as the paper says",
    "opposite",
    "no difference",
    "same for all",
)


@dataclass(frozen=True)
class Contrast:
    """One signature in easy and in hard users.

    Args:
        key, title, claim: of the signature; ``claim`` "higher" or "lower" in hard users.
        easy, hard: medians.
        delta, low, high: Cliff's delta, positive where hard users have more, with its 95 % interval.
        p, p_holm: of the permutation test, and corrected for the signatures of the comparison.
        verdict: of ``p_holm`` below .05 and the sign of ``delta``; "same for all" where nothing varies.
    """

    key: str
    title: str
    claim: str
    easy: float
    hard: float
    delta: float
    low: float
    high: float
    p: float
    p_holm: float
    verdict: str


@dataclass(frozen=True)
class Overlaps:
    """Mean overlap of pairs within easy, within hard and between; p: within above between."""

    key: str
    easy: float
    hard: float
    between: float
    p: float


@dataclass(frozen=True)
class EdgeContrast:
    """One edge's share e / Σ|e| in easy and in hard users: medians, Cliff's delta, p and Holm's p."""

    edge: str
    easy: float
    hard: float
    delta: float
    p: float
    p_holm: float


@dataclass(frozen=True)
class Comparison:
    """Easy against hard users; without a number and with a ``reason`` where there are too few."""

    title: str
    n_easy: int
    n_hard: int
    reason: str = ""
    signatures: tuple[Contrast, ...] = ()
    overlaps: tuple[Overlaps, ...] = ()
    edges: tuple[EdgeContrast, ...] = ()
    separating: int = 0
    """Edges with a corrected p below .05."""


@dataclass(frozen=True)
class Association:
    """Spearman correlation of a signature with a target over n users: plain, and with controls held fixed."""

    key: str
    title: str
    target: str
    n: int
    rho: float
    partial: float
    low: float
    high: float


def compare(
    title: str, circuits: Circuits, easy: Rows, hard: Rows, *, seed: int = 0, edges: int = 10
) -> Comparison:
    """Compare the circuits of two groups.

    Args:
        title: what the groups are.
        circuits: of all users; untraced users and circuits of zeros do not count.
        easy, hard: rows of ``circuits``.
        seed: of shuffles and bootstrap.
        edges: number of single edges to return, strongest separation first.

    Raises:
        RecunlearnError: the circuits hold no graph.
    """
    shape = shapes(circuits)
    known = ~np.isnan(np.sum(list(shape.values()), axis=0))
    easy, hard = easy[known[easy]], hard[known[hard]]
    if min(len(easy), len(hard)) < LEAST:
        reason = (
            f"too few users for a test: {len(easy)} easy, {len(hard)} hard, at least {LEAST} each are needed"
        )
        return Comparison(title, len(easy), len(hard), reason)
    matrices = pairwise(circuits.values[np.concatenate([easy, hard])])
    together = {key: Overlap(matrix, len(easy)) for key, matrix in matrices.items()}
    alone = {key: (value[easy], value[hard]) for key, value in shape.items()}
    found = [_alone(s, *alone[s.key], seed) for s in SIGNATURES if s.key in alone]
    found += [_together(s, together[s.key], seed) for s in SIGNATURES if s.key in together]
    single = _edges(circuits, easy, hard)
    return Comparison(
        title,
        len(easy),
        len(hard),
        signatures=_corrected(found),
        overlaps=tuple(Overlaps(key, *o.means(), o.p_apart(seed)) for key, o in together.items()),
        edges=tuple(single[:edges]),
        separating=sum(e.p_holm < LEVEL for e in single),
    )


def _alone(signature: Signature, easy: Array, hard: Array, seed: int) -> Contrast:
    """Contrast of a signature that every user has alone."""
    easy, hard = easy.round(9), hard.round(9)  # what is equal but for rounding is a tie
    if np.ptp(np.concatenate([easy, hard])) == 0:
        return _contrast(signature, easy, hard, (np.nan, np.nan), np.nan)
    return _contrast(signature, easy, hard, delta_interval(easy, hard, seed), permutation_p(easy, hard, seed))


def _together(signature: Signature, overlap: Overlap, seed: int) -> Contrast:
    """Contrast of the overlap of users with their own group."""
    easy, hard = (values.round(9) for values in overlap.members())
    return _contrast(signature, easy, hard, overlap.interval(seed), overlap.p_less_alike(seed))


def _contrast(s: Signature, easy: Array, hard: Array, interval: tuple[float, float], p: float) -> Contrast:
    medians = float(np.median(easy)), float(np.median(hard))
    claim = "higher" if s.hard > 0 else "lower"
    return Contrast(s.key, s.title, claim, *medians, cliffs_delta(easy, hard), *interval, p, p, "")


def _corrected(found: Sequence[Contrast]) -> tuple[Contrast, ...]:
    p_holm = holm(np.array([c.p for c in found]))
    values = zip(found, p_holm.tolist(), strict=True)
    return tuple(Contrast(**(vars(c) | {"p_holm": p, "verdict": _verdict(c, p)})) for c, p in values)


def _verdict(c: Contrast, p: float) -> str:
    if np.isnan(p):
        return CONSTANT
    if p >= LEVEL or c.delta == 0:
        return NO_DIFFERENCE
    return AS_CLAIMED if (c.delta > 0) == (c.claim == "higher") else OPPOSITE


def _edges(circuits: Circuits, easy: Rows, hard: Rows) -> list[EdgeContrast]:
    """Every edge that varies, largest |delta| first, of equals the largest difference of medians.

    p: Mann-Whitney, the permutation test of Cliff's delta by its exact or large-sample distribution. 9,999
    random shuffles could not go below 2e-4, which a correction for hundreds of edges would lift above .05.
    """
    values = circuits.values[np.concatenate([easy, hard])].astype(np.float64)
    share = values / np.abs(values).sum(1, keepdims=True)
    kept = np.flatnonzero(np.ptp(share, axis=0) > 0)
    low, high = share[: len(easy), kept], share[len(easy) :, kept]
    test = stats.mannwhitneyu(high, low, axis=0)
    deltas = 2 * test.statistic / (len(easy) * len(hard)) - 1
    p_holm = holm(test.pvalue)
    found = [
        EdgeContrast(circuits.edges[e], float(a), float(b), float(d), float(p), float(q))
        for e, a, b, d, p, q in zip(
            kept, np.median(low, 0), np.median(high, 0), deltas, test.pvalue, p_holm, strict=True
        )
    ]
    return sorted(found, key=lambda e: (-abs(e.delta), -abs(e.hard - e.easy)))


def associations(
    circuits: Circuits, rows: Rows, target: Values, name: str, controls: Mapping[str, Values]
) -> tuple[Association, ...]:
    """Spearman of every user's signatures with ``target``, plain and with ``controls`` held fixed.

    Args:
        circuits: of all users.
        rows: users to correlate over, ``[n]``.
        target: ``[n]`` such as CUD; name: what it is.
        controls: ``[n]`` each; one without a single number (no user vectors) is left out.
    """
    held = [c for c in controls.values() if not np.isnan(c).all()]
    found = []
    titles = {s.key: s.title for s in SIGNATURES}
    for key, value in sorted(shapes(circuits).items(), key=lambda kv: list(titles).index(kv[0])):
        own = value[rows].round(9)
        known = ~np.isnan(np.column_stack([own, target, *held])).any(1)
        rho, partial = spearman(own, target), partial_spearman(own, target, held)
        interval = correlation_interval(partial, int(known.sum()), len(held))
        found.append(Association(key, titles[key], name, int(known.sum()), rho, partial, *interval))
    return tuple(found)
