"""Normal scores by hand and there and back."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from recunlearn.difficulty.normal_scores import normal_scores


def test_ranks_become_normal_quantiles_and_ties_share_theirs():
    z = normal_scores(np.array([[5.0], [1.0], [5.0], [9.0]])).z[:, 0]
    # ranks 2.5, 1, 2.5, 4; (rank - 1/2) / 4 = .5, .125, .5, .875
    np.testing.assert_allclose(z, norm.ppf([0.5, 0.125, 0.5, 0.875]), atol=1e-12)


def test_what_lies_between_is_interpolated_and_what_lies_beyond_stays_inside():
    fitted = normal_scores(np.array([[0.0, 10.0], [1.0, 20.0]]))
    # quantiles of 1/4 and 3/4 are -q and q: 0 is halfway
    np.testing.assert_allclose(fitted.outcomes(np.array([[0.0, 0.0], [9.0, -9.0]])), [[0.5, 15], [1, 10]])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30, unique=True))
def test_there_and_back_is_the_value(values):
    column = np.array(values)[:, None]
    fitted = normal_scores(column)
    np.testing.assert_allclose(fitted.outcomes(fitted.z), column, atol=1e-6)
