"""Regression on circuits: what unlearning will leave of an entity, per method, with conformal intervals."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recunlearn.difficulty.normal_scores import NormalScores, normal_scores
from recunlearn.difficulty.ridge import Ridge, fit_ridge
from recunlearn.difficulty.similarity import EdgeScale, edge_scale
from recunlearn.foundation.errors import RecunlearnError

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Values = NDArray[np.floating[Any]]
LEAST_USERS = 30
"""Fewer entities than these are not fitted: a 90 % interval needs some tens of residuals."""
COVERAGE = 0.9
FOLDS = 10
CHUNK = 1024


@dataclass(frozen=True)
class Predicted:
    """Predicted outcome of ``m`` entities under ``M`` methods; NaN where an entity's features are NaN.

    Args:
        mean, low, high: ``[m]`` the mean over methods (a target of its own) and its interval.
        by_method, method_low, method_high: ``[M, m]``.
    """

    mean: Array
    low: Array
    high: Array
    by_method: Array
    method_low: Array
    method_high: Array


@dataclass(frozen=True)
class ResidualModel:
    """A fitted regression.

    Args:
        n_methods: M.
        n_users: entities that it was fitted on.
        scales: of the edges and, if there are any, of the covariates.
        ridge: on normal scores of the M + 1 targets; None: nothing was fitted.
        scores: between outcomes and normal scores.
        reason: why nothing was fitted; "" otherwise.
    """

    n_methods: int
    n_users: int
    scales: tuple[EdgeScale | None, ...] = ()
    ridge: Ridge | None = None
    scores: NormalScores | None = None
    reason: str = ""

    def predict(
        self, values: Values, covariates: Values | None = None, *, coverage: float = COVERAGE
    ) -> Predicted:
        """Outcomes of entities with circuits ``[m, E]`` and covariates ``[m, C]`` (if it was fitted on some).

        All NaN where nothing was fitted. ``coverage``: share of entities whose outcome shall lie in the
        interval (jackknife+, Barber et al. 2021, Annals of Statistics 49(1)).
        """
        found = np.full((3, len(values), self.n_methods + 1), np.nan)
        if self.ridge is not None and self.scores is not None:
            blocks = [values] if covariates is None else [values, covariates]
            for first in range(0, len(values), CHUNK):
                x = _features([b[first : first + CHUNK] for b in blocks], self.scales)
                known = np.isfinite(x).all(1)
                ends = self.ridge.predict(x[known], coverage)
                rows = first + np.flatnonzero(known)
                found[:, rows] = [self.scores.outcomes(end) for end in ends]
        value, low, high = found.transpose(0, 2, 1)
        return Predicted(value[-1], low[-1], high[-1], value[:-1], low[:-1], high[:-1])


def fit_residual(
    values: Values,
    targets: Values,
    covariates: Values | None = None,
    *,
    averaged: Mask | None = None,
) -> ResidualModel:
    """Fit an outcome, and its mean over methods, by ridge regression: docs/metrics/predicted-residual.md.

    Edges and covariates are standardised; either block weighs as much as the other, whatever its number of
    columns. Targets become normal scores (van der Waerden), so that a few wholly forgotten entities do not
    decide. One penalty for all targets, the one of least squared leave-one-out error.

    Args:
        values: circuits, ``[n, E]``.
        targets: outcome per method, such as share left, ``[M, n]``; an infinite one counts as the most
            extreme finite one.
        covariates: further features, ``[n, C]``.
        averaged: ``[M]`` methods whose mean is predicted; None: all.

    Entities with a NaN anywhere are left out; of fewer than 30, or where no edge differs, nothing is fitted
    (``reason``).
    """
    return _fit(values, targets, covariates, averaged, LEAST_USERS)


def _fit(
    values: Values, targets: Values, covariates: Values | None, averaged: Mask | None, least: int
) -> ResidualModel:
    blocks = [np.asarray(b, dtype=np.float64) for b in (values, covariates) if b is not None]
    outcome = _with_mean(targets, averaged)
    fine = _fittable(blocks, outcome)
    n_methods, n_users = len(targets), int(fine.sum())
    if n_users < least:
        lacking = f"{n_users} outcomes could be measured, and {least} are needed"
        return ResidualModel(n_methods, n_users, reason=lacking)
    scales = tuple(_scale(b[fine]) for b in blocks)
    if scales[0] is None:
        return ResidualModel(n_methods, n_users, reason="all circuits are the same")
    scores = normal_scores(outcome[fine])
    ridge = fit_ridge(_features([b[fine] for b in blocks], scales), scores.z)
    return ResidualModel(n_methods, n_users, scales, ridge, scores)


def out_of_fold(
    values: Values,
    targets: Values,
    covariates: Values | None = None,
    *,
    averaged: Mask | None = None,
    folds: int = FOLDS,
    coverage: float = COVERAGE,
    seed: int = 0,
) -> Predicted:
    """Predict every entity from the others' outcomes alone: K folds, each with its own scales and penalty.

    Arguments as of :func:`fit_residual`; entities without a measurable outcome are predicted too.
    """
    n = len(values)
    fold = np.random.default_rng(seed).permutation(n) % folds
    # A fold's model may have fewer users than a model that is used for others, but enough to state an end.
    blocks = [b for b in (values, covariates) if b is not None]
    enough = _fittable(blocks, _with_mean(targets, averaged)).sum() >= LEAST_USERS
    least = LEAST_USERS // 2 if enough else LEAST_USERS
    found = Predicted(*np.full((3, n), np.nan), *np.full((3, len(targets), n), np.nan))
    for k in range(folds):
        own, others = fold == k, fold != k
        model = _fit(values[others], targets[:, others], taken(covariates, others), averaged, least)
        part = model.predict(values[own], taken(covariates, own), coverage=coverage)
        for each in fields(Predicted):
            getattr(found, each.name)[..., own] = getattr(part, each.name)
    return found


def taken(block: Values | None, rows: Mask | NDArray[np.int64]) -> Values | None:
    """Rows of a block that may be absent."""
    return None if block is None else block[rows]


def _fittable(blocks: Sequence[Values], outcome: Array) -> Mask:
    """Entities without a NaN in features or outcome ``[n, T]``: ``[n]``."""
    fine: Mask = ~np.isnan(outcome).any(1) & np.all([np.isfinite(b).all(1) for b in blocks], axis=0)
    return fine


def _with_mean(targets: Values, averaged: Mask | None) -> Array:
    """Targets and their mean over methods, none of them infinite: ``[M, n] -> [n, M + 1]``."""
    own = np.asarray(targets, dtype=np.float64)
    chosen = own if averaged is None else own[averaged]
    return np.stack([_finite(row) for row in (*own, np.mean([_finite(r) for r in chosen], axis=0))], axis=1)


def _finite(row: Array) -> Array:
    known = row[np.isfinite(row)]
    return np.clip(row, known.min(), known.max()) if len(known) else np.full_like(row, np.nan)


def _scale(block: Array) -> EdgeScale | None:
    try:
        return edge_scale(block)
    except RecunlearnError:  # no column differs
        return None


def _features(blocks: Sequence[Values], scales: Sequence[EdgeScale | None]) -> Array:
    """Standardised columns of all blocks, each block divided by the root of its size: ``[n, P]``."""
    parts = [s.apply(b) / np.sqrt(s.kept.sum()) for b, s in zip(blocks, scales, strict=True) if s is not None]
    return np.concatenate(parts, axis=1)
