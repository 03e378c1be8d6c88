"""Predicted residual: the share that unlearning will leave of every user, and how far to trust it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recunlearn.difficulty.normal_scores import normal_scores
from recunlearn.difficulty.outcomes import hardness, measurable, unlearned_methods
from recunlearn.difficulty.regression import Predicted, fit_residual, out_of_fold, taken
from recunlearn.difficulty.statistics import spearman
from recunlearn.foundation.records import Circuits, Outcomes

Array = NDArray[np.float64]
Values = NDArray[np.floating[Any]] | NDArray[np.integer[Any]]
OUTCOME = "share-left"


@dataclass(frozen=True)
class Residual:
    """Predicted share left of every traced entity: 1 nothing forgotten, 0 as by retraining.

    Args:
        methods: names, ``[M]``.
        predicted: of all ``n`` entities; probed ones from the others' outcomes alone.
        figures: ``users`` (that were fitted on) and :func:`quality` of their out-of-fold predictions of the
            mean over methods.
        by_method: the same quality for each method.
        reason: why everything is NaN; "" otherwise.
    """

    methods: tuple[str, ...]
    predicted: Predicted
    figures: Mapping[str, float]
    by_method: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    reason: str = ""


def predicted_residual(
    circuits: Circuits, outcomes: Outcomes, covariates: Array | None = None, *, seed: int = 0
) -> Residual:
    """Fit on the probe pool, predict everyone: docs/metrics/predicted-residual.md.

    The target is the share left, averaged over the seeds of each method; methods that did not unlearn have
    columns of their own but no part in the mean. Entities that are not measurable are left out of the fit.

    Args:
        circuits: all entities.
        outcomes: of the probe pool.
        covariates: of the entities of ``circuits``, ``[n, C]``.
        seed: of the folds.
    """
    place = {entity: row for row, entity in enumerate(circuits.entities.tolist())}
    pool = np.array([place[e] for e in outcomes.entities.tolist()], dtype=np.int64)
    targets, averaged = share_left(outcomes), unlearned_methods(outcomes)
    values, others = circuits.values[pool], taken(covariates, pool)
    model = fit_residual(values, targets, others, averaged=averaged)
    everyone = model.predict(circuits.values, covariates)
    if model.reason:
        return Residual(outcomes.methods, everyone, {"users": model.n_users}, reason=model.reason)
    honest = out_of_fold(values, targets, others, averaged=averaged, seed=seed)
    figures = quality(honest.mean, honest.low, honest.high, targets[averaged].mean(0))
    by_method = {
        name: quality(honest.by_method[k], honest.method_low[k], honest.method_high[k], targets[k])
        for k, name in enumerate(outcomes.methods)
    }
    for part in fields(Predicted):
        getattr(everyone, part.name)[..., pool] = getattr(honest, part.name)
    return Residual(outcomes.methods, everyone, {"users": model.n_users, **figures}, by_method)


def covariates(activity: Values, popularity: Values, loss: Values, gap: Values) -> Array | None:
    """What is known of every entity besides its circuit, each as it is and as normal scores: ``[n, 2 C]``.

    Log of activity and of item popularity, loss, personalisation gap, ``[n]`` each. A column with a NaN in a
    row where the loss is known is left out (models without user vectors have no personalisation gap); None
    where no column is left. Entities without a loss are NaN.
    """
    columns = [np.log1p(activity), np.log1p(popularity), np.asarray(loss), np.asarray(gap)]
    known = np.isfinite(columns[2])
    kept = [np.asarray(c, dtype=np.float64) for c in columns if known.any() and np.isfinite(c[known]).all()]
    if not kept:
        return None
    plain = np.stack(kept, axis=1)
    table = np.full((len(plain), 2 * len(kept)), np.nan)
    table[known] = np.concatenate([plain[known], normal_scores(plain[known]).z], axis=1)
    return table


def share_left(outcomes: Outcomes) -> Array:
    """Share left, mean over seeds: ``[M, n]``; all NaN without retrained models, NaN where not measurable."""
    if not outcomes.loss_retrained.size or not measurable(outcomes, OUTCOME).any():
        return np.full((len(outcomes.methods), len(outcomes.entities)), np.nan)
    mean: Array = hardness(outcomes, OUTCOME).mean(1)
    return mean


def quality(predicted: Array, low: Array, high: Array, truth: Array) -> dict[str, float]:
    """How good predictions of ``[n]`` entities are; pairs with NaN or infinity are left out.

    R² = 1 − Σ (truth − predicted)² / Σ (truth − mean)², NaN for a constant truth; Spearman; median absolute
    error; share of the truth inside [low, high].
    """
    known = np.isfinite(truth) & np.isfinite(predicted)
    predicted, low, high, truth = (v[known] for v in (predicted, low, high, truth))
    around = float(((truth - truth.mean()) ** 2).sum()) if len(truth) else 0.0
    return {
        "r2": 1 - float(((truth - predicted) ** 2).sum()) / around if around > 0 else float("nan"),
        "spearman": spearman(predicted, truth),
        "median_error": float(np.median(np.abs(truth - predicted))) if len(truth) else float("nan"),
        "coverage": float(((low <= truth) & (truth <= high)).mean()) if len(truth) else float("nan"),
    }
