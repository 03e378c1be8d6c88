import numpy as np
import pytest

from recunlearn.studies.validity.run import Held, across


def test_a_user_hard_in_one_model_may_be_easy_in_another():
    ranks = np.arange(30.0)
    fold = np.arange(30) % 3
    ids, mixed = ranks.astype(str), np.random.default_rng(0).permutation(30)  # each has an order of its own
    up = Held(ids, ranks, np.stack([ranks, ranks]), fold)
    down = Held(ids[mixed], -ranks[mixed], np.stack([-ranks, -ranks])[:, mixed], fold[mixed])
    found = across({"A": [up, up], "B": [down, down]})
    assert found["A"] == pytest.approx({"A": 1.0, "B": -1.0})
    assert found["B"] == pytest.approx({"A": -1.0, "B": 1.0})


def test_users_that_a_model_never_unlearned_do_not_count():
    ranks, fold = np.arange(30.0), np.zeros(30, dtype=np.int64)
    ids = ranks.astype(str)
    fold[:5] = -1
    odd = ranks.copy()
    odd[:5] = 1000
    found = across({"A": [Held(ids, odd, ranks[None], fold)], "B": [Held(ids, ranks, ranks[None], fold)]})
    assert found["A"]["B"] == pytest.approx(1.0)
