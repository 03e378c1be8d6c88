"""Forget sets: which users a method is tried on, alike in size and activity but not in difficulty."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recunlearn.foundation.errors import UsageError, near_miss
from recunlearn.foundation.records import ForgetSet
from recunlearn.foundation.seeds import uniform
from recunlearn.foundation.store import content_hash
from recunlearn.foundation.words import USERS, Words

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

STRATA: Mapping[str, tuple[str, str]] = {
    "easy": ("lowest CUD", "lowest CUD of each activity level"),
    "hard": ("highest CUD", "highest CUD of each activity level"),
    "random": ("any user", "any user of each activity level"),
    "core": ("most interactions, as CURE4Rec", "most popular items of each activity level"),
    "edge": ("fewest interactions, as CURE4Rec", "least popular items of each activity level"),
}
"""Which users a set is drawn from: unmatched, matched."""
TOLERANCE = 0.05
"""Matched sets differ by at most this share in their interactions."""
LEVELS = 10
"""Levels of activity that matched sets are balanced over."""
NEAR = 0.024
"""Two sets this near to one target are within 5 % of each other."""
SHARE = 0.2
"""Sets are drawn from this end of the users, so that draws differ."""
PARTS = (SHARE, 0.5, 1.0)
"""Parts that users are exchanged from: a larger one where the smaller does not suffice."""
TRIES = 20
"""Lots tried with each part."""


def check_fraction(fraction: float) -> None:
    """Refuse a share that no data can have, before anything is scored.

    Raises:
        UsageError: not between 0 and 1.
    """
    if not 0 < fraction < 1:
        raise UsageError(f"The fraction must lie between 0 and 1, but got {fraction:g}.")


@dataclass(frozen=True)
class Candidates:
    """Users that sets are drawn from, in columns ``[n]``.

    Args:
        entities: external ids.
        n_interactions: training interactions.
        cud: difficulty; NaN where there is no score.
        popularity: mean popularity of the user's items.
        anchor: whether the user is an anchor of the score.
        probed: whether the user was unlearned in the probe; None where nobody knows.
        words: what sentences call them.
    """

    entities: NDArray[np.str_]
    n_interactions: NDArray[np.integer[Any]]
    cud: Array
    popularity: Array
    anchor: Mask
    probed: Mask | None = None
    words: Words = USERS

    def size(self, fraction: float) -> int:
        """Users of a set: ``fraction`` of those with training interactions.

        Raises:
            UsageError: the fraction means nobody, or more than half of the users that are no anchors.
        """
        everyone = int((self.n_interactions > 0).sum())
        free, who = int(self.eligible().sum()), self.words.entities
        check_fraction(fraction)
        if free < 2:
            raise UsageError(
                f"Only {free} of {len(self.entities)} {who} have training {self.words.samples} and a score "
                "and are no anchors, so there is nobody to draw sets from. Score with fewer anchors, or more "
                "data."
            )
        size = round(fraction * everyone)
        if size < 1:
            raise UsageError(
                f"A fraction of {fraction:g} of {everyone} {who} rounds to zero. "
                f"Give at least {1 / max(everyone, 1):.2g}."
            )
        if size > free // 2:
            raise UsageError(
                f"A fraction of {fraction:g} means {size} {who}, but a set may hold at most {free // 2}: "
                f"half of the {free} scored {who} that are no anchors. Give at most "
                f"{free // 2 / everyone:.2g}."
            )
        return size

    def eligible(self) -> Mask:
        """Users with a score and an interaction that are no anchors: ``[n]``."""
        return (self.n_interactions > 0) & ~np.isnan(self.cud) & ~self.anchor

    def pool(self, size: int) -> Rows:
        """Rows to draw from: without probed users too, where the drawn-from end still holds two sets."""
        eligible = self.eligible()
        if self.probed is not None:
            fresh = eligible & ~self.probed
            if fresh.sum() * SHARE >= 2 * size:
                return np.flatnonzero(fresh)
        return np.flatnonzero(eligible)


def forget_sets(
    candidates: Candidates,
    fraction: float,
    *,
    strata: tuple[str, ...] = tuple(STRATA),
    draws: int = 3,
    seed: int = 0,
    matched: bool = True,
) -> list[ForgetSet]:
    """``draws`` sets of every stratum, of equal size; matched: with interactions equal within 5 %.

    Each set is a random draw from the fifth of the users at its end of the order. Matched sets take as many
    users from each of ten levels of activity, the fifth is one of each level, and users are exchanged within
    levels until a set's interactions are those of an average set; where the fifths do not suffice, for the
    next users of the order (``settings["outside"]`` of them).

    Source: core and edge are the most and the least active users in CURE4Rec (arXiv 2408.14393, its code).
    Deviations: they are drawn from a fifth, and where activity is matched they are told apart by the mean
    popularity of their items, the other half of how connected a user is.

    Args:
        candidates: all users.
        fraction: of the users with training interactions.
        strata: of :data:`STRATA`.
        draws, seed: draw ``d`` depends on ``seed`` and ``d`` alone.
        matched: equal activity.

    Raises:
        UsageError: unknown stratum, impossible size, or interactions that cannot be matched.
    """
    check_strata(strata)
    size = candidates.size(fraction)
    rows = candidates.pool(size)
    levels = activity_levels(candidates.n_interactions[rows], min(LEVELS, size) if matched else 1)
    counts = candidates.n_interactions[rows].astype(np.int64)
    target = float(counts.mean() * size) if matched else None
    made = []
    for stratum in strata:
        order = _order(candidates, stratum, matched)
        key = None if order is None else order[rows]
        for draw in range(draws):
            places, outside = _matched(
                candidates.words, rows, counts, key, levels, size, target, (seed, stratum, draw)
            )
            made.append(_as_set(candidates, rows[places], stratum, draw, seed, matched, outside))
    return made


def own_set(candidates: Candidates, users: list[str]) -> ForgetSet:
    """Set of listed users, all of them known.

    Raises:
        UsageError: nobody, everybody, a user without training interactions, or an anchor.
    """
    inside = np.isin(candidates.entities, np.asarray(users, dtype=str))
    if not inside.any():
        raise UsageError("The forget set is empty. Name at least one user.")
    active = candidates.n_interactions > 0
    if not (active & ~inside).any():
        raise UsageError(
            f"The list names all {int(active.sum())} users that have training interactions, so nobody is "
            "left to retain. Name fewer users."
        )
    if idle := int((inside & ~active).sum()):
        raise UsageError(
            f"{idle} of the listed users have no training interaction, so there is nothing to forget. "
            "Leave them out."
        )
    if anchors := int((inside & candidates.anchor).sum()):
        raise UsageError(
            f"{anchors} of the {int(inside.sum())} listed users are anchors of the difficulty score, which "
            "would be tested on what it was made from. Leave them out, or score with another --seed."
        )
    return _as_set(candidates, np.flatnonzero(inside), "own", 0, 0, False)


def check_strata(strata: tuple[str, ...]) -> None:
    """Refuse names that are no stratum, and none at all."""
    for name in strata:
        if name not in STRATA:
            raise UsageError(
                f"Unknown stratum {name!r}.{near_miss(name, STRATA)} Allowed: {', '.join(STRATA)}."
            )
    if not strata or len(set(strata)) < len(strata):
        raise UsageError(f"Name each stratum once, out of {', '.join(STRATA)}.")


def activity_levels(counts: NDArray[np.integer[Any]], levels: int) -> Rows:
    """Level 0 (least active) to ``levels - 1`` of every user, equally many in each: ``[n] -> [n]``."""
    place = np.empty(len(counts), dtype=np.int64)
    place[np.argsort(counts, kind="stable")] = np.arange(len(counts))
    return place * levels // max(len(counts), 1)


def _order(candidates: Candidates, stratum: str, matched: bool) -> Array | None:
    """What the stratum takes the lowest of; None for random sets."""
    connected = candidates.popularity if matched else candidates.n_interactions.astype(np.float64)
    orders = {"easy": candidates.cud, "hard": -candidates.cud, "core": -connected, "edge": connected}
    return orders.get(stratum)


def _matched(
    words: Words,
    rows: Rows,
    counts: Rows,
    key: Array | None,
    levels: Rows,
    size: int,
    target: float | None,
    draw: tuple[int, str, int],
) -> tuple[Rows, int]:
    """Places of one set, and how many of them lie outside the end that it is drawn from."""
    off = 0.0
    for part in PARTS:
        for attempt in range(TRIES):
            lot = uniform(rows.astype(np.uint64), int(content_hash(*draw, attempt)[:7], 16))
            chosen, end, spare = _draw(key, lot, levels, size, part)
            off = 0.0 if target is None else _exchange(chosen, spare, counts, target)
            if target is None or abs(off) <= NEAR * target:
                found = np.sort(np.concatenate(chosen))
                return found, int(np.isin(found, end, invert=True).sum())
    raise UsageError(
        f"The {words.amount} of a set of {draw[1]} {words.entities} cannot be matched within "
        f"{TOLERANCE:.0%}: they differ by {abs(off):.0f} from the {target:.0f} of an average set. Raise "
        "--fraction, or add --unmatched."
    )


def _draw(
    key: Array | None, lot: Array, levels: Rows, size: int, part: float
) -> tuple[list[Rows], Rows, list[Rows]]:
    """Set of each level by lot among the fifth of lowest key; that fifth; who may be exchanged in."""
    shares = np.diff(np.arange(levels.max() + 2) * size // (levels.max() + 1))
    chosen, ends, spare = [], [], []
    for level, share in enumerate(shares):
        inside = np.flatnonzero(levels == level)
        fifth = near = len(inside)
        if key is not None:
            inside = inside[np.lexsort((lot[inside], key[inside]))]
            fifth, near = (max(math.ceil(p * len(inside)), int(share)) for p in (SHARE, part))
        end = inside[:fifth][np.argsort(lot[inside[:fifth]], kind="stable")]
        chosen.append(end[:share])
        ends.append(end)
        spare.append(np.concatenate([end[share:], inside[fifth:near]]))
    return chosen, np.concatenate(ends), spare


def _exchange(chosen: list[Rows], spare: list[Rows], counts: Rows, target: float) -> float:
    """Exchange users within levels, each time the pair that brings the sum nearest to ``target``.

    Returns:
        What the sum is still off, at most ``NEAR`` of the target unless no exchange helps any more.
    """
    off = float(sum(counts[c].sum() for c in chosen)) - target
    while abs(off) > NEAR * target:
        best: tuple[float, int, int, int] | None = None
        for level, (inside, outside) in enumerate(zip(chosen, spare, strict=True)):
            if not len(inside) or not len(outside):
                continue
            left = np.abs(off - counts[inside][:, None] + counts[outside][None, :])
            at = int(left.argmin())
            found = (float(left.flat[at]), level, at // len(outside), at % len(outside))
            best = found if best is None or found[0] < best[0] else best
        if best is None or best[0] >= abs(off):
            break
        _, level, i, j = best
        off += float(counts[spare[level][j]] - counts[chosen[level][i]])
        chosen[level][i], spare[level][j] = spare[level][j], chosen[level][i]
    return off


def _as_set(
    candidates: Candidates,
    rows: Rows,
    stratum: str,
    draw: int,
    seed: int,
    matched: bool,
    outside: int = 0,
) -> ForgetSet:
    probed = candidates.probed
    settings = {
        "matched": matched,
        "definition": STRATA[stratum][matched] if stratum in STRATA else "a list of users",
        "mean_cud": _mean(candidates.cud[rows]),
        "mean_item_popularity": _mean(candidates.popularity[rows]),
        "anchors": int(candidates.anchor[rows].sum()),
        "outside": outside,
        "probed": None if probed is None else int(probed[rows].sum()),
    }
    counts = candidates.n_interactions[rows]
    return ForgetSet(candidates.entities[rows], counts, stratum, draw, seed, settings)


def _mean(values: Array) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
