"""The regression on circuits: planted signals, leaks, who is left out, coverage."""

import numpy as np
import pytest

from recunlearn.difficulty.regression import LEAST_USERS, fit_residual, out_of_fold
from recunlearn.difficulty.statistics import spearman


def planted(n=200, edges=40, noise=0.3, seed=0):
    """Circuits ``[n, E]`` and long-tailed outcomes of three methods ``[3, n]`` that five edges decide."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, edges)) * np.exp(rng.normal(size=edges))
    signal = (values / values.std(0))[:, :5].sum(1) / np.sqrt(5)
    return values, 1 - np.exp(signal + noise * rng.normal(size=(3, n)))


def test_a_planted_signal_is_recovered_and_a_shuffled_one_is_not():
    values, targets = planted()
    found = out_of_fold(values, targets)
    assert spearman(found.mean, targets.mean(0)) > 0.9
    assert all(spearman(p, t) > 0.85 for p, t in zip(found.by_method, targets, strict=True))
    mixed = targets[:, np.random.default_rng(1).permutation(200)]
    # no relation: deviation of rho is 1 / sqrt(199) = .071, three of them .21
    assert abs(spearman(out_of_fold(values, mixed).mean, mixed.mean(0))) < 0.22


def test_new_users_are_predicted_in_their_own_units():
    values, targets = planted(400, noise=0.1)
    model = fit_residual(values[:300], targets[:, :300])
    found = model.predict(values[300:])
    assert np.median(np.abs(found.mean - targets[:, 300:].mean(0))) < 0.25
    assert (found.low <= found.mean).all()
    assert (found.mean <= found.high).all()
    assert (found.method_low <= found.method_high).all()
    assert found.by_method.shape == (3, 100)


def test_an_outcome_does_not_enter_the_prediction_of_its_own_user():
    values, targets = planted(100)
    spoilt = targets.copy()
    spoilt[:, 17] = [-1e6, 3e5, -np.inf]
    before, after = out_of_fold(values, targets), out_of_fold(values, spoilt)
    for name in ("mean", "low", "high"):
        assert getattr(before, name)[17] == getattr(after, name)[17]
    assert (before.by_method[:, 17] == after.by_method[:, 17]).all()
    assert (before.mean != after.mean).sum() > 80  # it does enter those of the others, but of its own fold
    assert fit_residual(values, targets).predict(values[[17]]).mean != pytest.approx(
        fit_residual(values, spoilt).predict(values[[17]]).mean
    )


def test_one_wild_outcome_moves_the_others_little():
    values, targets = planted(200)
    wild = targets.copy()
    wild[:, 3] = -1e9
    a, b = (fit_residual(values, t).predict(values).mean for t in (targets, wild))
    others = np.arange(200) != 3
    assert spearman(a[others], b[others]) > 0.97


def test_the_interval_holds_what_it_states_on_users_that_were_not_fitted():
    inside = []
    for seed in range(20):
        values, targets = planted(250, noise=1, seed=seed)
        found = fit_residual(values[:150], targets[:, :150]).predict(values[150:])
        truth = targets[:, 150:].mean(0)
        inside.append(((found.low <= truth) & (truth <= found.high)).mean())
    # deviation of a fit's coverage sqrt(.9 * .1 / 151) = .024, of its 100 users .030: together
    # .039 / sqrt(20) = .0087; three of them .026, and up to 2 / 151 = .013 lie beyond all fitted outcomes
    assert np.mean(inside) == pytest.approx(0.9, abs=0.04)


def test_users_without_an_outcome_are_left_out_of_the_fit_and_predicted():
    values, targets = planted(100)
    some = targets.copy()
    some[1, :20] = np.nan
    model = fit_residual(values, some)
    assert model.n_users == 80
    same = fit_residual(values[20:], targets[:, 20:]).predict(values)
    np.testing.assert_array_equal(model.predict(values).mean, same.mean)
    assert np.isfinite(out_of_fold(values, some).mean).all()


def test_users_without_a_circuit_have_no_prediction():
    values, targets = planted(100)
    values[[4, 90]] = np.nan
    for found in (fit_residual(values, targets).predict(values), out_of_fold(values, targets)):
        assert np.flatnonzero(np.isnan(found.mean)).tolist() == [4, 90]
        assert np.isnan(found.method_low).sum() == 6


def test_too_few_users_get_a_reason_and_no_number():
    values, targets = planted(LEAST_USERS - 1)
    model = fit_residual(values, targets)
    assert model.reason == "29 outcomes could be measured, and 30 are needed"
    assert np.isnan(model.predict(values).by_method).all()
    values, targets = planted(LEAST_USERS)
    assert np.isfinite(fit_residual(values, targets).predict(values).mean).all()
    assert np.isfinite(out_of_fold(values, targets).mean).all()  # folds of 27


def test_circuits_that_never_differ_get_a_reason():
    _, targets = planted(60)
    model = fit_residual(np.ones((60, 4)), targets)
    assert model.reason == "all circuits are the same"
    assert np.isnan(model.predict(np.ones((2, 4))).mean).all()


def test_constant_covariates_change_nothing_and_good_ones_help():
    values, targets = planted(150, noise=1)
    plain = out_of_fold(values, targets).mean
    np.testing.assert_allclose(out_of_fold(values, targets, np.ones((150, 2))).mean, plain)
    helped = out_of_fold(values, targets, np.log(1 - targets[:1].T)).mean
    assert spearman(helped, targets.mean(0)) > spearman(plain, targets.mean(0)) + 0.05


def test_the_mean_is_over_the_methods_that_count():
    values, targets = planted(120)
    odd = np.concatenate([targets, 100 + targets[:1]])
    counted = np.array([True, True, True, False])
    a = fit_residual(values, odd, averaged=counted).predict(values).mean
    assert np.corrcoef(a, fit_residual(values, targets).predict(values).mean)[0, 1] > 0.999
    assert np.median(fit_residual(values, odd).predict(values).mean) > 20


def test_the_unit_of_circuits_and_of_an_edge_does_not_matter():
    values, targets = planted(80)
    plain, other, mixed = (
        fit_residual(v, targets).predict(v).mean
        for v in (values, 7 * values + 1, values * np.geomspace(0.5, 2, values.shape[1]))
    )
    np.testing.assert_allclose(plain, other, rtol=1e-6)
    assert spearman(plain, mixed) > 0.999  # a thousandth of the largest spread is added to each


def test_a_method_that_made_every_loss_infinite_leaves_nothing_to_learn():
    values, targets = planted(60)
    targets[1] = -np.inf
    assert fit_residual(values, targets).reason == "0 outcomes could be measured, and 30 are needed"
    assert np.isnan(out_of_fold(values, targets).mean).all()
