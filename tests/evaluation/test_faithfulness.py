"""Agreement with exact ablation and the areas under f(k), by hand and against scipy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from recunlearn.evaluation.faithfulness import (
    agreement,
    areas,
    circuit_sizes,
    faithfulness,
    jaccard,
    top_edges,
)

small = arrays(np.float64, (4, 6), elements=st.integers(-3, 3).map(float))  # many ties


@given(small, small)
def test_correlations_are_those_of_scipy(exact, scores):
    found = agreement(exact, scores, resamples=0)
    if np.ptp(exact) == 0 or np.ptp(scores) == 0:
        assert found.spearman is None
        assert "all equal" in found.reasons["spearman"]
        return
    assert found.spearman == pytest.approx(stats.spearmanr(exact.ravel(), scores.ravel()).statistic, abs=1e-9)
    assert found.pearson == pytest.approx(stats.pearsonr(exact.ravel(), scores.ravel())[0], abs=1e-9)
    rows = [(x, y) for x, y in zip(exact, scores, strict=True) if np.ptp(x) > 0 and np.ptp(y) > 0]
    if rows:
        expected = np.mean([stats.spearmanr(x, y).statistic for x, y in rows])
        assert found.per_sample == pytest.approx(expected, abs=1e-9)
    else:
        assert found.per_sample is None


def test_interval_resamples_whole_users():
    """The same draws, with the samples of a drawn user repeated, ranked by scipy."""
    rng = np.random.default_rng(3)
    exact = rng.normal(size=(8, 5)).round(1)
    scores = exact + rng.normal(size=(8, 5)).round(1)
    users = np.array([7, 7, 2, 2, 2, 5, 9, 9])
    found = agreement(exact, scores, users, resamples=40, seed=11)
    draws, rows, ids = np.random.default_rng(11), [], np.unique(users)
    for _ in range(40):
        drawn = draws.integers(4, size=4)
        taken = np.concatenate([np.flatnonzero(users == ids[d]) for d in drawn])
        rows.append(stats.spearmanr(exact[taken].ravel(), scores[taken].ravel()).statistic)
    assert found.interval == pytest.approx(np.quantile(rows, [0.025, 0.975]), abs=1e-9)
    assert found.interval[0] < found.spearman < found.interval[1]


def test_interval_over_users_is_wider_than_over_pairs():
    """Effects of a user share a level: pairs are not independent, and the interval must say so."""
    rng = np.random.default_rng(0)
    level = rng.normal(size=(20, 1))
    exact = level + 0.1 * rng.normal(size=(20, 50))
    scores = level * rng.normal(size=(20, 1)) + 0.1 * rng.normal(size=(20, 50))
    low, high = agreement(exact, scores).interval
    pairs_low, pairs_high = agreement(exact.reshape(-1, 1), scores.reshape(-1, 1)).interval
    assert high - low > 2 * (pairs_high - pairs_low)


def test_signs_by_hand():
    exact = np.array([[1.0, -3.0, 0.0, 2.0]])
    scores = np.array([[5.0, 1.0, 4.0, 0.1]])
    found = agreement(exact, scores)
    assert found.sign == pytest.approx(2 / 3)  # 1 and 2 agree, -3 does not, 0 does not count
    assert found.sign_weighted == pytest.approx((1 + 2) / (1 + 3 + 2))
    assert found.interval is None
    assert found.reasons["interval"] == "one sample cannot be resampled"


def test_no_effect_anywhere_is_named_not_numbered():
    found = agreement(np.zeros((3, 4)), np.arange(12.0).reshape(3, 4))
    assert (found.spearman, found.pearson, found.interval, found.sign) == (None,) * 4
    assert found.reasons["interval"] == "the exact effects are all equal"


@pytest.mark.parametrize(("x", "y"), [(np.ones((2, 3)), np.ones((3, 2))), (np.ones(3), np.ones(3))])
def test_shapes_are_checked(x, y):
    with pytest.raises(ValueError, match="must share a shape"):
        agreement(x, y)


def test_values_are_checked():
    with pytest.raises(ValueError, match="finite"):
        agreement(np.array([[1.0, np.nan]]), np.ones((1, 2)))


def test_circuits_by_hand():
    scores = np.array([[3.0, -5.0, 1.0], [0.0, 0.0, -1.0]])
    absolute, signed = top_edges(scores, [1, 2]), top_edges(scores, [1, 2], "signed")
    assert absolute[0].tolist() == [[False, True, False], [False, False, True]]
    assert absolute[1].tolist() == [[True, True, False], [True, False, True]]  # a tie: the first column
    assert signed[0].tolist() == [[True, False, False], [True, False, False]]
    assert signed[1].tolist() == [[True, False, True], [True, True, False]]


@given(st.integers(1, 3000))
def test_sizes_grow_to_all_edges(edges):
    sizes = circuit_sizes(edges)
    assert sizes == sorted(set(sizes))
    assert sizes[0] >= 1
    assert sizes[-1] == edges


def test_f_by_hand():
    full, empty = np.array([-1.0, -3.0]), np.array([-4.0, -4.0])
    f = faithfulness(np.array([[-4.0, -4.0], [-2.0, -4.0], [-1.0, -3.0]]), full, empty)
    # means: full -2, empty -4, circuits -4, -3, -2: (m + 4) / 2
    assert f.tolist() == [0.0, 0.5, 1.0]


def test_areas_by_hand():
    cpr, cmd = areas([1, 2, 4], np.array([0.5, 1.5, 1.0]))
    # widths 1/4, 1/4, 1/2 of heights 0, .5, 1.5, 1: .0625 + .25 + .625
    assert cpr == pytest.approx(0.9375)
    # |1 - f|: 1, .5, .5, 0: .1875 + .125 + .125
    assert cmd == pytest.approx(0.4375)


@pytest.mark.parametrize("full", [np.array([1.0, -1.0]), np.array([0.0, 0.0])])
def test_changes_that_cancel_are_degenerate(full):
    assert faithfulness(np.zeros((1, 2)), full, np.zeros(2)).startswith("degenerate")


def test_jaccard_by_hand():
    a = np.array([[True, True, False], [False, False, False]])
    b = np.array([[True, False, True], [False, False, False]])
    assert jaccard(a, b) == pytest.approx((1 / 3 + 1) / 2)
