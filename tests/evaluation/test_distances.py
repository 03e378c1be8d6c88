import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy

from recunlearn.evaluation.distances import (
    DISTANCES,
    half_jeffreys,
    jensen_shannon,
    l2,
    log_probabilities,
    top_k_distance,
)


def log(rows):
    with np.errstate(divide="ignore"):
        return np.log(np.array(rows, dtype=float))


def test_disjoint_distributions_are_ln_2_and_root_2_apart():
    a, b = log([[0.5, 0.5, 0, 0]]), log([[0, 0, 0.5, 0.5]])
    assert jensen_shannon(a, b)[0] == pytest.approx(np.log(2))
    # each of four places differs by .5: √(4 · .25) = 1
    assert l2(a, b)[0] == pytest.approx(1.0)
    assert half_jeffreys(a, b)[0] == np.inf
    assert top_k_distance(a, b, k=2)[0] == 1.0


def test_two_outcomes_by_hand():
    a, b = log([[0.5, 0.5]]), log([[0.75, 0.25]])
    # ½ [.5 ln(.5/.75) + .5 ln(.5/.25)] + ½ [.75 ln(.75/.5) + .25 ln(.25/.5)] = ½ (.143841 + .130812)
    assert half_jeffreys(a, b)[0] == pytest.approx((0.143841 + 0.130812) / 2, abs=1e-6)
    # m = (.625, .375)
    p, q, m = np.array([0.5, 0.5]), np.array([0.75, 0.25]), np.array([0.625, 0.375])
    assert jensen_shannon(a, b)[0] == pytest.approx((entropy(p, m) + entropy(q, m)) / 2)
    assert l2(a, b)[0] == pytest.approx(np.sqrt(2 * 0.25**2))


def test_top_k_by_hand():
    a, b = np.array([[3.0, 2, 1, 0]]), np.array([[0.0, 2, 3, 1]])
    # {0, 1} and {2, 1}: one of two shared
    assert top_k_distance(a, b, k=2)[0] == 0.5
    # fewer items than k: all are shared
    assert top_k_distance(a, b, k=10)[0] == 0.0
    # ties go to the smaller number: {0, 1} and {0, 1}
    assert top_k_distance(np.ones((1, 4)), np.array([[5.0, 4, 0, 0]]), k=2)[0] == 0.0


@given(st.integers(0, 2**31), st.floats(0.1, 30))
def test_oracles_symmetry_and_bounds(seed, scale):
    rng = np.random.default_rng(seed)
    a, b = (log_probabilities(rng.normal(scale=scale, size=(3, 7))) for _ in range(2))
    p, q = np.exp(a), np.exp(b)
    np.testing.assert_allclose(jensen_shannon(a, b), jensenshannon(p, q, axis=1) ** 2, atol=1e-9)
    np.testing.assert_allclose(half_jeffreys(a, b), ((p - q) * (a - b)).sum(1) / 2, rtol=1e-6, atol=1e-12)
    assert (jensen_shannon(a, b) <= np.log(2) + 1e-12).all()
    for distance in DISTANCES.values():
        np.testing.assert_allclose(distance(a, b), distance(b, a), atol=1e-12)
        np.testing.assert_allclose(distance(a, a), 0, atol=1e-12)


def test_log_probabilities_do_not_hang_on_a_constant():
    scores = np.array([[1000.0, 1001.0, 999.0]])
    np.testing.assert_allclose(np.exp(log_probabilities(scores)).sum(1), 1)
    np.testing.assert_allclose(log_probabilities(scores), log_probabilities(scores - 1000))
