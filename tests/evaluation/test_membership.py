import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import roc_auc_score, roc_curve

from recunlearn.evaluation.membership import (
    References,
    _areas,
    _rates,
    attack,
    halves,
    likelihood_ratio,
    signal,
    true_positive_rate,
)


def world(n=200, k=8, seed=0, apart=0.5):
    """Losses around .5 inside and .5 + apart outside, alike in every model."""
    rng = np.random.default_rng(seed)
    inside = halves(n, k, seed)
    ease = rng.normal(scale=0.2, size=n)
    draw = lambda member: np.exp(-0.7 + ease + apart * ~member + rng.normal(scale=0.1, size=member.shape))  # noqa: E731
    return References(draw(inside), inside), draw


def test_every_user_is_in_half_of_the_models():
    inside = halves(31, 8, seed=3)
    assert (inside.sum(0) == 4).all()
    assert not np.array_equal(inside, halves(31, 8, seed=4))


def test_signal_by_hand():
    # p = .5: log(.5 / .5) = 0; p = .8: log 4
    assert signal(-np.log([0.5, 0.8])) == pytest.approx([0, np.log(4)])
    assert np.isfinite(signal(np.array([0.0, np.inf]))).all()


def test_likelihood_ratio_by_hand():
    # signals: user 0 inside 1 and 3 (mean 2), outside -1 and 1 (mean 0). One user: 4 values, 2 means, so
    # variance = (1 + 1 + 1 + 1) / 2 = 2. phi = 2: (2² - 0²) / (2 · 2) = 1
    phi = np.array([[1.0], [3.0], [-1.0], [1.0]])
    loss = np.log1p(np.exp(-phi))  # p = sigmoid(phi)
    references = References(loss, np.array([[True], [True], [False], [False]]))
    found = likelihood_ratio(np.log1p(np.exp(-np.array([2.0]))), references, np.array([0]))
    assert found[0] == pytest.approx(1.0)
    expected = norm.logpdf(2, 2, np.sqrt(2)) - norm.logpdf(2, 0, np.sqrt(2))
    assert found[0] == pytest.approx(expected)


def test_members_are_told_from_strangers():
    references, draw = world()
    users = np.arange(200)
    member, stranger = draw(np.ones(200, dtype=bool)), draw(np.zeros(200, dtype=bool))
    found, target = attack(member, references, users), attack(stranger, references, users)
    assert found.auc > 0.99
    assert found.tpr > 0.9
    assert 0.45 < target.auc < 0.55
    assert target.tpr < 0.05
    assert found.auc_low <= found.auc <= found.auc_high
    assert target.tpr_low <= target.tpr <= target.tpr_high


def test_what_was_forgotten_too_well_falls_below_strangers():
    references, draw = world()
    wrecked = draw(np.zeros(200, dtype=bool)) * 10
    assert attack(wrecked, references, np.arange(200)).auc_high < 0.1


def test_without_memory_nothing_is_told():
    references, draw = world(apart=0.0)
    assert 0.4 < attack(draw(np.ones(200, dtype=bool)), references, np.arange(200)).auc < 0.6


def test_a_permutation_of_users_changes_nothing():
    references, draw = world(n=40)
    loss = draw(np.ones(40, dtype=bool))
    order = np.random.default_rng(1).permutation(40)
    one, other = attack(loss, references, np.arange(40)), attack(loss[order], references, order)
    assert (one.auc, one.tpr) == pytest.approx((other.auc, other.tpr))


@given(st.integers(0, 2**31))
def test_areas_and_rates_are_scikit_learns(seed):
    rng = np.random.default_rng(seed)
    n, k = 9, 4
    positive = rng.integers(0, 6, n).astype(float)
    negative = rng.integers(0, 6, (2 * k, n)).astype(float)
    negative[rng.permuted(np.repeat([True, False], k)[:, None].repeat(n, 1), axis=0)] = np.nan
    resample = rng.integers(n, size=n)
    weights = np.stack([np.ones(n), np.bincount(resample, minlength=n)])
    for row, users in enumerate((np.arange(n), resample)):
        out = negative[:, users]
        out = out[~np.isnan(out)]
        labels = np.r_[np.ones(n), np.zeros(len(out))]
        scores = np.r_[positive[users], out]
        assert _areas(positive, negative, weights)[row] == pytest.approx(roc_auc_score(labels, scores))
        assert _rates(positive, negative, weights)[row] == pytest.approx(
            true_positive_rate(positive[users], out)
        )


@given(st.integers(0, 2**31), st.sampled_from([0.01, 0.1, 0.3]))
def test_true_positive_rate_lies_on_the_curve(seed, fpr):
    rng = np.random.default_rng(seed)
    positive, negative = rng.normal(0.5, size=20), rng.normal(size=50)
    labels, scores = np.r_[np.ones(20), np.zeros(50)], np.r_[positive, negative]
    false, true, _ = roc_curve(labels, scores, drop_intermediate=False)
    assert true_positive_rate(positive, negative, fpr) == pytest.approx(true[false <= fpr + 1e-12].max())


def test_nobody_to_attack_is_nan():
    assert np.isnan(true_positive_rate(np.array([1.0]), np.array([])))
    references, _ = world(n=10)
    assert np.isnan(attack(np.array([]), references, np.array([], dtype=int)).auc)
