"""Predicted residual from records: measurable users, methods, covariates, honesty in the pool."""

import numpy as np
import pytest

from recunlearn.difficulty.residual import covariates, predicted_residual, quality, share_left
from recunlearn.foundation.records import Circuits, Outcomes

USERS = 160
POOL = np.arange(0, USERS, 2)


def records(*, seeds=2, noise=0.0, moved=(1.0, 0.9), unmeasured=0, seed=0):
    """Circuits of 160 users; outcomes of every second one, where the first edge decides the share left.

    ``moved``: how far each method goes of the way that is set for a user; ``unmeasured``: users whose
    retrained loss is their loss.
    """
    rng = np.random.default_rng(seed)
    ids = np.array([f"u{k}" for k in range(USERS)])
    values = rng.normal(size=(USERS, 12)).astype(np.float32)
    way = 1 + rng.random(USERS)
    way[POOL[:unmeasured]] = 0
    gone = np.exp(values[:, 0]) * way
    after = np.array([[m * gone[POOL] for _ in range(seeds)] for m in moved])
    after += 0.05 * rng.normal(size=after.shape)
    n = len(POOL)
    outcomes = Outcomes(
        ids[POOL],
        tuple(f"Method{k}" for k in range(len(moved))),
        tuple(range(seeds)),
        np.full(n, 0.5),
        0.5 + after,
        0.5 + np.stack([way[POOL], way[POOL]]),
        np.ones(n),
        noise=noise,
    )
    circuits = Circuits(
        ids, tuple(map(str, range(12))), values, np.zeros(USERS, np.float32), np.full(USERS, 5)
    )
    return circuits, outcomes, 1 - np.exp(values[:, 0])


def test_users_outside_and_inside_the_pool_are_predicted():
    circuits, outcomes, truth = records()
    found = predicted_residual(circuits, outcomes)
    outside = np.setdiff1d(np.arange(USERS), POOL)
    for rows in (outside, POOL):
        assert np.corrcoef(found.predicted.mean[rows], truth[rows])[0, 1] > 0.9
    assert found.figures["users"] == 80
    assert found.figures["spearman"] > 0.9
    assert set(found.by_method) == {"Method0", "Method1"}
    # 80 users: deviation of the coverage sqrt(.9 * .1 / 80) = .034, three of them .1
    assert found.figures["coverage"] == pytest.approx(0.9, abs=0.1)


def test_figures_are_those_of_the_predictions_in_the_table():
    circuits, outcomes, _ = records()
    found = predicted_residual(circuits, outcomes)
    p = found.predicted
    again = quality(p.mean[POOL], p.low[POOL], p.high[POOL], share_left(outcomes).mean(0))
    assert {k: v for k, v in found.figures.items() if k != "users"} == again


def test_an_outcome_does_not_reach_its_own_row():
    circuits, outcomes, _ = records()
    outcomes.loss_after[:, :, 11] = 40.0
    spoilt = predicted_residual(circuits, outcomes).predicted
    outcomes.loss_after[:, :, 11] = 0.5
    other = predicted_residual(circuits, outcomes).predicted
    row = POOL[11]
    assert (spoilt.mean[row], spoilt.low[row], spoilt.high[row]) == (
        other.mean[row],
        other.low[row],
        other.high[row],
    )
    assert (spoilt.by_method[:, row] == other.by_method[:, row]).all()
    assert not np.array_equal(spoilt.mean, other.mean)


def test_users_below_twice_the_noise_are_not_fitted_but_predicted():
    circuits, outcomes, _ = records(unmeasured=10)
    found = predicted_residual(circuits, outcomes)
    assert found.figures["users"] == 70
    assert np.isfinite(found.predicted.mean).all()


def test_too_few_measurable_users_give_no_number():
    circuits, outcomes, _ = records(unmeasured=51)
    found = predicted_residual(circuits, outcomes)
    assert found.reason == "29 outcomes could be measured, and 30 are needed"
    assert found.figures == {"users": 29}
    assert np.isnan(found.predicted.mean).all()
    assert np.isnan(found.predicted.by_method).all()


def test_nobody_measurable_gives_no_number():
    circuits, outcomes, _ = records(noise=9.0)
    assert "0 outcomes could be measured" in predicted_residual(circuits, outcomes).reason


def test_a_method_that_unlearned_nothing_has_a_column_but_no_part_in_the_mean():
    circuits, outcomes, _ = records(moved=(1.0, 0.0))
    p = predicted_residual(circuits, outcomes).predicted
    assert np.median(p.by_method[1]) == pytest.approx(1, abs=0.1)  # all is left
    np.testing.assert_allclose(p.mean, p.by_method[0])


def test_share_left_by_hand():
    # L0 .5, LR .5 + 2 and .5 + 1 -> way 1.5; LU .5 + 1 and .5 + .5 -> (1.5 - 1) / 1.5, (1.5 - .5) / 1.5
    outcomes = Outcomes(
        np.array(["a"]),
        ("M",),
        (0, 1),
        loss_before=np.array([0.5]),
        loss_after=np.array([[[1.5], [1.0]]]),
        loss_retrained=np.array([[2.5], [1.5]]),
        loss_population=np.array([9.0]),
    )
    np.testing.assert_allclose(share_left(outcomes), [[0.5]])  # (1/3 + 2/3) / 2


def test_quality_by_hand():
    truth, predicted = np.array([1.0, 2.0, 6.0, np.nan]), np.array([1.0, 3.0, 5.0, 0.0])
    found = quality(predicted, predicted - 0.5, predicted + 1, truth)
    # mean 3: 4 + 1 + 9 = 14 around it, errors 0 + 1 + 1 = 2; inside [.5, 2] yes, [2.5, 4] no, [4.5, 6] yes
    assert found["r2"] == pytest.approx(1 - 2 / 14)
    assert found["spearman"] == pytest.approx(1)
    assert found["median_error"] == 1
    assert found["coverage"] == pytest.approx(2 / 3)


def test_quality_of_a_truth_that_does_not_vary_is_not_a_number():
    found = quality(np.array([1.0, 2]), np.zeros(2), np.ones(2), np.ones(2))
    assert np.isnan(found["r2"])
    assert np.isnan(found["spearman"])


def test_covariates_leave_out_what_a_model_has_not():
    n = np.array([0, 3, 5, 9])
    loss, nothing = np.array([np.nan, 0.1, 0.4, 0.2]), np.full(4, np.nan)
    table = covariates(n, n * 2.0, loss, nothing)
    assert table.shape == (4, 6)  # activity, popularity, loss; each also as normal scores
    assert np.isnan(table[0]).all()
    np.testing.assert_allclose(table[1:, 0], np.log1p([3, 5, 9]))
    np.testing.assert_allclose(table[1:, 5], [-0.967422, 0.967422, 0], atol=1e-6)  # of 1/6, 5/6, 3/6
    assert covariates(n, n * 2.0, loss, loss).shape == (4, 8)
    assert covariates(n * np.nan, nothing, nothing, nothing) is None
