import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from recunlearn.difficulty.effects import correlation_interval
from recunlearn.difficulty.statistics import partial_spearman
from recunlearn.difficulty.validity import (
    CONSTANT_OUTCOME,
    CONSTANT_SCORE,
    Draws,
    LeakError,
    agreement,
    bootstrap_weights,
    calibration,
    check_held_out,
    correlations,
    over_seeds,
    ranks_within,
)

ONE = np.zeros(60, dtype=np.int64)
FOLDS = np.arange(60) % 3


def sample(seed, n=60):
    rng = np.random.default_rng(seed)
    controls = rng.normal(size=(2, n))
    score = controls[0] + rng.normal(size=n)
    return score, np.stack([score + rng.normal(size=n), controls[1] + rng.normal(size=n)]), controls


def test_ranks_within_folds_by_hand():
    # fold 0: values 5, 1, 5 -> ranks 2.5, 1, 2.5 of 3 -> (rank - .5) / 3; fold 1: 2, 7 -> 1, 2 of 2
    values = np.array([5.0, 2.0, 1.0, 7.0, 5.0, 9.0, np.nan])
    fold = np.array([0, 1, 0, 1, 0, -1, 1])
    expected = [2 / 3, 1 / 4, 1 / 6, 3 / 4, 2 / 3, np.nan, np.nan]
    np.testing.assert_allclose(ranks_within(values, fold), expected)


@given(st.integers(0, 10_000), st.booleans())
def test_one_fold_is_the_partial_spearman_of_the_statistics(seed, tied):
    score, outcome, controls = sample(seed)
    if tied:
        score = np.round(score)
    found = correlations(score, outcome, controls, ONE, draws=2)
    for k in range(2):
        assert found.raw[0, k] == pytest.approx(spearmanr(score, outcome[k])[0], abs=1e-10)
        assert found.partial[0, k] == pytest.approx(
            partial_spearman(score, outcome[k], list(controls)), abs=1e-8
        )


def test_folds_are_ranked_apart():
    # A score that is shifted by 100 in each fold is as good as without the shift.
    score, outcome, controls = sample(0)
    plain = correlations(score, outcome, controls, FOLDS, draws=0)
    shifted = correlations(score + 100 * FOLDS, outcome - 7 * FOLDS, controls, FOLDS, draws=0)
    np.testing.assert_allclose(plain.partial, shifted.partial)
    assert plain.n == 60


def test_planted_score_gives_one_and_shuffled_about_zero():
    rng = np.random.default_rng(1)
    outcome = rng.normal(size=(3, 900))
    fold = np.arange(900) % 5
    planted = correlations(outcome, outcome, [rng.normal(size=900)], fold, draws=0)
    np.testing.assert_allclose([planted.raw, planted.partial], 1.0)
    mean = outcome.mean(0)
    assert over_seeds([correlations(mean, mean[None], [], fold, draws=0)], "a").mean == pytest.approx(1)
    shuffled = correlations(rng.permutation(mean), outcome, [], fold, draws=0)
    assert abs(shuffled.raw).max() < 4 / np.sqrt(900)  # four standard errors


def test_each_method_has_its_own_score():
    score, outcome, controls = sample(2)
    both = np.stack([score, -score])
    found = correlations(both, outcome, controls, FOLDS, draws=3)
    for k in range(2):
        alone = correlations(both[k], outcome[k], controls, FOLDS, draws=3)
        np.testing.assert_allclose(found.partial[:, k], alone.partial[:, 0])


def test_rows_without_a_value_or_a_fold_do_not_count():
    score, outcome, controls = sample(3)
    outcome[1, 5], score[8], controls[0, 9] = np.nan, np.nan, np.nan
    fold = ONE.copy()
    fold[:3] = -1
    kept = np.setdiff1d(np.arange(3, 60), [5, 8, 9])
    found = correlations(score, outcome, controls, fold, draws=0)
    assert found.n == len(kept)
    expected = partial_spearman(score[kept], outcome[0, kept], list(controls[:, kept]))
    assert found.partial[0, 0] == pytest.approx(expected, abs=1e-9)


def test_infinite_losses_are_the_lowest_rank():
    score, outcome, _ = sample(4)
    outcome[0, 7] = -np.inf
    lowest = outcome.copy()
    lowest[0, 7] = -1e9
    both = (correlations(score, o, [], ONE, draws=0).raw for o in (outcome, lowest))
    np.testing.assert_allclose(*both)


@pytest.mark.parametrize(
    ("score", "outcome", "reason"),
    [
        (np.ones(60), np.arange(60.0), CONSTANT_SCORE),
        (np.arange(60.0), np.ones(60), CONSTANT_OUTCOME),
        (np.where(np.arange(60) < 8, 1.0 * np.arange(60), np.nan), np.arange(60.0), "8 users are too few"),
    ],
)
def test_no_number_without_a_reason(score, outcome, reason):
    found = correlations(score, outcome, [], ONE, draws=5)
    assert np.isnan(found.raw).all()
    assert reason in found.reason
    told = over_seeds([found], ["m"])
    assert np.isnan(told.mean)
    assert reason in told.reason


def test_nothing_left_with_the_controls_held_fixed_is_named():
    score, outcome, _ = sample(5)
    found = correlations(score, outcome, [2 * score + 1], ONE, draws=4)
    assert np.isfinite(found.raw).all()
    assert np.isnan(found.partial[0]).all()
    assert "controls" in over_seeds([found], ["a", "b"], "partial").reason


def test_bootstrap_is_as_wide_as_theory():
    rng = np.random.default_rng(6)
    score = rng.normal(size=400)
    outcome = (score + rng.normal(size=400))[None]
    found = correlations(score, outcome, [], np.zeros(400, dtype=int), draws=2000)
    low, high = np.quantile(found.raw[1:, 0], [0.025, 0.975])
    expected = correlation_interval(float(found.raw[0, 0]), 400)
    assert high - low == pytest.approx(expected[1] - expected[0], rel=0.15)


def test_bootstrap_redraws_within_folds():
    weights = bootstrap_weights(FOLDS, 50, seed=0)
    np.testing.assert_array_equal(weights[0], 1)
    for fold in range(3):
        np.testing.assert_array_equal(weights[:, fold == FOLDS].sum(1), 20)
    assert len(np.unique(weights[1:], axis=0)) == 50


def test_medians_over_trainings_by_hand():
    # means over two methods: .2, .5, .8 -> median .5; first draw .1, .2, .3 -> .2; second .3, .9, .4 -> .4
    raw = [[[0.1, 0.3], [0.1, 0.1], [0.3, 0.3]], [[0.4, 0.6], [0.2, 0.2], [0.9, 0.9]]]
    raw.append([[0.9, 0.7], [0.3, 0.3], [0.4, 0.4]])
    found = over_seeds([Draws(np.array(r), np.array(r), 9) for r in raw], ["a", "b"])
    assert found.mean == pytest.approx(0.5)
    assert (found.low, found.high) == pytest.approx((0.2 + 0.025 * 0.2, 0.2 + 0.975 * 0.2))
    assert found.by_method == pytest.approx({"a": 0.4, "b": 0.6})
    assert found.by_seed == pytest.approx((0.2, 0.5, 0.8))


def test_a_score_that_saw_its_own_outcome_is_caught():
    fold = np.array([0, 0, 1, 1, -1])
    fitted = np.array([[False, False, True, True, True], [True, True, False, False, True]])
    check_held_out("cud", fold, fitted)
    fitted[1, 2] = True  # user 2 is tested in fold 1
    with pytest.raises(LeakError, match="'cud' was fitted on 1 of the entities"):
        check_held_out("cud", fold, fitted)


def test_agreement_is_the_mean_over_pairs():
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(3, 60))
    pairs = [spearmanr(rows[a], rows[b])[0] for a, b in ((0, 1), (0, 2), (1, 2))]
    assert agreement(rows, ONE) == pytest.approx(np.mean(pairs))
    assert np.isnan(agreement(rows[:1], ONE))
    assert np.isnan(agreement(np.stack([rows[0], np.ones(60)]), ONE))  # without a warning


def test_calibration_of_three_entities():
    nan = float("nan")
    predicted = np.array([[0.5, 0.1, 0.9, 0.2], [0.2, 0.0, 0.8, 0.0], [0.6, 0.5, 1.0, 1.0]])
    found = calibration(predicted, np.array([0.7, 0.3, 0.9, nan]))
    # errors .2, .2, 0; widths .4, .5, .2; the first lies above its interval
    assert found["users"] == 3
    assert found["coverage"] == pytest.approx(2 / 3)
    assert found["median_width"] == pytest.approx(0.4)
    assert found["median_error"] == pytest.approx(0.2)
    np.testing.assert_allclose(found["tenths"], [[0.1, 0.3], [0.5, 0.7], [0.9, 0.9]])
    assert calibration(predicted, np.full(4, nan)) == {}
