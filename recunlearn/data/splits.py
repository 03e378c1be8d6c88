"""Splits per user into train, valid and test, and the choice of what counts as a positive."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from recunlearn.data.interactions import Interactions
from recunlearn.foundation.errors import DataError, UsageError
from recunlearn.foundation.seeds import mix, uniform

TRAIN, VALID, TEST = 0, 1, 2
Labels = NDArray[np.int8]


def split_interactions(
    interactions: Interactions,
    kind: Literal["ratio", "leave-one-out"] = "ratio",
    seed: int = 0,
    ratios: Sequence[float] = (0.8, 0.1, 0.1),
) -> Labels:
    """Label every interaction 0 train, 1 valid or 2 test: ``[n]``.

    ``ratio`` puts each user's interactions in an order that depends on the seed and on the texts of user and
    item alone: neither other users nor the order of rows change it. Counts per user are RecBole's.
    ``leave-one-out`` takes each user's last interaction by time for test and the one before for valid
    (ties: file order), with RecBole's exceptions for users with fewer than four interactions.
    The user's own split (``interactions.split``) is returned as it is.

    Source: RecBole 1.2.1, ``Dataset.split_by_ratio`` and ``leave_one_out`` after
    ``SequentialDataset.data_augmentation``; it shuffles by torch's generator instead of by hashes.

    Raises:
        UsageError: ratios that are not three numbers >= 0 with the first above 0, or an unknown kind.
        DataError: ``leave-one-out`` without a time column.
    """
    if interactions.split is not None:
        return interactions.split
    if kind == "ratio":
        return _by_ratio(interactions, seed, _check_ratios(ratios))
    if kind == "leave-one-out":
        return _leave_one_out(interactions)
    raise UsageError(f"Unknown split '{kind}'. Allowed: ratio, leave-one-out.")


def ratio_counts(totals: NDArray[Any], ratios: Sequence[float]) -> NDArray[np.int64]:
    """How many of each user's interactions go to train, valid and test: ``[users]`` -> ``[3, users]``.

    Source: RecBole 1.2.1, ``Dataset._calcu_split_ids`` (all parts but the first are rounded down; a part
    that would be empty takes one from the first part while that has more than one).

    >>> ratio_counts(np.array([1, 2, 3, 10]), (0.8, 0.1, 0.1)).T.tolist()
    [[1, 0, 0], [1, 0, 1], [1, 1, 1], [8, 1, 1]]
    """
    whole = sum(ratios)
    shares = [r / whole for r in ratios]
    tot = np.asarray(totals, dtype=np.int64)
    counts = np.stack([(s * tot).astype(np.int64) for s in shares])
    counts[0] = tot - counts[1:].sum(axis=0)
    for i in range(1, len(shares)):
        expected = shares[-i] * tot
        # RecBole leaves its loop at cnt[0] <= 1; the first count never grows again, so a mask does the same.
        lift = (counts[0] > 1) & (expected > 0) & (expected < 1)
        counts[-i] += lift
        counts[0] -= lift
    return counts


def positives(interactions: Interactions, min_rating: float | None) -> Interactions:
    """Keep interactions rated at least ``min_rating`` (None: all), and the users and items that have any.

    Ids keep their relative order; what was dropped is counted in ``card["dropped"]``.

    Raises:
        DataError: there are no ratings, or none reaches ``min_rating``.
    """
    if min_rating is None:
        return interactions
    if interactions.rating is None:
        raise DataError(
            f"--min-rating {min_rating:g} needs ratings, but the data set '{interactions.name}' has none. "
            "Leave the option out, or import the data again with --rating-col."
        )
    keep = interactions.rating >= min_rating
    if not keep.any():
        low, high = interactions.rating.min(), interactions.rating.max()
        raise DataError(
            f"No rating of '{interactions.name}' is at least {min_rating:g}: they lie in "
            f"[{low:g}, {high:g}]. Choose a lower --min-rating."
        )
    kept = take_rows(interactions, np.flatnonzero(keep))
    dropped = {
        "min_rating": float(min_rating),
        "interactions": len(interactions) - len(kept),
        "users": len(interactions.users) - len(kept.users),
        "items": len(interactions.items) - len(kept.items),
    }
    return replace(kept, card={**interactions.card, "dropped": dropped})


def take_rows(interactions: Interactions, rows: NDArray[Any]) -> Interactions:
    """Some interactions in the order given, and the users and items they name (relative order kept)."""
    users, user = np.unique(interactions.user[rows], return_inverse=True)
    items, item = np.unique(interactions.item[rows], return_inverse=True)
    columns = {c: v[rows] for c in ("rating", "time", "split") if (v := getattr(interactions, c)) is not None}
    features = {
        f"{kind}_features": table.iloc[kept].reset_index(drop=True)
        for kind, kept in (("user", users), ("item", items))
        if (table := getattr(interactions, f"{kind}_features")) is not None
    }
    return replace(
        interactions,
        users=interactions.users[users],
        items=interactions.items[items],
        user=user.astype(np.int32),
        item=item.astype(np.int32),
        **columns,
        **features,
    )


def _check_ratios(ratios: Sequence[float]) -> tuple[float, ...]:
    values = tuple(float(r) for r in ratios)
    if len(values) != 3 or not all(np.isfinite(values)) or values[0] <= 0 or min(values) < 0:
        raise UsageError(
            f"Split ratios are three numbers for train, valid and test, none below 0 and the first above 0, "
            f"but got {ratios}. Example: 0.8 0.1 0.1."
        )
    return values


def _by_ratio(interactions: Interactions, seed: int, ratios: tuple[float, ...]) -> Labels:
    order = np.lexsort((uniform(_pair_hash(interactions), seed), interactions.user))
    totals = np.bincount(interactions.user, minlength=len(interactions.users))
    train, valid, _ = ratio_counts(totals, ratios)
    place = _place_in_group(totals)
    owner = interactions.user[order]
    labels = (place >= train[owner]).astype(np.int8) + (place >= (train + valid)[owner]).astype(np.int8)
    return _scatter(order, labels)


def _leave_one_out(interactions: Interactions) -> Labels:
    if interactions.time is None:
        raise DataError(
            f"A leave-one-out split orders interactions by time, but '{interactions.name}' has no "
            "time column. Import it again with --time-col, or use a model that is not sequential."
        )
    order = np.lexsort((interactions.time, interactions.user))
    totals = np.bincount(interactions.user, minlength=len(interactions.users))
    size = np.repeat(totals, totals)
    left = size - 1 - _place_in_group(totals)
    # The first interaction is history only, so n interactions give n - 1 targets; RecBole leaves at least
    # one target for training: two targets give no valid, one target gives neither.
    labels = np.zeros(len(order), dtype=np.int8)
    labels[(left == 0) & (size >= 3)] = TEST
    labels[(left == 1) & (size >= 4)] = VALID
    return _scatter(order, labels)


def _place_in_group(totals: NDArray[Any]) -> NDArray[np.int64]:
    starts = np.cumsum(totals) - totals
    place: NDArray[np.int64] = np.arange(totals.sum(), dtype=np.int64) - np.repeat(starts, totals)
    return place


def _scatter(order: NDArray[Any], labels: Labels) -> Labels:
    out = np.empty(len(order), dtype=np.int8)
    out[order] = labels
    return out


def _pair_hash(interactions: Interactions) -> NDArray[np.uint64]:
    """Hash of (user id, item id, occurrence) per row: ``[n]`` uint64; nothing else enters."""
    user = pd.util.hash_array(interactions.users.astype(object), categorize=False)[interactions.user]
    item = pd.util.hash_array(interactions.items.astype(object), categorize=False)[interactions.item]
    with np.errstate(over="ignore"):
        pair = mix(user, 1) + mix(item, 2) + _occurrence(interactions)
    return mix(pair, 3)


def _occurrence(interactions: Interactions) -> NDArray[np.uint64]:
    """How often the same user-item pair came before, by time, then rating, then file order: ``[n]``."""
    pair = interactions.user.astype(np.int64) * max(len(interactions.items), 1) + interactions.item
    _, inverse, counts = np.unique(pair, return_inverse=True, return_counts=True)
    out = np.zeros(len(pair), dtype=np.uint64)
    if len(counts) < len(pair):
        ties = [k for k in (interactions.rating, interactions.time) if k is not None]
        order = np.lexsort((*ties, inverse))
        out[order] = _place_in_group(counts).astype(np.uint64)
    return out
