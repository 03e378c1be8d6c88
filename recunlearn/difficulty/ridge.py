"""Ridge regression of several targets with leave-one-out in closed form, and jackknife+ intervals."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
PENALTIES: Array = 10.0 ** np.arange(-4, 3.01, 0.5)
"""Tried penalties, as multiples of the mean squared length of a centred row."""


@dataclass(frozen=True)
class Ridge:
    """A fitted ridge regression with intercept, of T targets on P features.

    Args:
        centre: ``[P]`` mean of the features.
        intercept: ``[T]`` mean of the targets.
        dual: ``[P, n]``: prediction of a new x = intercept + (x − centre) · dual · targets.
        coefficients: ``[P, T]``.
        leave_one_out: ``[n, T]`` error of each row, predicted from the others at this penalty.
        penalty: λ of ‖y − Xβ‖² + λ ‖β‖².
    """

    centre: Array
    intercept: Array
    dual: Array
    coefficients: Array
    leave_one_out: Array
    penalty: float

    def predict(self, x: Array, coverage: float = 0.9) -> tuple[Array, Array, Array]:
        """Prediction and jackknife+ interval: ``[m, P]`` -> value, low and high, ``[m, T]`` each.

        With μ₋ᵢ fitted without row i and Rᵢ its leave-one-out error, low is the ⌊α (n + 1)⌋-th smallest of
        μ₋ᵢ(x) − |Rᵢ| and high the ⌈(1 − α) (n + 1)⌉-th smallest of μ₋ᵢ(x) + |Rᵢ|. Source: Barber, Candès,
        Ramdas, Tibshirani, Annals of Statistics 49(1) (2021). Infinite where coverage asks for more rows than
        there are.
        """
        centred = x - self.centre
        value = self.intercept + centred @ self.coefficients
        weights = 1 / len(self.leave_one_out) + centred @ self.dual
        ends = [
            _ends(value[:, t, None] - weights * errors, np.abs(errors), coverage)
            for t, errors in enumerate(self.leave_one_out.T)
        ]
        low, high = np.stack(ends, axis=-1)
        return value, low, high


def _ends(without: Array, errors: Array, coverage: float) -> tuple[Array, Array]:
    """Ends of the interval from predictions without each row ``[m, n]`` and errors ``[n]``: ``[m]`` each."""
    n = len(errors)
    above = int(np.ceil(coverage * (n + 1)))
    if above > n:
        return np.full(len(without), -np.inf), np.full(len(without), np.inf)
    low = -np.partition(errors - without, above - 1, axis=1)[:, above - 1]
    return low, np.partition(without + errors, above - 1, axis=1)[:, above - 1]


def fit_ridge(x: Array, y: Array, penalty: float | None = None) -> Ridge:
    """Fit ``y`` ``[n, T]`` on ``x`` ``[n, P]``; without a penalty, the one of least leave-one-out error.

    Leaving out row i changes its error from r to r / (1 − hᵢᵢ) at a fixed penalty, h the diagonal of the hat
    matrix, intercept included. One penalty for all targets: squared errors are summed over rows and targets.
    """
    centre, intercept = x.mean(0), y.mean(0)
    left, size, right = np.linalg.svd(x - centre, full_matrices=False)
    rotated, unit = left.T @ (y - intercept), float((size**2).sum()) / len(x)

    def errors(strength: float) -> Array:
        shrunk = size**2 / (size**2 + strength)
        fitted = intercept + left @ (shrunk[:, None] * rotated)
        remaining: Array = 1 - 1 / len(x) - left**2 @ shrunk
        result: Array = (y - fitted) / remaining[:, None]
        return result

    if penalty is None:
        tried = [float(p) for p in PENALTIES * (unit or 1.0)]
        penalty = min(tried, key=lambda strength: float((errors(strength) ** 2).sum()))
    dual = (right.T * (size / (size**2 + penalty))) @ left.T
    return Ridge(centre, intercept, dual, dual @ (y - intercept), errors(penalty), penalty)
