"""Partitions: brute force on small sets, balance, permutation, known clusters."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recunlearn.foundation.errors import UsageError
from recunlearn.unlearning.shards.partition import (
    assign,
    at_random,
    by_interactions,
    by_users,
    distances,
    interactions_at_random,
)


def greedy(score, capacity):
    """Algorithm 2, lines 5 to 12, word for word: all pairs in descending order, one at a time."""
    n, k = score.shape
    pairs = sorted((-score[i, j], i, j) for i in range(n) for j in range(k))
    place, size = np.full(n, -1), np.zeros(k, dtype=int)
    for _, i, j in pairs:
        if place[i] < 0 and size[j] < capacity:
            place[i] = j
            size[j] += 1
    return place


@given(
    n=st.integers(1, 25),
    k=st.integers(1, 5),
    seed=st.integers(0, 1000),
    slack=st.sampled_from([1.0, 1.2, 2.0]),
    ties=st.booleans(),
)
def test_assignment_is_the_greedy_one(n, k, seed, slack, ties):
    score = np.random.default_rng(seed).normal(size=(n, k))
    score = np.round(score) if ties else score
    capacity = math.ceil(slack * n / k)
    assert np.array_equal(assign(score, capacity), greedy(score, capacity))


def test_assignment_by_hand():
    # Point 0 takes shard 0 (score 9), which is then full; point 1 (8 there) must go to shard 1 and comes
    # after point 2 (3 there), so point 2 has its first choice.
    score = np.array([[9.0, 1.0], [8.0, 2.0], [0.0, 3.0]])
    assert assign(score, 2).tolist() == [0, 0, 1]
    assert assign(score[:2], 1).tolist() == [0, 1]


def test_distances_are_squared():
    assert distances(np.array([[0.0, 3.0]]), np.array([[4.0, 0.0], [0.0, 3.0]])).tolist() == [[25.0, 0.0]]


def blobs(shards, each, seed=0):
    """Users around far apart centres, in random order: vectors and blob of each."""
    generator = np.random.default_rng(seed)
    blob = generator.permutation(np.repeat(np.arange(shards), each))
    return 50.0 * np.eye(shards)[blob] + generator.normal(size=(len(blob), shards)), blob


def same_groups(left, right):
    pairs = set(zip(left.tolist(), right.tolist(), strict=True))
    return len(pairs) == len(set(left.tolist())) == len(set(right.tolist()))


def test_users_of_one_kind_share_a_shard():
    users, blob = blobs(4, 12)
    owner = np.repeat(np.arange(len(users)), 3)
    # Of ten seeds some begin with a centroid in each blob, and all stay within the bound.
    found = [by_users(owner, users, 4, seed=seed) for seed in range(10)]
    assert any(same_groups(shard, blob[owner]) for shard in found)


@given(n=st.integers(6, 40), k=st.integers(2, 5), seed=st.integers(0, 50))
def test_ubp_is_balanced_and_keeps_users_whole(n, k, seed):
    generator = np.random.default_rng(seed)
    owner = np.sort(generator.integers(0, n, 4 * n))
    shard = by_users(owner, generator.normal(size=(n, 3)), k, seed=seed)
    present = np.unique(owner)
    of_user = [np.unique(shard[owner == u]) for u in present]
    assert all(len(s) == 1 for s in of_user)
    size = np.bincount(np.concatenate(of_user), minlength=k)
    assert size.max() <= math.ceil(1.2 * len(present) / k)
    assert size.min() >= 1


def test_centroids_are_means_per_axis():
    # Two groups that differ along one axis and have the same mean over both axes: (4, 0) and (0, 4). Scalar
    # centroids (2 for both) could not tell them apart.
    users = np.array([[4.0, 0.0], [0.0, 4.0]] * 5)
    for seed in range(5):
        shard = by_users(np.arange(10), users, 2, seed=seed)
        assert same_groups(shard, np.arange(10) % 2)


@given(n=st.integers(2, 30), k=st.integers(2, 5), seed=st.integers(0, 100))
def test_order_of_points_does_not_matter(n, k, seed):
    generator = np.random.default_rng(seed)
    score, order = generator.normal(size=(n, k)), generator.permutation(n)
    capacity = math.ceil(1.2 * n / k)
    assert np.array_equal(assign(score[order], capacity), assign(score, capacity)[order])


def test_inbp_splits_what_differs_in_users_and_items():
    # Users of two kinds, items of two kinds, each kind of user with its own kind of item.
    users = np.array([[10.0, 0.0]] * 6 + [[0.0, 10.0]] * 6) + np.random.default_rng(0).normal(size=(12, 2))
    items = np.array([[0.0, 10.0]] * 4 + [[10.0, 0.0]] * 4) + np.random.default_rng(1).normal(size=(8, 2))
    owner, item = np.repeat(np.arange(12), 4), np.concatenate([np.arange(4)] * 6 + [np.arange(4, 8)] * 6)
    shards = [by_interactions(owner, item, users, items, 2, seed=seed) for seed in range(5)]
    assert any(same_groups(shard, owner // 6) for shard in shards)
    assert all(np.bincount(s).max() <= math.ceil(1.2 * len(owner) / 2) for s in shards)


def test_inbp_first_round_by_brute_force():
    generator = np.random.default_rng(3)
    users, items = generator.normal(size=(5, 2)), generator.normal(size=(4, 2))
    owner, item = generator.integers(0, 5, 12), generator.integers(0, 4, 12)
    chosen = np.random.default_rng(0).choice(12, 3, replace=False)
    score = np.empty((12, 3))
    for y in range(12):
        for j, first in enumerate(chosen):
            user = ((users[owner[y]] - users[owner[first]]) ** 2).sum()
            score[y, j] = -user * ((items[item[y]] - items[item[first]]) ** 2).sum()
    found = by_interactions(owner, item, users, items, 3, seed=0, rounds=1)
    # Rounding of |a|² - 2ab + |b|² aside, which the scores of these 12 points do not hang on.
    assert np.array_equal(found, greedy(np.round(score, 9), math.ceil(1.2 * 12 / 3)))


def test_random_partitions_are_even_and_fixed_by_the_seed():
    owner = np.repeat(np.arange(11), 5)
    users = at_random(owner, 4, seed=2)
    assert np.array_equal(users, at_random(owner, 4, seed=2))
    assert not np.array_equal(users, at_random(owner, 4, seed=3))
    assert sorted(np.bincount(users[::5]).tolist()) == [2, 3, 3, 3]
    assert all(len(set(users[owner == u])) == 1 for u in range(11))
    assert sorted(np.bincount(interactions_at_random(owner, 4, seed=0)).tolist()) == [13, 14, 14, 14]


def test_more_shards_than_users_are_refused():
    with pytest.raises(
        UsageError, match=r"must be at most 3 \(users with training interactions\), but got 4"
    ):
        by_users(np.array([0, 1, 4, 4]), np.ones((6, 2)), 4)


def test_vectors_that_are_all_alike_are_refused():
    # Five shards of at most ceil(1.2 * 10 / 5) = 3 users: the first four take all ten.
    with pytest.raises(UsageError, match=r"stays empty.*fewer shards"):
        by_users(np.arange(10), np.zeros((10, 2)), 5)


def test_an_empty_shard_starts_again():
    # Twice the same first centroid leaves a shard empty in the first round, never in the last one.
    users = np.concatenate([np.zeros((5, 1)), np.full((5, 1), 9.0)])
    for seed in range(10):
        shard = by_users(np.arange(10), users, 2, seed=seed)
        assert set(shard.tolist()) == {0, 1}
