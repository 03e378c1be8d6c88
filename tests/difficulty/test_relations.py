import numpy as np
import pytest
from scipy import stats

from recunlearn.difficulty.relations import relations


def test_relations_by_hand():
    score = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    found = {
        r.name: r
        for r in relations(
            score,
            {
                # Ranks 2 1 4 3 5: sum of squared differences 4, rho = 1 - 6 * 4 / (5 * 24) = .8.
                "near": np.array([20.0, 10.0, 40.0, 30.0, 50.0]),
                "same": np.ones(5),
                "few": np.array([1.0, np.nan, np.nan, 2.0, 3.0]),
            },
        )
    }
    near = found["near"]
    assert near.rho == pytest.approx(0.8)
    # t = .8 * sqrt(3 / (1 - .64)) with 3 degrees of freedom.
    assert near.p == pytest.approx(2 * stats.t.sf(0.8 * np.sqrt(3 / 0.36), 3))
    # arctanh(.8) = 1.0986 +- 1.96 sqrt(1.32 / 2).
    assert (near.low, near.high) == pytest.approx(np.tanh(1.0986 + np.array([-1, 1]) * 1.5923), abs=1e-3)
    assert np.isnan(found["same"].rho)
    assert (found["few"].n, np.isnan(found["few"].p)) == (3, True)


def test_noise_is_related_to_nothing_more_often_than_chance_has_it():
    rng = np.random.default_rng(0)
    p = [relations(rng.normal(size=40), {"x": rng.normal(size=40)})[0].p for _ in range(400)]
    assert 0.02 < np.mean(np.array(p) < 0.05) < 0.09
    assert relations(np.arange(9.0), {"x": np.arange(9.0)})[0].high <= 1
