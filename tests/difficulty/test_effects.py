from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from recunlearn.difficulty.effects import (
    cliffs_delta,
    correlation_interval,
    delta_interval,
    holm,
    permutation_p,
)

samples = st.lists(st.integers(-5, 5), min_size=2, max_size=9).map(np.array)


def test_cliffs_delta_by_hand():
    # pairs (low, high): 1<2, 1<4, 2=2, 2<4, 3>2, 3<4: 4 wins, 1 loss of 6 -> 3 / 6
    assert cliffs_delta(np.array([1, 2, 3]), np.array([2, 4])) == 0.5
    assert np.isnan(cliffs_delta(np.array([]), np.array([1.0])))


@given(samples, samples)
def test_cliffs_delta_is_mann_whitneys_u(low, high):
    u = stats.mannwhitneyu(high, low).statistic
    assert cliffs_delta(low, high) == pytest.approx(2 * u / (len(low) * len(high)) - 1)
    assert cliffs_delta(high, low) == -cliffs_delta(low, high)


def test_interval_holds_the_delta_and_narrows_with_more_users():
    rng = np.random.default_rng(0)
    few, many = rng.normal(size=(2, 15)), rng.normal(size=(2, 150))
    few[1] += 0.5
    many[1] += 0.5
    widths = []
    for low, high in (few, many):
        bottom, top = delta_interval(low, high, seed=1)
        assert bottom < cliffs_delta(low, high) < top
        widths.append(top - bottom)
    assert widths[1] < widths[0] / 2


def test_interval_covers_the_true_delta_about_as_often_as_it_says():
    # of two normals one apart: P(high > low) - P(high < low) = 2 Phi(1 / sqrt 2) - 1 = .5205
    rng, true = np.random.default_rng(0), 2 * stats.norm.cdf(1 / np.sqrt(2)) - 1
    inside = 0
    for seed in range(100):
        bottom, top = delta_interval(rng.normal(size=30), rng.normal(1, size=30), seed)
        inside += bottom <= true <= top
    assert 88 <= inside <= 99


@given(st.permutations([0.1, 0.5, 0.7, 1.1, 1.1, 2.0, 3.5]))
def test_permutation_p_by_brute_force(values):
    values = np.array(values)
    low, high = values[:3], values[3:]
    every = [
        cliffs_delta(values[list(chosen)], np.delete(values, chosen)) for chosen in combinations(range(7), 3)
    ]
    seen = cliffs_delta(low, high)
    tails = np.mean([d >= seen - 1e-9 for d in every]), np.mean([d <= seen + 1e-9 for d in every])
    assert permutation_p(low, high, seed=0) == pytest.approx(min(1, 2 * min(tails)))


def test_permutation_p_is_repeatable_and_agrees_with_the_large_sample_test():
    rng = np.random.default_rng(3)
    low, high = rng.normal(size=40), rng.normal(0.4, size=50)
    p = permutation_p(low, high, seed=0)
    assert p == permutation_p(low, high, seed=0)
    assert p == pytest.approx(stats.mannwhitneyu(low, high).pvalue, abs=0.02)


def test_holm_by_hand():
    # ordered .01 * 4, .02 * 3 = .06, .03 * 2 = .06, .5 * 1; NaN is no test
    assert holm(np.array([0.02, np.nan, 0.5, 0.01, 0.03])) == pytest.approx(
        [0.06, np.nan, 0.5, 0.04, 0.06], nan_ok=True
    )
    # .04 * 2 = .08, then .05 * 1 is lifted to .08; .9 twice: 1.8 is cut to 1
    assert holm(np.array([0.05, 0.04])) == pytest.approx([0.08, 0.08])
    assert holm(np.array([0.9, 0.9])).tolist() == [1, 1]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_what_the_step_down_procedure_rejects(p):
    for level in (0.05, 0.2):
        rejected = set()
        for step, i in enumerate(np.argsort(p, kind="stable")):
            if p[i] > level / (len(p) - step):
                break
            rejected.add(int(i))
        corrected = holm(np.array(p))
        clear = np.abs(corrected - level) > 1e-9
        assert {int(i) for i in np.flatnonzero((corrected <= level) & clear)} == {
            i for i in rejected if clear[i]
        }


def test_correlation_interval_by_hand():
    # atanh .5 = .549306; 1.959964 sqrt(1.06 / 100) = .201791
    # tanh(.549306 - .201791) = tanh(.347515) = .334170, tanh(.751097) = .635803
    assert correlation_interval(0.5, 103) == pytest.approx((0.334170, 0.635803), abs=1e-5)
    assert correlation_interval(0.5, 106, controls=3) == correlation_interval(0.5, 103)
    assert np.isnan(correlation_interval(0.5, 6, controls=3)).all()
    assert np.isnan(correlation_interval(np.nan, 100)).all()
    assert correlation_interval(1.0, 100)[1] == pytest.approx(1.0)
