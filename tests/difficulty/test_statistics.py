import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from recunlearn.difficulty.statistics import band, kendall_w, partial_spearman, percentile, spearman


def test_kendall_w_by_hand():
    # three raters, four objects; rank sums 4, 6, 9, 11, mean 7.5, S = 12.25 + 2.25 + 2.25 + 12.25 = 29
    # W = 12 · 29 / (9 · (64 - 4)) = 348 / 540 = .6444; chi² = 3 · 3 · .6444 = 5.8 on 3 degrees of freedom
    raters = np.array([[1.0, 2, 3, 4], [1, 3, 2, 4], [2, 1, 4, 3]])
    w, p = kendall_w(raters)
    assert w == pytest.approx(348 / 540)
    assert p == pytest.approx(stats.chi2.sf(5.8, 3))


def test_kendall_w_with_ties_by_hand():
    # ranks (1.5, 1.5, 3) and (1, 2, 3): sums 2.5, 3.5, 6, mean 4, S = 2.25 + .25 + 4 = 6.5
    # ties of rater 1: 2³ - 2 = 6; W = 12 · 6.5 / (4 · (27 - 3) - 2 · 6) = 78 / 84
    w, _ = kendall_w(np.array([[5.0, 5, 9], [1, 2, 3]]))
    assert w == pytest.approx(78 / 84)


@settings(max_examples=40, deadline=None)
@given(arrays(np.float64, (4, 7), elements=st.integers(0, 4).map(float)))
def test_kendall_w_is_the_friedman_statistic(scores):
    # W = chi² / (m (n - 1)), with scipy's tie-corrected Friedman test over raters
    w, p = kendall_w(scores)
    if np.isnan(w):
        assert (np.ptp(scores, axis=1) == 0).all()
        return
    chi2, expected = stats.friedmanchisquare(*scores.T)
    assert w == pytest.approx(chi2 / (4 * 6), abs=1e-9)
    assert p == pytest.approx(expected, abs=1e-9)


def test_kendall_w_without_raters():
    assert np.isnan(kendall_w(np.ones((1, 5)))).all()
    assert np.isnan(kendall_w(np.ones((3, 5)))).all()


@settings(max_examples=40, deadline=None)
@given(arrays(np.float64, (2, 12), elements=st.integers(0, 6).map(float)))
def test_spearman_is_scipys(pair):
    if (np.ptp(pair, axis=1) == 0).any():
        assert np.isnan(spearman(*pair))
    else:
        assert spearman(*pair) == pytest.approx(stats.spearmanr(*pair)[0], abs=1e-9)


def test_spearman_leaves_out_nan():
    x, y = np.array([1.0, 2, np.nan, 4, 5]), np.array([1.0, 3, 9, 2, 5])
    kept = [0, 1, 3, 4]
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x[kept], y[kept])[0])


def test_partial_rank_correlation_of_one_control():
    # the textbook formula for one control: (r_xy - r_xz r_yz) / √((1 - r_xz²)(1 - r_yz²))
    rng = np.random.default_rng(0)
    z = rng.normal(size=80)
    x, y = z + rng.normal(size=80), z + rng.normal(size=80)
    xy, xz, yz = (stats.spearmanr(a, b)[0] for a, b in ((x, y), (x, z), (y, z)))
    expected = (xy - xz * yz) / np.sqrt((1 - xz**2) * (1 - yz**2))
    assert partial_spearman(x, y, [z]) == pytest.approx(expected)
    assert abs(expected) < abs(xy)


def test_partial_correlation_with_what_is_explained_wholly():
    x = np.arange(10.0)
    assert np.isnan(partial_spearman(x, x[::-1], [x]))
    assert np.isnan(partial_spearman(x[:3], x[:3], [x[:3]]))


def test_percentile_by_hand():
    # others below + half of the others equal, of 4: 0, (1 + .5) / 4, (1 + .5) / 4, 3 / 4, 4 / 4
    values = np.array([1.0, 2, 2, 3, 4, np.nan])
    assert percentile(values)[:5].tolist() == [0, 37.5, 37.5, 75, 100]
    assert np.isnan(percentile(values)[5])
    assert percentile(np.array([7.0])).tolist() == [50]
    # against 4 others: below 2 -> 50; equal to one of them: 1.5 of 4
    assert percentile(np.array([2.5, 2.0]), among=np.array([1.0, 2, 3, 4])).tolist() == [50, 37.5]


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_percentile_is_the_average_rank(values):
    array = np.array(values)
    expected = 100 * (stats.rankdata(array) - 1) / (len(array) - 1)
    assert percentile(array) == pytest.approx(expected)


def test_bands_are_thirds():
    assert band(np.array([0, 33.3, 33.4, 66.6, 66.7, 100])).tolist() == [
        "easy", "easy", "medium", "medium", "hard", "hard",
    ]  # fmt: skip
