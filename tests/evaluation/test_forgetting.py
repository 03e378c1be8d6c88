import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics.pairwise import cosine_similarity

from recunlearn.evaluation.forgetting import (
    activity_groups,
    cold_items,
    group_means,
    is_over_forgotten,
    measurable,
    neighbours,
    over_forgotten,
    residual_ratio,
    set_share_left,
    share_left,
    ue_clipped,
    unlearning_effectiveness,
)

ORIGINAL = np.array([1.0, 1.0, 1.0, 1.0])
RETRAINED = np.array([[2.0, 3.0, 1.1, 0.5], [4.0, 3.0, 1.1, 0.5]])  # means 3, 3, 1.1, .5


def test_share_left_by_hand():
    # gaps 2, 2, .1, -.5; twice the noise is .4, so that the last two are not measurable
    share = share_left(ORIGINAL, np.array([1.5, 4.0, 1.0, 1.0]), RETRAINED, noise=0.2)
    # (3 - 1.5) / 2 = .75, (3 - 4) / 2 = -.5
    assert share[:2].tolist() == [0.75, -0.5]
    assert np.isnan(share[2:]).all()
    assert measurable(ORIGINAL, RETRAINED, 0.2).tolist() == [True, True, False, False]
    # twice the noise exactly is enough: gap .1 against .05
    assert measurable(ORIGINAL, RETRAINED, 0.05).tolist() == [True, True, True, False]


def test_nothing_done_leaves_1_and_retraining_0():
    assert share_left(ORIGINAL, ORIGINAL, RETRAINED, 0.2)[:2].tolist() == [1.0, 1.0]
    assert share_left(ORIGINAL, RETRAINED.mean(0), RETRAINED, 0.2)[:2].tolist() == [0.0, 0.0]


def test_a_wrecked_model_is_punished_but_not_by_the_clipped_form():
    share = share_left(ORIGINAL, np.array([np.inf, 1.5, 1.0, 1.0]), RETRAINED, 0.2)
    broken = share_left(ORIGINAL, np.array([np.nan, 1.5, 1.0, 1.0]), RETRAINED, 0.2)
    np.testing.assert_array_equal(broken, share)
    # user 0: share minus infinity -> 0 and 1; user 1: .75 -> .25 and .25
    assert unlearning_effectiveness(share) == 100 * 0.25 / 2
    assert ue_clipped(share) == 100 * 1.25 / 2
    assert over_forgotten(share) == 0.5
    # twice as far as the retrained model is as bad as doing nothing
    assert unlearning_effectiveness(np.array([-1.0])) == unlearning_effectiveness(np.array([1.0])) == 0


def test_nobody_measurable_is_nan():
    nobody = np.array([np.nan, np.nan])
    assert np.isnan([unlearning_effectiveness(nobody), ue_clipped(nobody), over_forgotten(nobody)]).all()


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20))
def test_ue_lies_between_0_and_the_clipped_form(values):
    share = np.array(values)
    assert 0 <= unlearning_effectiveness(share) <= ue_clipped(share) + 1e-9 <= 100 + 1e-6


def test_set_share_left_by_hand():
    # original mean 1, unlearned mean 1.5; retrained means 2 and 3: target 2.5, sd √.5 = .7071, gap 1.5
    retrained = np.array([[1.0, 3.0], [2.0, 4.0]])
    left, error = set_share_left(np.array([0.5, 1.5]), np.array([1.0, 2.0]), retrained)
    assert left == pytest.approx(1.0 / 1.5)
    assert error == pytest.approx(np.sqrt(0.5) / 1.5)
    # gap below twice the noise: original mean 1.5, gap 1 < 1.41
    assert np.isnan(set_share_left(np.array([1.0, 2.0]), np.array([1.0, 2.0]), retrained)).all()


def test_over_forgetting_flag_by_hand():
    # means 2 and 3, sd .7071: the limit is 3 + 1.4142
    retrained = np.array([[1.0, 3.0], [2.0, 4.0]])
    assert not is_over_forgotten(np.array([4.4, 4.4]), retrained)
    assert is_over_forgotten(np.array([4.5, 4.4]), retrained)
    assert not is_over_forgotten(np.array([99.0, 99.0]), retrained[:1])


def test_residual_ratio_by_hand():
    assert residual_ratio(np.array([1.0, 3.0]), np.array([4.0, 4.0])) == 0.5
    assert residual_ratio(np.array([0.0]), np.array([4.0])) == 0
    assert np.isnan(residual_ratio(np.array([1.0]), np.array([0.0])))


@given(st.integers(0, 2**31))
def test_neighbours_are_those_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    table = rng.random((12, 8)) < 0.4
    forget = np.array([0, 5, 7])
    user, item = np.nonzero(table)
    repeated = np.r_[user, user[:3]], np.r_[item, item[:3]]  # met twice counts once
    cosine = cosine_similarity(table.astype(float))[:, forget].mean(1)
    expected = [
        u
        for u in sorted(range(12), key=lambda u: (-round(cosine[u], 9), u))
        if u not in forget and cosine[u] > 0
    ]
    found = neighbours(*repeated, table.shape, forget, 4)
    assert np.allclose(cosine[found], cosine[expected[:4]])
    assert not set(found) & set(forget)


def test_cold_items_by_hand():
    # item 0: users 0 and 1; item 1: user 1 twice; item 2: nobody; item 3: user 2
    user, item = np.array([0, 1, 1, 1, 2]), np.array([0, 0, 1, 1, 3])
    assert cold_items(user, item, np.array([1]), 4).tolist() == [1]
    assert cold_items(user, item, np.array([0, 1]), 4).tolist() == [0, 1]


def test_activity_groups_and_their_gap():
    groups = activity_groups(np.array([9, 1, 5, 2, 7, 3]))
    assert groups.tolist() == ["high", "low", "middle", "low", "high", "middle"]
    means = group_means(np.array([0.4, 0.1, 0.2, 0.3, np.nan, 0.2]), groups)
    # high .4, low (.1 + .3) / 2, middle .2: gap .4 - .2
    assert means == pytest.approx({"high": 0.4, "low": 0.2, "middle": 0.2, "gap": 0.2})
