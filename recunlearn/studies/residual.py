"""Columns of the score table that say how much of an entity unlearning will leave; needs no torch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from recunlearn.difficulty.regression import COVERAGE
from recunlearn.difficulty.residual import Residual, covariates, predicted_residual
from recunlearn.foundation.records import Circuits, Outcomes
from recunlearn.foundation.words import USERS, Words
from recunlearn.studies.scoring import residual_names

WEAK = 0.5
"""Spearman of out-of-fold predictions below which the residual is called weak."""
NO_OUTCOMES = "bilevel anchors unlearn nobody, so that there are no outcomes to learn from"


def residual_columns(
    circuits: Circuits,
    outcomes: Outcomes | None,
    table: pd.DataFrame,
    methods: Sequence[str],
    say: Callable[[str], None],
    *,
    seed: int = 0,
    words: Words = USERS,
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Columns beside ``table`` (in the order of ``circuits``), and what is known about their quality.

    All NaN, with a ``reason``, where there are no outcomes (None) or too few. ``say`` is told warnings, in
    ``words``.
    """
    columns = residual_names(methods)
    if outcomes is None:
        return pd.DataFrame(np.nan, table.index, columns), {"reason": NO_OUTCOMES}
    names = ("n_interactions", "mean_item_popularity", "loss", "personalisation_gap")
    beside = covariates(*(table[name].to_numpy() for name in names))
    found = predicted_residual(circuits, outcomes, beside, seed=seed)
    _warn(found, words, say)
    p = found.predicted
    values = np.column_stack([p.mean, p.low, p.high, *p.by_method])
    return pd.DataFrame(values, table.index, columns), _facts(found)


def _warn(found: Residual, words: Words, say: Callable[[str], None]) -> None:
    rho = found.figures.get("spearman", np.nan)
    if found.reason:
        say(
            f"Warning: predicted_residual is empty: {found.reason}. Raise [anchors] pool, or train the model "
            f"longer so that it knows its {words.entities} better than strangers."
        )
    elif not rho >= WEAK:
        shown = "cannot be told" if np.isnan(rho) else f"is {rho:.2f}"
        say(
            "Warning: predicted_residual is weak for this model: its rank correlation with what unlearning "
            f"left of probed {words.entities} {shown}. Go by its interval."
        )


def _facts(found: Residual) -> dict[str, Any]:
    """Figures for the summary; those that cannot be told are None."""
    facts: dict[str, Any] = {**found.figures, "stated_coverage": COVERAGE, "reason": found.reason or None}
    facts["methods"] = {name: _plain(figures) for name, figures in found.by_method.items()}
    return _plain(facts)


def _plain(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {
        k: (None if np.isnan(v) else round(v, 4)) if isinstance(v, float) else v for k, v in figures.items()
    }
