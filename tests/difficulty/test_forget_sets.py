import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recunlearn.difficulty.forget_sets import (
    STRATA,
    Candidates,
    activity_levels,
    forget_sets,
    own_set,
)
from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.records import ForgetSet, load_record, save_record


def candidates(n=400, seed=0, anchors=20, probed=None):
    """Users with heavy-tailed activity; difficulty goes with activity, as it does in practice."""
    rng = np.random.default_rng(seed)
    counts = np.maximum(rng.lognormal(4, 1, n), 1).astype(np.int64)
    cud = np.clip(0.1 * np.log(counts) + rng.normal(scale=0.1, size=n), 0, 1)
    anchor = np.zeros(n, dtype=bool)
    anchor[rng.permutation(n)[:anchors]] = True
    entities = np.array([f"u{i:05d}" for i in range(n)])
    return Candidates(entities, counts, cud, rng.gamma(5, 20, n), anchor, probed)


def rows_of(users, one):
    return np.flatnonzero(np.isin(users.entities, one.entities))


@given(st.integers(0, 2**31), st.sampled_from([0.03, 0.05, 0.1, 0.2]), st.integers(0, 9))
def test_matched_sets_are_alike_and_disjoint_from_anchors(world, fraction, seed):
    users = candidates(seed=world)
    sets = forget_sets(users, fraction, seed=seed, draws=2)
    sizes = {len(s.entities) for s in sets}
    assert sizes == {round(fraction * 400)}
    totals = np.array([s.n_interactions.sum() for s in sets])
    assert totals.max() <= 1.05 * totals.min()
    for one in sets:
        rows = rows_of(users, one)
        assert len(rows) == len(one.entities)
        assert not users.anchor[rows].any()
        assert np.array_equal(users.n_interactions[rows], one.n_interactions)


def test_strata_are_what_they_say():
    users = candidates()
    sets = {s.stratum: s.settings for s in forget_sets(users, 0.05, draws=1)}
    assert sets["easy"]["mean_cud"] < sets["random"]["mean_cud"] - 0.05
    assert sets["hard"]["mean_cud"] > sets["random"]["mean_cud"] + 0.05
    assert sets["core"]["mean_item_popularity"] > sets["random"]["mean_item_popularity"]
    assert sets["edge"]["mean_item_popularity"] < sets["random"]["mean_item_popularity"]


def test_unmatched_sets_are_the_ends_by_difficulty_and_activity():
    users = candidates()
    sets = {s.stratum: rows_of(users, s) for s in forget_sets(users, 0.05, draws=1, matched=False)}
    free = users.eligible()
    order = np.argsort(users.cud[free])
    fifth = int(np.ceil(0.2 * free.sum()))
    assert set(sets["easy"]) <= set(np.flatnonzero(free)[order[:fifth]])
    assert set(sets["hard"]) <= set(np.flatnonzero(free)[order[-fifth:]])
    assert users.n_interactions[sets["core"]].min() > users.n_interactions[sets["edge"]].max()
    assert users.n_interactions[sets["easy"]].sum() < users.n_interactions[sets["hard"]].sum()


def test_draws_and_seeds_differ_and_repeat():
    users = candidates()
    hashes = [[s.hash for s in forget_sets(users, 0.05, seed=seed)] for seed in (0, 1, 0)]
    assert len(set(hashes[0])) == 15
    assert not set(hashes[0]) & set(hashes[1])
    assert hashes[0] == hashes[2]
    # a draw depends on its number alone, not on how many there are or on other strata
    alone = forget_sets(users, 0.05, strata=("hard",), draws=1)
    assert alone[0].hash == hashes[0][3]


@given(st.integers(0, 2**31))
def test_unmatched_easy_users_do_not_hang_on_their_order(seed):
    users = candidates(n=60, anchors=4)
    order = np.random.default_rng(seed).permutation(60)
    other = Candidates(
        users.entities[order],
        users.n_interactions[order],
        users.cud[order],
        users.popularity[order],
        users.anchor[order],
    )
    lowest = [set(s.entities) for s in forget_sets(users, 12 / 60, strata=("easy",), matched=False, draws=1)]
    again = [set(s.entities) for s in forget_sets(other, 12 / 60, strata=("easy",), matched=False, draws=1)]
    # 12 of 56 users: exactly the fifth (ceil 11.2), so that the draw takes them all
    assert lowest == again


def test_probed_users_are_avoided_while_enough_others_are_left():
    probed = np.zeros(400, dtype=bool)
    probed[:100] = True
    some = candidates(probed=probed)
    assert all(s.settings["probed"] == 0 for s in forget_sets(some, 0.05))
    # 380 users, 20 outside the pool: they cannot hold sets, so that the pool is drawn from and it is said
    probed[:] = True
    probed[:20] = False
    assert all(s.settings["probed"] > 0 for s in forget_sets(candidates(probed=probed), 0.05))


def test_activity_levels_are_equally_large():
    levels = activity_levels(np.array([5, 1, 4, 2, 3, 3]), 3)
    assert levels.tolist() == [2, 0, 2, 0, 1, 1]


@pytest.mark.parametrize(
    ("fraction", "words"),
    [
        (0.001, r"0\.001 of 400 users rounds to zero\. Give at least 0\.0025"),
        (0.6, r"means 240 users, but a set may hold at most 190: half of the 380 scored users"),
        (0.0, r"between 0 and 1, but got 0"),
        (1.0, r"between 0 and 1, but got 1"),
        (float("nan"), r"between 0 and 1, but got nan"),
    ],
)
def test_impossible_fractions_are_refused(fraction, words):
    with pytest.raises(UsageError, match=words):
        forget_sets(candidates(), fraction)


def test_unknown_strata_are_refused_with_a_near_miss():
    with pytest.raises(UsageError, match=r"Unknown stratum 'hrad'\. Did you mean hard\? Allowed: easy, hard"):
        forget_sets(candidates(), 0.05, strata=("hrad",))
    with pytest.raises(UsageError, match="each stratum once"):
        forget_sets(candidates(), 0.05, strata=("easy", "easy"))


def test_what_cannot_be_matched_is_refused():
    # the easy half has one interaction each, the hard half a thousand, and nothing in between: a level holds
    # both, but the fifth of lowest CUD of each level only the small ones
    n = 40
    counts = np.where(np.arange(n) % 2 == 0, 1, 1000)
    cud = np.where(counts == 1, 0.1, 0.9)
    users = Candidates(np.arange(n).astype(str), counts, cud, np.ones(n), np.zeros(n, dtype=bool))
    with pytest.raises(UsageError, match=r"easy users cannot be matched within 5%.*--unmatched"):
        forget_sets(users, 0.025, strata=("easy",))


def test_own_lists():
    users = candidates(n=30, anchors=2)
    free = np.flatnonzero(~users.anchor)[:3]
    found = own_set(users, users.entities[free].tolist())
    assert found.stratum == "own"
    assert found.n_interactions.sum() == users.n_interactions[free].sum()
    anchor = users.entities[users.anchor][0]
    with pytest.raises(UsageError, match="1 of the 4 listed users are anchors"):
        own_set(users, [*users.entities[free], anchor])
    with pytest.raises(UsageError, match="names all 30 users"):
        own_set(users, users.entities.tolist())
    with pytest.raises(UsageError, match="empty"):
        own_set(users, [])
    users.n_interactions[free[0]] = 0
    with pytest.raises(UsageError, match="1 of the listed users have no training interaction"):
        own_set(users, users.entities[free].tolist())


def test_every_stratum_is_defined_for_both_kinds():
    assert all(len(definitions) == 2 for definitions in STRATA.values())


def test_a_set_survives_the_disk(tmp_path):
    one = forget_sets(candidates(), 0.05, strata=("hard",), draws=1)[0]
    save_record(one, tmp_path / "set")
    again = load_record(ForgetSet, tmp_path / "set")
    assert again.hash == one.hash
    assert again.settings == one.settings
    assert again.name == "hard-0"
