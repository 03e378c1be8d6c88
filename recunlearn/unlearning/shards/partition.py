"""Balanced partitions of users or interactions: which shard each training sample belongs to.

Source: RecEraser, arXiv 2201.06820, algorithms 1 (InBP) and 2 (UBP).
"""

import math

import numpy as np
from numpy.typing import NDArray

from recunlearn.foundation.errors import UsageError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
ROUNDS = 50
SLACK = 1.2
NOWHERE = -1
"""Shard of what belongs to none."""


def by_users(
    owner: IntArray, users: FloatArray, shards: int, *, seed: int = 0, rounds: int = ROUNDS
) -> IntArray:
    """UBP: users with similar vectors share a shard; the score of user u in shard j is -‖p_u - c_j‖².

    Source: arXiv 2201.06820, algorithm 2. Deviation from the published code: centroids are means per axis.

    Args:
        owner: ``[n]`` user of each sample.
        users: ``[U, d]`` pre-trained vectors.
        shards: number of shards, at most ``SLACK * U / shards`` users each.
        seed: of the first centroids, which are the vectors of users.
        rounds: most rounds.

    Returns:
        ``[n]`` shard of each sample, :data:`NOWHERE` for none.

    Raises:
        UsageError: more shards than users with samples, or vectors so alike that a shard stays empty.
    """
    present = np.unique(owner)
    check_count(shards, len(present), "users with training interactions")
    points = users[present]
    chosen = np.random.default_rng(seed).choice(len(points), shards, replace=False)
    place = _cluster((points,), chosen, shards, rounds)
    of_user = np.full(len(users), NOWHERE, dtype=np.int64)
    of_user[present] = place
    shard: IntArray = of_user[owner]
    return shard


def by_interactions(
    owner: IntArray,
    item: IntArray,
    users: FloatArray,
    items: FloatArray,
    shards: int,
    *,
    seed: int = 0,
    rounds: int = ROUNDS,
) -> IntArray:
    """InBP: the score of interaction (u, i) in shard j is -‖p_u - c_j‖² · ‖q_i - c'_j‖².

    Source: arXiv 2201.06820, algorithm 1. Arguments, result and errors as in :func:`by_users`, with ``item``
    ``[n]`` and ``items`` ``[I, d]``; at most ``SLACK * n / shards`` interactions a shard.
    """
    check_count(shards, len(owner), "training interactions")
    chosen = np.random.default_rng(seed).choice(len(owner), shards, replace=False)
    return _cluster((users, items), chosen, shards, rounds, (owner, item))


def at_random(owner: IntArray, shards: int, *, seed: int = 0) -> IntArray:
    """Users dealt out in random order, all samples of a user to one shard: ``[n]``.

    Raises:
        UsageError: more shards than users with samples.
    """
    present = np.unique(owner)
    check_count(shards, len(present), "users with training interactions")
    dealt = np.random.default_rng(seed).permutation(len(present)) % shards
    shard: IntArray = dealt[np.searchsorted(present, owner)].astype(np.int64)
    return shard


def interactions_at_random(owner: IntArray, shards: int, *, seed: int = 0) -> IntArray:
    """Interactions dealt out in random order, so that most users are in every shard: ``[n]``."""
    check_count(shards, len(owner), "training interactions")
    shard: IntArray = (np.random.default_rng(seed).permutation(len(owner)) % shards).astype(np.int64)
    return shard


def check_count(shards: int, most: int, what: str) -> None:
    """Refuse more shards than there are things to put into them."""
    if shards > most:
        raise UsageError(
            f"The number of shards must be at most {most} ({what}), but got {shards}. Lower shards."
        )


def assign(score: FloatArray, capacity: int) -> IntArray:
    """Greedy assignment in descending score, at most ``capacity`` points a shard: ``[n, k] -> [n]``.

    Of equal scores the first point, then the first shard, comes first. Only a shard that becomes full changes
    what the others prefer, so the points up to that one are assigned at once: k rounds of one sort each.
    """
    count, shards = score.shape
    place = np.full(count, NOWHERE, dtype=np.int64)
    room = np.full(shards, capacity, dtype=np.int64)
    left = np.arange(count)
    while len(left):
        open_ = np.flatnonzero(room > 0)
        best = open_[score[np.ix_(left, open_)].argmax(1)]
        order = np.argsort(-score[left, best], kind="stable")
        wanted = best[order]
        taken = _until_full(wanted, room)
        place[left[order[:taken]]] = wanted[:taken]
        room -= np.bincount(wanted[:taken], minlength=shards)
        left = np.sort(left[order[taken:]])
    return place


def _until_full(wanted: IntArray, room: IntArray) -> int:
    """How many of ``wanted`` can be served in order until the first shard is full."""
    served = len(wanted)
    for shard in np.unique(wanted):
        asking = np.flatnonzero(wanted == shard)
        if len(asking) >= room[shard]:
            served = min(served, int(asking[room[shard] - 1]) + 1)
    return served


Pairs = tuple[IntArray, IntArray]


def _cluster(
    tables: tuple[FloatArray, ...], chosen: IntArray, shards: int, rounds: int, points: Pairs | None = None
) -> IntArray:
    """Balanced k-means; with ``points`` of pairs of rows of two tables, the score is a product."""
    rows = points or (np.arange(len(tables[0])),)
    capacity = math.ceil(SLACK * len(rows[0]) / shards)
    centroids = [table[row[chosen]] for table, row in zip(tables, rows, strict=True)]
    before = None
    place = np.zeros(len(rows[0]), dtype=np.int64)
    for _ in range(rounds):
        apart = [distances(table, c) for table, c in zip(tables, centroids, strict=True)]
        score = -np.prod([a[row] for a, row in zip(apart, rows, strict=True)], axis=0)
        place = assign(score, capacity)
        if before is not None and np.array_equal(place, before):
            break
        before = place
        worst = np.argsort(score[np.arange(len(place)), place], kind="stable")
        centroids = [
            _means(table, row, place, shards, worst) for table, row in zip(tables, rows, strict=True)
        ]
    _refuse_empty(place, shards)
    return place


def _means(table: FloatArray, row: IntArray, place: IntArray, shards: int, worst: IntArray) -> FloatArray:
    """Mean vector per axis of every shard's points; an empty shard starts again at a worst placed point."""
    counts = np.zeros((shards, len(table)))
    np.add.at(counts, (place, row), 1.0)
    size = counts.sum(1)
    means: FloatArray = counts @ table / np.maximum(size, 1)[:, None]
    empty = np.flatnonzero(size == 0)
    means[empty] = table[row[worst[: len(empty)]]]
    return means


def distances(table: FloatArray, centroids: FloatArray) -> FloatArray:
    """Squared distances of rows to centroids: ``[n, d], [k, d] -> [n, k]``, none below 0."""
    squares = (table**2).sum(1)[:, None] - 2 * table @ centroids.T + (centroids**2).sum(1)
    apart: FloatArray = np.maximum(squares, 0.0)
    return apart


def _refuse_empty(place: IntArray, shards: int) -> None:
    empty = np.flatnonzero(np.bincount(place, minlength=shards) == 0)
    if len(empty):
        raise UsageError(
            f"Shard {empty[0] + 1} of {shards} stays empty, because the vectors are too much alike. "
            "Use fewer shards, or partition = 'random'."
        )
