from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from recunlearn.evaluation.statistics import paired_interval, paired_p


@given(st.lists(st.integers(-4, 4), min_size=2, max_size=7))
def test_p_by_brute_force(apart):
    apart = np.array(apart, dtype=float)
    every = [(np.array(signs) * apart).mean() for signs in product((-1, 1), repeat=len(apart))]
    tails = np.mean(every >= apart.mean() - 1e-9), np.mean(every <= apart.mean() + 1e-9)
    assert paired_p(np.zeros(len(apart)), apart, seed=0) == pytest.approx(min(1, 2 * min(tails)))


def test_p_agrees_with_the_t_test_on_many_normal_pairs():
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=80), rng.normal(0.3, size=80)
    assert paired_p(a, b) == pytest.approx(stats.ttest_rel(a, b).pvalue, abs=0.02)
    assert paired_p(a, b, seed=1) == paired_p(a, b, seed=1)


def test_interval_by_the_normal_law():
    rng = np.random.default_rng(0)
    a = rng.normal(size=400)
    b = a + rng.normal(1.0, 0.5, size=400)
    # pairs cancel what they share: 1 ± 1.96 · .5 / 20 around the sample mean
    low, high = paired_interval(a, b)
    reach = 1.96 * (b - a).std(ddof=1) / 20
    assert (low, high) == pytest.approx(((b - a).mean() - reach, (b - a).mean() + reach), abs=0.005)


def test_interval_holds_the_truth_about_as_often_as_it_says():
    rng, inside = np.random.default_rng(0), 0
    for seed in range(100):
        low, high = paired_interval(np.zeros(30), rng.normal(1.0, size=30), seed)
        inside += low <= 1.0 <= high
    assert 88 <= inside <= 99


def test_missing_pairs_are_left_out_and_shapes_are_checked():
    a, b = np.array([1.0, 2, np.nan, 4]), np.array([2.0, 4, 9, np.nan])
    # differences 1 and 2: flips (±1 ± 2) / 2, two of four at least as far: p = 2 · 1/4
    assert paired_p(a, b) == pytest.approx(0.5)
    assert np.isnan(paired_p(a[2:], b[2:]))
    assert np.isnan(paired_interval(a[2:], b[2:])).all()
    with pytest.raises(ValueError, match=r"one shape, but got \(4,\) and \(2,\)"):
        paired_p(a, b[:2])
