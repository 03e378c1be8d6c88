"""The score in other ways: each compared with the default, and with the outcomes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recunlearn.difficulty.cud import score
from recunlearn.difficulty.validity import check_held_out
from recunlearn.foundation.errors import UsageError, near_miss
from recunlearn.studies.validity.held_out import Folds, held_out_cud
from recunlearn.studies.validity.trial import Trial

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Variant:
    """One way to compute the score that differs from the study's settings.

    Args:
        axis: what differs, such as "similarity".
        name: how.
        circuits, anchors, similarity: settings that differ.
        options: further arguments of :func:`~recunlearn.studies.validity.held_out.held_out_cud`.
    """

    axis: str
    name: str
    circuits: Mapping[str, Any] = field(default_factory=dict)
    anchors: Mapping[str, Any] = field(default_factory=dict)
    similarity: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_slow(self) -> bool:
        """Whether it needs circuits or anchors of its own."""
        return bool(self.circuits) or self.anchors.get("source") == "bilevel"

    def prepare(self, trial: Trial) -> None:
        """Make and store what is slow about it."""
        if self.circuits:
            trial.other_circuits(**self.circuits)
        elif self.is_slow:
            trial.other_anchors(**self.anchors)

    def cud(self, trial: Trial, folds: Folds) -> Array:
        """The score of every held-out user this way: ``[n]``."""
        settings = trial.keys.settings
        circuits = trial.other_circuits(**self.circuits) if self.circuits else trial.circuits
        similarity = settings.similarity.model_copy(update=dict(self.similarity))
        if self.is_slow and not self.circuits:
            return self._bilevel(trial, folds)
        anchors = settings.anchors.model_copy(update=dict(self.anchors))
        return held_out_cud(folds, circuits, anchors, similarity, name=self.name, **self.options)

    def _bilevel(self, trial: Trial, folds: Folds) -> Array:
        """Anchors out of one pool for everybody outside it."""
        anchors = trial.other_anchors(**self.anchors)
        pool = np.isin(trial.subject.entities, anchors.entities)
        values = score(trial.circuits, anchors, trial.keys.settings.similarity, draws=0).cud
        check_held_out(self.name, np.where(pool, -1, 0), pool[None, :])
        return np.where(pool | (folds.fold < 0), np.nan, values)


def check_axes(names: Sequence[str] | None) -> None:
    """Refuse an unknown axis."""
    for name in names or ():
        if name not in AXES:
            raise UsageError(f"Unknown axis {name!r}.{near_miss(name, AXES)} Allowed: {', '.join(AXES)}.")


def variants(trial: Trial) -> tuple[Variant, ...]:
    """Every variant along the study's axes that the trial's users and methods allow."""
    anchors, axes = trial.keys.settings.anchors, trial.settings.variants
    fewest = int((trial.fold >= 0).sum()) * (trial.settings.folds - 1) // trial.settings.folds
    found = (
        *SIMILARITIES,
        *OUTCOMES,
        *(Variant(METHOD, m, options={"methods": (m,)}) for m in anchors.methods),
        *(
            Variant(RUN, f"run {k + 1}", options={"runs": (k,)})
            for k in range(anchors.seeds)
            if anchors.seeds > 1
        ),
        *(Variant(COUNT, str(k), anchors={"count": k}) for k in COUNTS if 2 * k <= fewest),
        *(Variant(USER, str(k), options={"users": k}) for k in USERS if 2 * anchors.count <= k < fewest),
        *CIRCUITS,
        BILEVEL,
    )
    return tuple(v for v in found if (axes is None or v.axis in axes) and not _is_default(v, trial))


def _is_default(variant: Variant, trial: Trial) -> bool:
    """Whether a variant changes nothing."""
    settings = trial.keys.settings
    if variant.axis == RUN and trial.keys.settings.anchors.seeds == 1:
        return True
    return not variant.options and all(
        getattr(getattr(settings, table), name) == value
        for table in ("circuits", "anchors", "similarity")
        for name, value in getattr(variant, table).items()
    )


METHOD, RUN = "anchors of one method", "unlearning seed"
COUNT, COUNTS = "anchors a side", (5, 10, 20, 40, 75)
USER, USERS = "probe users", (75, 150, 300, 600)
EDGES = ("whitened", "standardised", "raw")
SIMILARITIES = (
    Variant("similarity", "as published", similarity={"preset": "paper"}),
    Variant("similarity", "Jaccard", similarity={"measure": "jaccard"}),
    Variant("similarity", "Hamming", similarity={"measure": "hamming"}),
    *(Variant("similarity", f"{name} edges", similarity={"edges": name}) for name in EDGES),
    Variant("similarity", "to the mean anchor circuit", similarity={"reference": "mean"}),
    Variant("similarity", "clamped cosine", similarity={"cosine_range": "clamped"}),
)
OUTCOMES = (
    Variant("anchors by outcome", "share left", anchors={"outcome": "share-left"}),
    Variant("anchors by outcome", "level", anchors={"outcome": "level"}),
)
CIRCUITS = (
    *(Variant("path points", str(k), circuits={"steps": k}) for k in (2, 4, 8, 16, 32)),
    Variant("granularity", "module", circuits={"granularity": "module"}),
    *(Variant("granularity", f"{k} groups", circuits={"groups": k}) for k in (8, 16)),
    Variant("edge score", "conductance", circuits={"score": "conductance"}),
    Variant("baseline", "zero", circuits={"baseline": "zero"}),
    Variant("baseline", "counterfactual", circuits={"baseline": "counterfactual"}),
)
BILEVEL = Variant("anchors", "bilevel", anchors={"source": "bilevel"})
AXES = tuple(dict.fromkeys([*(v.axis for v in (*SIMILARITIES, *OUTCOMES)), METHOD, RUN, COUNT, USER]))
AXES += tuple(dict.fromkeys(v.axis for v in (*CIRCUITS, BILEVEL)))
