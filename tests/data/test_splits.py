"""Splits per user: RecBole's counts, independence of users, invariance under row order; positives."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recunlearn.data.build import build_interactions
from recunlearn.data.splits import TEST, TRAIN, VALID, positives, ratio_counts, split_interactions, take_rows
from recunlearn.foundation.errors import DataError, UsageError

rows = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["1", "2", "01", "é", " x"]), st.integers(0, 4)),
    min_size=1,
    max_size=40,
)


def log(triples, split=None):
    users, items, times = zip(*triples, strict=True)
    return build_interactions(
        "t",
        pd.Series(users),
        pd.Series(items),
        rating=np.array(times) + 1,
        time=np.array(times),
        split=split,
    )


def labelled(interactions, labels):
    """Rows as a sorted list of (user, item, time, label): what does not depend on the order of rows."""
    users, items = interactions.users[interactions.user], interactions.items[interactions.item]
    return sorted(
        zip(users.tolist(), items.tolist(), interactions.time.tolist(), labels.tolist(), strict=True)
    )


def recbole_counts(tot, ratios):
    """RecBole 1.2.1, Dataset.split_by_ratio and _calcu_split_ids, in its own scalar form."""
    ratios = [r / sum(ratios) for r in ratios]
    cnt = [int(r * tot) for r in ratios]
    cnt[0] = tot - sum(cnt[1:])
    for i in range(1, len(ratios)):
        if cnt[0] <= 1:
            break
        if 0 < ratios[-i] * tot < 1:
            cnt[-i] += 1
            cnt[0] -= 1
    return cnt


def recbole_leave_one_out(triples):
    """RecBole 1.2.1: sort by time, make n - 1 targets, _split_index_by_leave_one_out(leave_one_num=2)."""
    labels = np.zeros(len(triples), dtype=int)
    for user in {t[0] for t in triples}:
        mine = sorted((i for i, t in enumerate(triples) if t[0] == user), key=lambda i: triples[i][2])
        index = mine[1:]
        if not index:
            continue
        next_index = [[], [], []]
        legal = min(2, len(index) - 1)
        pr = len(index) - legal
        next_index[0].extend(index[:pr])
        for i in range(legal):
            next_index[-legal + i].append(index[pr])
            pr += 1
        for part, members in enumerate(next_index):
            labels[members] = part
    return labels


@pytest.mark.parametrize(
    "ratios", [(0.8, 0.1, 0.1), (8, 1, 1), (0.7, 0.2, 0.1), (0.9, 0.0, 0.1), (0.5, 0.5, 0)]
)
def test_counts_are_recboles_for_every_history_length(ratios):
    totals = np.arange(1, 400)
    expected = np.array([recbole_counts(int(t), ratios) for t in totals]).T
    np.testing.assert_array_equal(ratio_counts(totals, ratios), expected)


@given(rows, st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_ratio_split_is_a_partition_with_the_promised_counts(triples, seed):
    data = log(triples)
    labels = split_interactions(data, "ratio", seed)
    assert labels.dtype == np.int8
    assert set(labels.tolist()) <= {TRAIN, VALID, TEST}
    for user in range(len(data.users)):
        mine = labels[data.user == user]
        assert np.bincount(mine, minlength=3).tolist() == recbole_counts(len(mine), (0.8, 0.1, 0.1))


@given(rows, st.integers(0, 5), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_ratio_split_does_not_depend_on_the_order_of_rows(triples, seed, random):
    shuffled = list(triples)
    random.shuffle(shuffled)
    first, second = log(triples), log(shuffled)
    assert labelled(first, split_interactions(first, "ratio", seed)) == labelled(
        second, split_interactions(second, "ratio", seed)
    )


@given(rows, st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_split_of_a_user_does_not_depend_on_other_users(triples, seed):
    data = log(triples)
    for kind in ("ratio", "leave-one-out"):
        labels = split_interactions(data, kind, seed)
        mine = np.flatnonzero(data.user == 0)
        alone = take_rows(data, mine)
        np.testing.assert_array_equal(split_interactions(alone, kind, seed), labels[mine])


@given(rows)
@settings(max_examples=100, deadline=None)
def test_leave_one_out_is_recboles(triples):
    np.testing.assert_array_equal(
        split_interactions(log(triples), "leave-one-out"), recbole_leave_one_out(triples)
    )


def test_leave_one_out_by_hand():
    # a: times 3 1 2 4, so 3 is valid and 4 test; b: two rows stay in train; c: of three rows the last is test
    data = log(
        [
            ("a", "1", 3),
            ("b", "1", 1),
            ("a", "2", 1),
            ("a", "3", 2),
            ("b", "2", 2),
            ("a", "4", 4),
            ("c", "1", 1),
            ("c", "2", 2),
            ("c", "3", 3),
            ("d", "1", 1),
        ]
    )
    assert split_interactions(data, "leave-one-out").tolist() == [1, 0, 0, 0, 0, 2, 0, 0, 2, 0]


def test_ties_in_time_follow_the_file():
    data = log([("a", i, 7) for i in "1234"])
    assert split_interactions(data, "leave-one-out").tolist() == [0, 0, 1, 2]


def test_seed_changes_the_ratio_split():
    data = log([("a", str(i), i) for i in range(50)])
    assert (split_interactions(data, "ratio", 0) != split_interactions(data, "ratio", 1)).any()


def test_ratio_split_is_pinned():
    # Reference values of this implementation: a change would silently mix train and test of stored models.
    data = log([("a", str(i), i) for i in range(10)])
    assert split_interactions(data, "ratio", 0).tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 2, 0]


def test_own_split_is_returned_as_it_is():
    data = log([("a", "1", 1), ("a", "2", 2)], split=np.array([2, 1]))
    for kind in ("ratio", "leave-one-out"):
        assert split_interactions(data, kind).tolist() == [2, 1]


def test_leave_one_out_without_time_names_the_missing_column():
    data = build_interactions("shop", pd.Series(["a"]), pd.Series(["1"]))
    with pytest.raises(DataError, match=r"'shop' has no time column.*--time-col"):
        split_interactions(data, "leave-one-out")


@pytest.mark.parametrize("ratios", [(0, 0.5, 0.5), (0.8, 0.2), (0.8, -0.1, 0.3), (float("nan"), 1, 1)])
def test_impossible_ratios_are_refused(ratios):
    with pytest.raises(UsageError, match="three numbers"):
        split_interactions(log([("a", "1", 1)]), "ratio", 0, ratios)


def test_unknown_split_lists_the_valid_ones():
    with pytest.raises(UsageError, match=r"Unknown split 'random'. Allowed: ratio, leave-one-out"):
        split_interactions(log([("a", "1", 1)]), "random")


def test_positives_drop_rows_users_and_items_and_count_them():
    # ratings are time + 1: rows 1 and 3 reach 4; user b and item 2 have no other row
    data = log([("b", "2", 0), ("a", "1", 3), ("c", "1", 1), ("c", "3", 4)])
    kept = positives(data, 4)
    assert kept.users.tolist() == ["a", "c"]
    assert kept.items.tolist() == ["1", "3"]
    assert kept.user.tolist() == [0, 1]
    assert kept.item.tolist() == [0, 1]
    assert kept.rating.tolist() == [4, 5]
    assert kept.card["dropped"] == {"min_rating": 4.0, "interactions": 2, "users": 1, "items": 1}


def test_positives_keep_everything_by_default_and_refuse_the_impossible():
    data = log([("a", "1", 3)])
    assert positives(data, None) is data
    with pytest.raises(DataError, match=r"No rating of 't' is at least 6: they lie in \[4, 4\]"):
        positives(data, 6)
    with pytest.raises(DataError, match="--min-rating 4 needs ratings"):
        positives(build_interactions("t", pd.Series(["a"]), pd.Series(["1"])), 4)
