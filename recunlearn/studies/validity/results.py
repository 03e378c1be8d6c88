"""What a study found: correlations by score and outcome, for every model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recunlearn.difficulty.validity import Correlation

CUD, RESIDUAL, RESIDUALS = "cud", "predicted_residual", "predicted_residual_by_method"
"""One number for all methods; the same; one number for each."""
CIRCUITS, TRIVIAL, BOTH = "circuit_regression", "trivial_regression", "circuit_and_trivial_regression"
"""Regressions of each outcome on circuits, on the trivial scores, and on both."""


@dataclass(frozen=True)
class Pair:
    """A score against an outcome: raw, and with the trivial scores held fixed."""

    raw: Correlation
    partial: Correlation


@dataclass(frozen=True)
class VariantResult:
    """The score computed in another way.

    Args:
        axis, name: what differs, and how.
        agreement: Spearman with the default score over users, median over trainings.
        outcomes: outcome -> correlations.
        reason: why there is nothing.
    """

    axis: str
    name: str
    agreement: float
    outcomes: Mapping[str, Pair] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class ModelStudy:
    """Everything found for one model.

    Args:
        model: its name.
        methods: that unlearned.
        facts: users, edges, quality, measurable users by outcome, ...
        results: score -> outcome -> correlations.
        agreement: outcome -> mean Spearman between methods, of each training.
        transfer: method of the anchors -> correlations with the increase by each method.
        variants: the score in other ways.
        relations: agreement of scores between trainings, of anchors by two methods, of CUD and MRD, ...
        groups: part of the users -> CUD against the increase.
        calibration: of the predicted residual.
    """

    model: str
    methods: tuple[str, ...]
    facts: Mapping[str, Any]
    results: Mapping[str, Mapping[str, Pair]]
    agreement: Mapping[str, Sequence[float]]
    transfer: Mapping[str, Pair]
    variants: Sequence[VariantResult] = ()
    relations: Mapping[str, float] = field(default_factory=dict)
    groups: Mapping[str, Pair] = field(default_factory=dict)
    calibration: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """A whole study.

    Args:
        models: what was found for each.
        across: model of the score -> model of the outcome -> Spearman of CUD with the increase, mean over
            methods, median over trainings.
    """

    models: Sequence[ModelStudy]
    across: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
