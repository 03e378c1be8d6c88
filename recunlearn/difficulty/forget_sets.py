"""Forget sets: which users a method is tried on, alike in size and activity but not in difficulty."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recunlearn.foundation.errors import UsageError, near_miss
from recunlearn.foundation.records import ForgetSet
from recunlearn.foundation.seeds import uniform
from recunlearn.foundation.store import content_hash

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
SHARE = 0.2
"""Sets are drawn from this end of the users, so that draws differ."""


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
    """

    entities: NDArray[np.str_]
    n_interactions: NDArray[np.integer[Any]]
    cud: Array
    popularity: Array
    anchor: Mask
    probed: Mask | None = None

    def size(self, fraction: float) -> int:
        """Users of a set: ``fraction`` of those with training interactions.

        Raises:
            UsageError: the fraction means nobody, or more than half of the users that are no anchors.
        """
        everyone = int((self.n_interactions > 0).sum())
        free = int(self.eligible().sum())
        if not 0 < fraction < 1:
            raise UsageError(f"The fraction must lie between 0 and 1, but got {fraction:g}.")
        size = round(fraction * everyone)
        if size < 1:
            raise UsageError(
                f"A fraction of {fraction:g} of {everyone} users rounds to zero. "
                f"Give at least {1 / max(everyone, 1):.2g}."
            )
        if size > free // 2:
            raise UsageError(
                f"A fraction of {fraction:g} means {size} users, but a set may hold at most {free // 2}: "
                f"half of the {free} scored users that are no anchors. Give at most "
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
    levels until a set's interactions are those of an average set.

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
    target = float(candidates.n_interactions[rows].mean() * size) if matched else None
    made = []
    for stratum in strata:
        order = _order(candidates, stratum, matched)
        key = None if order is None else order[rows]
        for draw in range(draws):
            lot = uniform(rows.astype(np.uint64), int(content_hash(seed, stratum, draw)[:7], 16))
            counts = candidates.n_interactions[rows].astype(np.int64)
            chosen = rows[_draw(key, lot, levels, counts, size, target, stratum)]
            made.append(_as_set(candidates, chosen, stratum, draw, seed, matched))
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


def _draw(
    key: Array | None,
    lot: Array,
    levels: Rows,
    counts: NDArray[np.integer[Any]],
    size: int,
    target: float | None,
    stratum: str,
) -> Rows:
    """Places of one set: by lot among those with the lowest key of each level, then exchanged."""
    n_levels = int(levels.max()) + 1
    shares = np.diff(np.arange(n_levels + 1) * size // n_levels)
    chosen, spare = [], []
    for level, share in enumerate(shares):
        inside = np.flatnonzero(levels == level)
        if key is not None:
            kept = max(int(np.ceil(SHARE * len(inside))), int(share))
            inside = inside[np.lexsort((lot[inside], key[inside]))[:kept]]
        inside = inside[np.argsort(lot[inside], kind="stable")]
        chosen.append(inside[:share])
        spare.append(inside[share:])
    if target is not None:
        _exchange(chosen, spare, counts, target, stratum)
    return np.sort(np.concatenate(chosen))


def _exchange(
    chosen: list[Rows], spare: list[Rows], counts: NDArray[np.integer[Any]], target: float, stratum: str
) -> None:
    """Exchange users within levels, each time the pair that brings the sum nearest to ``target``.

    Two sets within 2.4 % of one target are within 5 % of each other.
    """
    near = 0.024 * target
    off = float(sum(counts[c].sum() for c in chosen)) - target
    while abs(off) > near:
        best: tuple[float, int, int, int] | None = None
        for level, (inside, outside) in enumerate(zip(chosen, spare, strict=True)):
            if not len(inside) or not len(outside):
                continue
            left = np.abs(off - counts[inside][:, None] + counts[outside][None, :])
            at = int(left.argmin())
            found = (float(left.flat[at]), level, at // len(outside), at % len(outside))
            best = found if best is None or found[0] < best[0] else best
        if best is None or best[0] >= abs(off):
            raise UsageError(
                f"The interactions of a set of {stratum} users cannot be matched within {TOLERANCE:.0%}: its "
                f"users have {off + target:.0f}, an average set has {target:.0f}. Raise --fraction, or add "
                "--unmatched."
            )
        _, level, i, j = best
        off += float(counts[spare[level][j]] - counts[chosen[level][i]])
        chosen[level][i], spare[level][j] = spare[level][j], chosen[level][i]


def _as_set(
    candidates: Candidates, rows: Rows, stratum: str, draw: int, seed: int, matched: bool
) -> ForgetSet:
    probed = candidates.probed
    settings = {
        "matched": matched,
        "definition": STRATA[stratum][matched] if stratum in STRATA else "a list of users",
        "mean_cud": _mean(candidates.cud[rows]),
        "mean_item_popularity": _mean(candidates.popularity[rows]),
        "anchors": int(candidates.anchor[rows].sum()),
        "probed": None if probed is None else int(probed[rows].sum()),
    }
    counts = candidates.n_interactions[rows]
    return ForgetSet(candidates.entities[rows], counts, stratum, draw, seed, settings)


def _mean(values: Array) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
