"""From stored pieces to correlations: every score against every outcome, for one model."""

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recunlearn.difficulty.normal_scores import normal_scores
from recunlearn.difficulty.regression import fit_residual, taken
from recunlearn.difficulty.residual import covariates
from recunlearn.difficulty.validity import Draws, agreement, calibration, correlations, over_seeds
from recunlearn.foundation.errors import RecunlearnError
from recunlearn.studies.competitors.registry import find
from recunlearn.studies.validity.held_out import Folds, held_out_cud, held_out_fit
from recunlearn.studies.validity.outcomes import PRIMARY, gathered
from recunlearn.studies.validity.results import (
    BOTH,
    CIRCUITS,
    CUD,
    RESIDUAL,
    RESIDUALS,
    TRIVIAL,
    ModelStudy,
    Pair,
    VariantResult,
)
from recunlearn.studies.validity.tasks import competitors
from recunlearn.studies.validity.trial import Trial
from recunlearn.studies.validity.variants import METHOD, Variant, variants
from recunlearn.subjects.contract import IntArray

Array = NDArray[np.float64]
Features = NDArray[np.floating[Any]]
ACTIVITY = ("fewest interactions", "middling interactions", "most interactions")
GAPS = ("smallest completeness gaps", "middling completeness gaps", "largest completeness gaps")


class Seed:
    """One training: outcomes, scores and controls of every user.

    Args:
        trial: whose pieces are stored.
    """

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.folds = Folds(trial.fold, [trial.outcomes(k) for k in range(trial.settings.folds)])
        self.outcomes = gathered(self.folds.parts, len(trial.fold))
        self.competing = {name: trial.competitor(name) for name in competitors(trial.settings)}

    @cached_property
    def controls(self) -> dict[str, Array]:
        """Trivial scores that this model has."""
        trivial = {name: v for name, v in self.competing.items() if find(name).trivial}
        return {name: v for name, v in trivial.items() if not np.isnan(v).all()}

    @cached_property
    def cud(self) -> Array:
        """The score as ``score-users`` makes it, of held-out users: ``[n]``."""
        settings = self.trial.keys.settings
        return held_out_cud(self.folds, self.trial.circuits, settings.anchors, settings.similarity)

    @cached_property
    def predicted(self) -> Array:
        """Predicted residual of held-out users, mean over methods, low and high end: ``[3, n]``."""
        return self._residuals[-3:]

    @cached_property
    def _residuals(self) -> Array:
        """Predicted residual as ``score-users`` makes it: methods, mean, low and high end, ``[M + 3, n]``."""
        names = ("activity", "popularity", "loss", "personalisation-gap")
        beside = covariates(*(self.trial.competitor(n) * find(n).direction for n in names))
        return self.fitted(self.trial.circuits.values, beside, "share-left", RESIDUAL)

    def fitted(self, values: Features, beside: Features | None, outcome: str, name: str) -> Array:
        """Outcome of held-out users by method, then mean over methods, low and high end: ``[M + 3, n]``.

        Args:
            values: features, ``[n, p]``.
            beside: a second block of features that weighs as much as the first.
            outcome: that is learned.
            name: of the score, for sentences.
        """
        targets = self.outcomes[outcome]
        blocks = [values] if beside is None else [values, beside]
        known = np.isfinite(np.concatenate(blocks, axis=1)).all(1)

        def fit(rows: IntArray, others: IntArray) -> Array:
            model = fit_residual(values[rows], targets[:, rows], taken(beside, rows))
            found = model.predict(values[others], taken(beside, others))
            return np.stack([*found.by_method, found.mean, found.low, found.high])

        return held_out_fit(self.folds, targets, known, fit, name=name)

    def scores(self, outcome: str) -> dict[str, Array]:
        """Every score: ``[n]``, or ``[M, n]`` for regressions of this outcome, each method's own.

        Without a trivial score there is no regression on them.
        """
        found = {CUD: self.cud, **self.competing}
        if "share-left" in self.outcomes:
            found[RESIDUAL], found[RESIDUALS] = self.predicted[0], self._residuals[:-3]
        circuits = self.trial.circuits.values
        found[CIRCUITS] = self.fitted(circuits, None, outcome, CIRCUITS)[:-3]
        if self.controls:
            trivial = self._trivial()
            found[TRIVIAL] = self.fitted(trivial, None, outcome, TRIVIAL)[:-3]
            found[BOTH] = self.fitted(circuits, trivial, outcome, BOTH)[:-3]
        return found

    def _trivial(self) -> Array:
        """Trivial scores as they are and as normal scores, for a linear combination of both: ``[n, 2 c]``."""
        columns = np.stack(list(self.controls.values()), axis=1)
        known = np.isfinite(columns).all(1)
        table = np.full((len(columns), 2 * columns.shape[1]), np.nan)
        table[known] = np.concatenate([columns[known], normal_scores(columns[known]).z], axis=1)
        return table

    def places(self, entities: NDArray[np.str_]) -> IntArray:
        """Rows of the given users: trainings and models have them in orders of their own."""
        return rows_of(self.trial.subject.entities, entities)

    def against(
        self, name: str, score: Array, outcome: str, *, draws: int, users: IntArray | None = None
    ) -> Draws:
        """Correlations of a score with an outcome; a trivial score is not held fixed against itself.

        Args:
            name: of the score.
            score: ``[n]`` or ``[M, n]``.
            outcome: name.
            draws: of the bootstrap.
            users: rows that count; None: all that lie in a fold.
        """
        fold = self.folds.fold
        if users is not None:
            fold = np.where(np.isin(np.arange(len(fold)), users), fold, -1)
        held = [v for k, v in self.controls.items() if k != name]
        return correlations(score, self.outcomes[outcome], held, fold, draws=draws, seed=self.trial.seed)


def rows_of(own: NDArray[np.str_], wanted: NDArray[np.str_]) -> IntArray:
    """Where ``wanted`` ids lie among ``own``: ``[len(wanted)]``.

    >>> rows_of(np.array(["b", "a", "c"]), np.array(["a", "c"])).tolist()
    [1, 2]
    """
    place = {entity: row for row, entity in enumerate(own.tolist())}
    return np.array([place[entity] for entity in wanted.tolist()], dtype=np.int64)


def study(seeds: Sequence[Seed]) -> ModelStudy:
    """All figures of one model, from its trainings."""
    first, draws = seeds[0], seeds[0].trial.settings.draws
    methods = first.trial.settings.anchors.methods
    shared = [o for o in first.outcomes if all(o in s.outcomes for s in seeds)]
    results: dict[str, dict[str, Pair]] = {}
    for outcome in shared:
        scores = [s.scores(outcome) for s in seeds]
        for name in scores[0]:
            found = [
                s.against(name, v[name], outcome, draws=draws) for s, v in zip(seeds, scores, strict=True)
            ]
            results.setdefault(name, {})[outcome] = _pair(found, methods)
    return ModelStudy(
        model=first.trial.model,
        methods=methods,
        facts=_facts(seeds),
        results=results,
        agreement={o: [agreement(s.outcomes[o], s.folds.fold) for s in seeds] for o in shared},
        transfer=_transfer(seeds),
        variants=_variants(seeds),
        relations=_relations(seeds),
        groups=_groups(seeds),
        calibration=_calibration(seeds) if "share-left" in shared else {},
    )


def _pair(found: Sequence[Draws], methods: Sequence[str]) -> Pair:
    return Pair(over_seeds(found, methods, "raw"), over_seeds(found, methods, "partial"))


def _facts(seeds: Sequence[Seed]) -> dict[str, Any]:
    first = seeds[0]
    subject = first.trial.subject
    metric = subject.main_metric
    return {
        "users": int((first.folds.fold >= 0).sum()),
        "edges": len(first.trial.circuits.edges),
        "quality": {metric: [s.trial.subject.metrics["test"][metric] for s in seeds]},
        "popularity": {metric: [s.trial.subject.popularity_metrics["test"][metric] for s in seeds]},
        "median_completeness_gap": [float(np.nanmedian(s.trial.circuits.gap)) for s in seeds],
        "controls": list(first.controls),
        "absent": {
            name: find(name)().absence(subject) or "not a number for any user"
            for name, v in first.competing.items()
            if np.isnan(v).all()
        },
        "measurable": {
            o: [int((~np.isnan(s.outcomes[o]).any(0)).sum()) if o in s.outcomes else 0 for s in seeds]
            for o in first.outcomes
        },
        "budgets": [[dict(part.losses.budgets) for part in s.folds.parts] for s in seeds],
        "retraining_noise": [[part.losses.noise for part in s.folds.parts] for s in seeds],
    }


def _transfer(seeds: Sequence[Seed]) -> dict[str, Pair]:
    """Anchors of each method alone against the increase by every method."""
    found = {}
    for method in seeds[0].trial.settings.anchors.methods:
        one = Variant(METHOD, method, options={"methods": (method,)})
        found[method] = _pair(_varied(seeds, one, "increase"), seeds[0].trial.settings.anchors.methods)
    return found


def _varied(seeds: Sequence[Seed], variant: Variant, outcome: str) -> list[Draws]:
    return [s.against(CUD, variant.cud(s.trial, s.folds), outcome, draws=0) for s in seeds]


def _variants(seeds: Sequence[Seed]) -> list[VariantResult]:
    methods = seeds[0].trial.settings.anchors.methods
    found = []
    for variant in variants(seeds[0].trial):
        try:
            values = [variant.cud(s.trial, s.folds) for s in seeds]
        except RecunlearnError as error:
            found.append(VariantResult(variant.axis, variant.name, float("nan"), {}, str(error)))
            continue
        alike = [agreement(np.stack([s.cud, v]), s.folds.fold) for s, v in zip(seeds, values, strict=True)]
        pairs = {}
        for outcome in (o for o in PRIMARY if all(o in s.outcomes for s in seeds)):
            each = [s.against(CUD, v, outcome, draws=0) for s, v in zip(seeds, values, strict=True)]
            pairs[outcome] = _pair(each, methods)
        found.append(VariantResult(variant.axis, variant.name, float(np.median(alike)), pairs))
    return found


def _relations(seeds: Sequence[Seed]) -> dict[str, float]:
    """Agreement of CUD and of outcomes with themselves elsewhere, and of CUD with every competing score."""
    found: dict[str, float] = {}
    if len(seeds) > 1:
        order = seeds[0].trial.subject.entities
        vectors = {"cud": [s.cud for s in seeds]}
        vectors |= {o: [s.outcomes[o].mean(0) for s in seeds] for o in seeds[0].outcomes}
        for name, values in vectors.items():
            aligned = [v[s.places(order)] for s, v in zip(seeds, values, strict=True)]
            pairs = [np.stack(pair) for pair in combinations(aligned, 2)]
            alike = [agreement(p, seeds[0].folds.fold) for p in pairs]
            found[f"{name} between trainings"] = float(np.median(alike))
    methods = seeds[0].trial.settings.anchors.methods
    for a, b in combinations(methods, 2):
        one, two = (Variant(METHOD, m, options={"methods": (m,)}) for m in (a, b))
        alike = [
            agreement(np.stack([one.cud(s.trial, s.folds), two.cud(s.trial, s.folds)]), s.folds.fold)
            for s in seeds
        ]
        found[f"cud of {a} and {b} anchors"] = float(np.median(alike))
    for name in seeds[0].competing:
        alike = [agreement(np.stack([s.cud, s.competing[name]]), s.folds.fold) for s in seeds]
        found[f"cud and {name}"] = float(np.median(alike))
    return found


def _groups(seeds: Sequence[Seed]) -> dict[str, Pair]:
    """CUD against the increase within thirds of the users: where is it to be trusted?"""
    gaps = [s.trial.circuits.gap.astype(np.float64) for s in seeds]
    active = [s.trial.subject.n_samples().astype(np.float64) for s in seeds]
    found = {}
    for values, names in ((active, ACTIVITY), (gaps, GAPS)):
        for third, name in enumerate(names):
            users = [_third(s.folds.fold, v, third) for s, v in zip(seeds, values, strict=True)]
            each = [
                s.against(CUD, s.cud, "increase", draws=s.trial.settings.draws, users=rows)
                for s, rows in zip(seeds, users, strict=True)
            ]
            found[name] = _pair(each, seeds[0].trial.settings.anchors.methods)
    return found


def _third(fold: IntArray, values: Array, third: int) -> IntArray:
    """Rows of the lowest, the middle or the highest third."""
    rows = np.flatnonzero(fold >= 0)
    return np.array_split(rows[np.argsort(values[rows], kind="stable")], 3)[third]


def _calibration(seeds: Sequence[Seed]) -> dict[str, Any]:
    predicted = np.concatenate([s.predicted for s in seeds], axis=1)
    return calibration(predicted, np.concatenate([s.outcomes["share-left"].mean(0) for s in seeds]))
