"""Circuit-guided unlearning difficulty (CUD): where a circuit lies between easy and hard anchors."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recunlearn.difficulty.sides import Side, resampled
from recunlearn.difficulty.similarity import Array, edge_scale, resolve
from recunlearn.difficulty.statistics import band, percentile
from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.records import Anchors, Circuits
from recunlearn.foundation.settings import SimilaritySettings

Rows = NDArray[np.int64]
VANISHING = 1e-9
CHUNK = 8192


@dataclass(frozen=True)
class Scores:
    """Difficulty of every entity, 0 = easy and 1 = hard to unlearn; NaN where the entity was not traced.

    Args:
        entities: external ids, ``[n]``.
        s_easy, s_hard: ``[n]`` similarity to the easy and the hard anchors, in [0, 1].
        cud: ``[n]`` score.
        cud_low, cud_high: ``[n]`` 2.5 and 97.5 % of the score over resampled anchors.
        percentile: ``[n]`` rank of the score among the scored entities, 0 to 100.
        band: ``[n]`` "easy", "medium", "hard" (thirds of the percentile) or "" where not scored.
        is_anchor: ``[n]`` bool.
    """

    entities: NDArray[np.str_]
    s_easy: Array
    s_hard: Array
    cud: Array
    cud_low: Array
    cud_high: Array
    percentile: Array
    band: NDArray[np.str_]
    is_anchor: NDArray[np.bool_]


def cud(s_easy: Array, s_hard: Array, ties: float = 0.5) -> Array:
    """CUD = (1 − s_E) / ((1 − s_E) + (1 − s_H)); ``ties`` where both distances vanish; NaN stays NaN.

    Source: arXiv 2601.09624.

    >>> cud(np.array([0.4]), np.array([0.8])).round(2).tolist()
    [0.75]
    """
    away, apart = 1 - s_easy, (1 - s_easy) + (1 - s_hard)
    with np.errstate(invalid="ignore"):
        value = np.divide(away, apart, out=np.full_like(apart, ties), where=~(apart <= VANISHING))
    return np.clip(value, 0.0, 1.0)


def score(
    circuits: Circuits,
    anchors: Anchors,
    settings: SimilaritySettings | None = None,
    *,
    reference: Circuits | None = None,
    draws: int = 200,
    seed: int = 0,
) -> Scores:
    """CUD of every entity of ``circuits``, with bootstrap intervals over the anchors.

    Args:
        circuits: the entities to score.
        anchors: easy and hard anchors, found by id in ``reference``; an anchor is never compared with its own
            circuit, neither alone nor inside a mean.
        settings: similarity; a zero circuit (after standardising) scores ``settings.ties``.
        reference: circuits of the anchors and of the users that edges are standardised over;
            default: ``circuits``.
        draws: bootstrap draws of easy and of hard anchors, with replacement.
        seed: of the bootstrap.

    Raises:
        RecunlearnError: no easy or no hard anchor has a circuit, or the edges are not the same.
    """
    chosen = resolve(settings or SimilaritySettings())
    known = circuits if reference is None else reference
    if known.edges != circuits.edges:
        raise RecunlearnError(
            f"The circuits to score have {len(circuits.edges)} edges and those of the anchors "
            f"{len(known.edges)}, or other names. Trace both with the same model and [circuits] settings."
        )
    scale = edge_scale(known.values, chosen.edges)
    rng = np.random.default_rng(seed)
    sides = []
    for rows in anchor_rows(anchors, known).values():
        column = {entity: j for j, entity in enumerate(known.entities[rows].tolist())}
        own = np.array([column.get(entity, -1) for entity in circuits.entities.tolist()], dtype=np.int64)
        sides.append(Side(scale.apply(known.values[rows]), resampled(len(rows), draws, rng), own))
    parts = [
        _chunk(scale.apply(circuits.values[first : first + CHUNK]), first, sides, chosen)
        for first in range(0, len(circuits.entities), CHUNK)
    ]
    s_easy, s_hard, value, low, high = np.concatenate([*parts, np.empty((5, 0))], axis=1)
    ranks = percentile(value)
    anchor = (sides[0].own >= 0) | (sides[1].own >= 0)
    return Scores(circuits.entities, s_easy, s_hard, value, low, high, ranks, band(ranks), anchor)


def anchor_rows(anchors: Anchors, circuits: Circuits) -> dict[str, Rows]:
    """Rows of ``circuits`` of the easy and of the hard anchors; anchors without a circuit are left out.

    Raises:
        RecunlearnError: nothing is left on a side.
    """
    place = {entity: row for row, entity in enumerate(circuits.entities.tolist())}
    found = {}
    for side, chosen in (("easy", anchors.easy), ("hard", anchors.hard)):
        rows = np.array([place.get(e, -1) for e in anchors.entities[chosen].tolist()], dtype=np.int64)
        rows = rows[rows >= 0]
        found[side] = rows[np.isfinite(circuits.values[rows]).all(1)]
        if not len(found[side]):
            raise RecunlearnError(
                f"None of the {len(chosen)} {side} anchors has a circuit. Trace the anchors too: they are of "
                "the same data, with at least one training sample."
            )
    return found


def _chunk(prepared: Array, first: int, sides: list[Side], settings: SimilaritySettings) -> Array:
    """Rows s_easy, s_hard, cud, low, high of one chunk of circuits: ``[5, b]``."""
    untraced = ~np.isfinite(prepared).all(1)
    prepared[untraced] = 0.0
    easy, hard = (side.similarity(prepared, first, settings) for side in sides)
    value = cud(easy, hard, settings.ties)
    value[(prepared == 0).all(1)] = settings.ties
    low, high = _interval(value[:, 1:]) if value.shape[1] > 1 else (value[:, 0], value[:, 0])
    columns = np.stack([easy[:, 0], hard[:, 0], value[:, 0], low, high])
    columns[:, untraced] = np.nan
    return columns


def _interval(values: Array) -> tuple[Array, Array]:
    """2.5 and 97.5 % of every row ``[b, draws]``; a draw of nothing but oneself is left out."""
    ends = np.quantile(values, [0.025, 0.975], axis=1)
    gaps = np.isnan(values).any(1) & ~np.isnan(values).all(1)
    if gaps.any():
        ends[:, gaps] = np.nanquantile(values[gaps], [0.025, 0.975], axis=1)
    return ends[0], ends[1]
