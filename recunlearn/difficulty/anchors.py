"""Anchors: the entities that every method and seed agrees are easy, or hard, to unlearn."""

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from recunlearn.difficulty.outcomes import hardness, measurable, unlearned_methods
from recunlearn.difficulty.statistics import kendall_w, spearman
from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.records import Anchors, Outcomes
from recunlearn.foundation.settings import AnchorSettings

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


def choose_anchors(outcomes: Outcomes, settings: AnchorSettings) -> Anchors:
    """Both ends of the consensus ranking, out of the entities whose rank is most stable.

    Hardness is the mean rank (0 lowest, 1 highest) over seeds, then over methods. In each half of that
    ranking the ``settings.stability`` share with the smallest relative spread of ranks is kept (never fewer
    than ``settings.count``), and the ``settings.count`` most extreme of those are the anchors. Methods that
    did not unlearn (:func:`~recunlearn.difficulty.outcomes.unlearned_methods`) have no vote.

    Raises:
        UsageError: fewer than two times ``count`` measurable entities.
    """
    fine = measurable(outcomes, settings.outcome)
    check_count(settings.count, int(fine.sum()), len(fine))
    voting = unlearned_methods(outcomes)
    ranks = consensus_ranks(hardness(outcomes, settings.outcome)[voting][:, :, fine])
    mean, spread = mean_rank(ranks, (0, 1)), relative_spread(ranks)
    rows = np.flatnonzero(fine)
    easy, hard = stable_ends(mean, spread, settings.count, settings.stability)
    everyone = np.full(len(fine), np.nan)
    everyone[fine] = mean
    chosen = np.concatenate([easy, hard])
    figures = agreement(ranks) | {
        "pool": float(len(fine)),
        "not_measurable": float((~fine).sum()),
        "methods_without_vote": float((~voting).sum()),
        "spread_pool": float(spread.mean()),
        "spread_anchors": float(spread[chosen].mean()),
    }
    return Anchors(
        outcomes.entities, everyone, rows[easy], rows[hard], fine, figures, settings.model_dump(mode="json")
    )


def check_count(count: int, available: int, pool: int) -> None:
    """Refuse more anchors a side than half of the measurable pool."""
    if available < 2:
        raise UsageError(
            f"{available} of the {pool} outcomes of the probe can be measured, so there are no anchors. "
            "Choose another outcome, raise [anchors] pool, or train the model longer."
        )
    if count > available // 2:
        raise UsageError(
            f"Anchor count must be between 1 and {available // 2} (half of the {available} of {pool} "
            f"outcomes of the probe that can be measured), but got {count}. Lower [anchors] count or raise "
            "its pool."
        )


def consensus_ranks(values: Array) -> Array:
    """Ranks in [0, 1] within every method and seed, ties averaged: ``[M, S, n] -> [M, S, n]``."""
    n = values.shape[-1]
    ranks: Array = (np.asarray(rankdata(values, axis=-1)) - 1) / max(n - 1, 1)
    return ranks


def mean_rank(ranks: Array, axis: int | tuple[int, ...]) -> Array:
    """Mean of ranks in [0, 1] over methods, seeds or both: ``[M, S, n]`` -> ``[..., n]``.

    Averaged as places 0 to n − 1: sums of half numbers are exact, so that equal means stay equal and ties
    are seen as ties.
    """
    last = max(ranks.shape[-1] - 1, 1)
    places = np.round(2 * last * ranks) / 2
    mean: Array = places.mean(axis) / last
    return mean


def relative_spread(ranks: Array) -> Array:
    """Standard deviation of ranks over the largest their mean p allows, √(p (1 − p)): ``[M, S, n] -> [n]``.

    Ranks near an end have little room to vary, so the plain deviation calls every extreme entity stable.
    """
    mean, deviation = ranks.mean((0, 1)), ranks.std((0, 1))
    room = np.sqrt(mean * (1 - mean))
    relative: Array = np.divide(deviation, room, out=np.zeros_like(deviation), where=room > 0)
    return relative


def stable_ends(mean: Array, spread: Array, count: int, stability: float) -> tuple[Rows, Rows]:
    """Rows of the easiest and the hardest ``count`` of the stable part of each half, most extreme first.

    Of equal means the one with the smaller spread comes first on either side.
    """
    order = np.lexsort((spread, mean))
    half = len(order) // 2
    upper = order[len(order) - half :]
    return (
        _stable_first(order[:half], spread, count, stability),
        _stable_first(upper[np.lexsort((spread[upper], -mean[upper]))], spread, count, stability),
    )


def _stable_first(outward: NDArray[Any], spread: Array, count: int, stability: float) -> Rows:
    keep = max(count, int(np.ceil(stability * len(outward))))
    stable = np.sort(np.argsort(spread[outward], kind="stable")[:keep])
    return outward[stable[:count]].astype(np.int64)


def agreement(ranks: Array) -> dict[str, float]:
    """Agreement of methods and of seeds: ranks ``[M, S, n]`` -> figures.

    Kendall's W with its p-value, mean pairwise Spearman. Of methods: between their mean ranks over seeds. Of
    seeds: within each method, then the mean W and rho and the largest p over methods. Figures that need a
    second method or seed are left out where there is one.
    """
    figures: dict[str, float] = {}
    by_method = mean_rank(ranks, 1)
    if len(by_method) > 1:
        figures["kendall_w_methods"], figures["p_methods"] = kendall_w(by_method)
        pairs = [spearman(a, b) for a, b in combinations(by_method, 2)]
        figures["spearman_methods"] = float(np.mean(pairs))
    if ranks.shape[1] > 1:
        seeds = [kendall_w(of_method) for of_method in ranks]
        figures["kendall_w_seeds"] = float(np.mean([w for w, _ in seeds]))
        figures["p_seeds"] = max(p for _, p in seeds)
        figures["spearman_seeds"] = float(
            np.mean([spearman(a, b) for of_method in ranks for a, b in combinations(of_method, 2)])
        )
    return figures
