"""RecBole's data preparation in memory: the same rows, negatives and features as its own, without files."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_recbole_subject import small_data

from recunlearn.data.catalogue import load_interactions
from recunlearn.foundation.errors import DataError, UsageError
from recunlearn.foundation.seeds import uniform
from recunlearn.foundation.settings import ScoreSettings, TrainingSettings
from recunlearn.subjects.recbole.bundle import make_bundle
from recunlearn.subjects.recbole.compat import RepeatableSampler, Sampler, quiet
from recunlearn.subjects.recbole.samples import Samples
from recunlearn.subjects.recbole.sampling import FixedNegatives, TrainRepeatableSampler, TrainSampler, Used


def bundle(model, data=None, **params):
    training = TrainingSettings(params=params.pop("params", {}))
    return make_bundle(data or small_data(), ScoreSettings(model=model, training=training, **params))


def test_parts_follow_our_split_labels():
    data = small_data()
    labels = np.arange(len(data)) % 3
    made = bundle("BPR", replace(data, split=labels.astype(np.int8)))
    for k, part in enumerate((made.train, made.valid, made.test)):
        assert part.rows.tolist() == np.flatnonzero(labels == k).tolist()
        users = made.users[part.inter_feat["user_id"].numpy() - 1]
        assert users.tolist() == data.users[data.user[part.rows]].tolist()


def test_histories_are_the_items_before_by_time():
    """Brute force: for every target, the user's items with an earlier time, the last five of them."""
    data = small_data()
    made = bundle("SASRec", data, params={"MAX_ITEM_LIST_LENGTH": 5})
    for part in (made.train, made.valid, made.test):
        feat = part.inter_feat
        for k, row in enumerate(part.rows):
            earlier = np.flatnonzero((data.user == data.user[row]) & (data.time < data.time[row]))
            expected = data.items[data.item[earlier[np.argsort(data.time[earlier])]]][-5:]
            length = int(feat["item_length"][k])
            history = feat["item_id_list"][k].numpy()
            assert made.items[history[:length] - 1].tolist() == expected.tolist()
            assert (history[length:] == 0).all()
            assert made.items[feat["item_id"][k] - 1] == data.items[data.item[row]]


def test_last_two_of_each_user_are_test_and_valid():
    data = small_data()
    made = bundle("SASRec", data)
    for user in range(len(data.users)):
        rows = np.flatnonzero(data.user == user)
        rows = rows[np.argsort(data.time[rows])]
        assert rows[-1] in made.test.rows
        assert rows[-2] in made.valid.rows
        assert set(rows[1:-2]) <= set(made.train.rows)


def test_times_closer_than_float32_can_tell_keep_their_order():
    # 881250949 seconds is about 2**29.7: float32 steps by 64 seconds there, these times by one.
    data = small_data()
    near = replace(data, time=data.time + 881_250_949)
    one, two = bundle("SASRec", data), bundle("SASRec", near)
    assert torch.equal(one.train.inter_feat["item_id_list"], two.train.inter_feat["item_id_list"])


def test_train_sampler_draws_what_recbole_draws():
    made = bundle("BPR")
    parts = [made.train, made.valid, made.test]
    with quiet():
        theirs = Sampler(["train", "valid", "test"], parts, "uniform").set_phase("train")
    ours = TrainSampler(parts, "uniform", 1.0)
    users = made.train.inter_feat["user_id"].numpy()
    for chosen in (users, users[:1], np.full(9, users[0])):
        drawn = []
        for sampler in (theirs, ours):
            np.random.seed(5)
            drawn.append(sampler.sample_by_user_ids(chosen, None, 3))
        assert torch.equal(*drawn)


def test_repeatable_sampler_draws_what_recbole_draws():
    made = bundle("FPMC")
    user, item = (made.train.inter_feat[c].numpy() for c in ("user_id", "item_id"))
    drawn = []
    for sampler in (
        RepeatableSampler(["train"], made.train),
        TrainRepeatableSampler(made.train, "uniform", 1.0),
    ):
        np.random.seed(6)
        drawn.append(sampler.sample_by_user_ids(user, item, 2))
    assert torch.equal(*drawn)


def test_sorted_keys_answer_like_the_table(monkeypatch):
    rng = np.random.default_rng(0)
    user, item = rng.integers(0, 20, 60), rng.integers(0, 30, 60)
    table = Used(user, item, 20, 30)
    monkeypatch.setattr("recunlearn.subjects.recbole.sampling._DENSE_CELLS", 0)
    keys = Used(user, item, 20, 30)
    every = np.meshgrid(np.arange(20), np.arange(30), indexing="ij")
    users, items = (a.ravel() for a in every)
    assert np.array_equal(table(users, items), keys(users, items))


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(2, 12))
def test_fixed_negatives_are_unused_and_depend_on_the_pair_alone(seed, n_items):
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(1, 6), 3)
    item = rng.integers(1, n_items, len(user))
    draw = FixedNegatives(user, item, n_items + 1)
    negative = draw(user, item, seed)
    used = set(zip(user.tolist(), item.tolist(), strict=True))
    assert not used & set(zip(user.tolist(), negative.tolist(), strict=True))
    assert ((negative >= 1) & (negative <= n_items)).all()
    some = rng.permutation(len(user))[:4]
    assert np.array_equal(draw(user[some], item[some], seed), negative[some])


def test_fixed_negatives_are_uniform_over_unused_items():
    # One user with items 2 and 5 of 1..6: over seeds, each of 1, 3, 4, 6 is drawn a quarter of the time.
    draw = FixedNegatives(np.array([1, 1]), np.array([2, 5]), 7)
    drawn = np.array([draw(np.array([1]), np.array([2]), s)[0] for s in range(4000)])
    items, counts = np.unique(drawn, return_counts=True)
    assert items.tolist() == [1, 3, 4, 6]
    assert abs(counts / 4000 - 0.25).max() < 0.03


def test_a_user_with_every_item_has_no_negative():
    data = small_data()
    full = replace(data, items=data.items[:12], item=(data.item % 12).astype(np.int32), item_features=None)
    everything = np.concatenate([np.arange(12)] * 30).astype(np.int32)
    full = replace(
        full,
        user=np.repeat(np.arange(30), 12).astype(np.int32),
        item=everything,
        split=np.zeros(360, dtype=np.int8),
    )
    made = bundle("BPR", full)
    with pytest.raises(DataError, match="30 of the users have interacted with all 12 items"):
        TrainSampler([made.train, made.valid, made.test], "uniform", 1.0)


def test_ml_100k_features_are_recboles_choice():
    made = bundle("DeepFM", load_interactions("ml-100k"))
    assert made.train[np.array([0])].columns == [
        "user_id", "item_id", "label", "age", "gender", "occupation", "release_year", "class",
    ]  # fmt: skip
    assert made.labelled


def test_labels_are_ratings_from_the_threshold_on():
    data = small_data()
    made = bundle("FM", data, min_rating=3.0)
    assert np.array_equal(made.train.inter_feat["label"].numpy(), data.rating[made.train.rows] >= 3)


def test_min_rating_drops_rows_of_general_models():
    data = small_data()
    made = bundle("BPR", data, min_rating=4.0)
    assert len(made.train) + len(made.valid) + len(made.test) == int((data.rating >= 4).sum())


def test_sequential_models_need_a_time_column():
    with pytest.raises(DataError, match="no time column"):
        bundle("SASRec", small_data(time=False))


def test_missing_feature_columns_are_named():
    with pytest.raises(DataError, match="GRU4RecF needs the item feature columns class"):
        bundle("GRU4RecF", small_data(features=False))


def test_ratings_on_one_side_of_the_threshold_teach_nothing():
    with pytest.raises(UsageError, match="Choose another --min-rating"):
        bundle("DeepFM", min_rating=1.0)


def test_numerical_features_are_used_when_named():
    data = small_data()
    table = data.user_features.assign(income=np.linspace(0, 1, 30))
    data = replace(data, user_features=table, feature_types={**data.feature_types, "income": "float"})
    assert "income" not in bundle("FM", data).train[np.array([0])].columns
    named = bundle("FM", data, params={"numerical_features": ["income"]})
    assert named.train[np.array([0, 1])]["income"].shape == (2, 2)


@pytest.mark.parametrize("time", [True, False])
@pytest.mark.parametrize("cap", [None, 1, 3, 50])
def test_rows_of_some_users_by_brute_force(time, cap):
    """In the order asked for; at most ``cap`` each: the last by time, else those with the smallest hash."""
    made = bundle("BPR", small_data(time=time))
    samples = Samples(made)
    user, item = (made.train.inter_feat[c].numpy() for c in ("user_id", "item_id"))
    hashed = uniform((user * (len(made.items) + 1) + item).astype(np.uint64), 5)
    expected = []
    for entity in (7, 2, 29, 0):
        rows = np.flatnonzero(user == entity + 1)
        if time:
            rows = rows[np.argsort(made.time[made.train.rows[rows]])][-(cap or 99) :]
        else:
            rows = np.sort(rows[np.argsort(hashed[rows])][:cap])
        expected += rows.tolist()
    assert samples.rows(np.array([7, 2, 29, 0]), cap, seed=5).tolist() == expected
