"""Ridge, its leave-one-out shortcut and jackknife+ against scikit-learn, brute force and simulation."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge as Oracle

from recunlearn.difficulty.ridge import PENALTIES, fit_ridge


def data(n=40, p=12, targets=2, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    x, slope = rng.normal(size=(n, p)), rng.normal(size=(p, targets))
    return x, x @ slope + noise * rng.normal(size=(n, targets)) + 3


@pytest.mark.parametrize("shape", [(40, 12), (20, 50)], ids=["more rows", "more columns"])
def test_predictions_are_those_of_scikit_learn(shape):
    x, y = data(*shape)
    new, _ = data(7, shape[1], seed=1)
    value, low, high = fit_ridge(x, y, penalty=2.5).predict(new)
    np.testing.assert_allclose(value, Oracle(alpha=2.5).fit(x, y).predict(new), rtol=1e-8)
    assert (low < value).all()
    assert (value < high).all()


@pytest.mark.parametrize("shape", [(30, 8), (15, 40)], ids=["more rows", "more columns"])
def test_leave_one_out_is_that_of_fitting_again(shape):
    x, y = data(*shape)
    brute = [
        y[i] - Oracle(alpha=1.5).fit(np.delete(x, i, 0), np.delete(y, i, 0)).predict(x[[i]])[0]
        for i in range(len(x))
    ]
    np.testing.assert_allclose(fit_ridge(x, y, penalty=1.5).leave_one_out, brute, rtol=1e-7, atol=1e-9)


def test_jackknife_plus_is_that_of_fitting_again():
    x, y = data(19, 6, targets=1)
    new = data(4, 6, seed=2)[0]
    lower, upper = [], []
    for i in range(len(x)):
        left_out = Oracle(alpha=0.7).fit(np.delete(x, i, 0), np.delete(y[:, 0], i))
        error = abs(y[i, 0] - left_out.predict(x[[i]])[0])
        lower.append(left_out.predict(new) - error)
        upper.append(left_out.predict(new) + error)
    # n = 19, coverage 0.9: floor(0.1 * 20) = 2nd smallest below, ceil(0.9 * 20) = 18th smallest above
    _, low, high = fit_ridge(x, y, penalty=0.7).predict(new, coverage=0.9)
    np.testing.assert_allclose(low[:, 0], np.sort(lower, axis=0)[1], rtol=1e-8)
    np.testing.assert_allclose(high[:, 0], np.sort(upper, axis=0)[17], rtol=1e-8)


def test_an_interval_that_needs_more_rows_than_there_are_is_infinite():
    x, y = data(8, 3)
    _, low, high = fit_ridge(x, y).predict(x[:2], coverage=0.9)  # ceil(0.9 * 9) = 9 > 8
    assert np.isneginf(low).all()
    assert np.isposinf(high).all()


def test_the_penalty_of_least_leave_one_out_error_is_chosen():
    x, y = data(40, 30, noise=4)
    unit = ((x - x.mean(0)) ** 2).sum() / len(x)
    squares = {p * unit: (fit_ridge(x, y, p * unit).leave_one_out ** 2).sum() for p in PENALTIES}
    chosen = fit_ridge(x, y).penalty
    assert chosen == pytest.approx(min(squares, key=squares.get))
    assert min(squares) < chosen < max(squares)  # neither end of the grid


def test_jackknife_plus_covers_what_it_states():
    """60 fits of 60 rows, 50 new rows each, noise with long tails."""
    rng = np.random.default_rng(0)
    slope, inside = rng.normal(size=10), []
    for _ in range(60):
        x = rng.normal(size=(60, 10))
        new = rng.normal(size=(50, 10))
        y, truth = (v @ slope + rng.standard_t(3, size=len(v)) for v in (x, new))
        _, low, high = fit_ridge(x, y[:, None]).predict(new)
        inside.append(((low[:, 0] <= truth) & (truth <= high[:, 0])).mean())
    # A fit's own coverage varies like Beta(54, 7) (deviation .041), its 50 rows like a binomial (.042):
    # together sqrt(.041² + .042²) / sqrt(60) = .0076, three of them .023.
    assert np.mean(inside) == pytest.approx(0.9, abs=0.023)


def test_features_that_never_differ_predict_the_mean():
    y = np.arange(40.0)[:, None]
    value, _, _ = fit_ridge(np.ones((40, 3)), y).predict(np.ones((2, 3)))
    assert value.ravel().tolist() == [19.5, 19.5]
