"""Scores of users who were held out: made from the outcomes of the other folds only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recunlearn.difficulty.anchors import choose_anchors
from recunlearn.difficulty.cud import score
from recunlearn.difficulty.outcomes import combined, part
from recunlearn.difficulty.validity import check_held_out
from recunlearn.foundation.records import Circuits, Outcomes
from recunlearn.foundation.seeds import uniform
from recunlearn.foundation.settings import AnchorSettings, SimilaritySettings
from recunlearn.studies.validity.outcomes import FoldOutcomes
from recunlearn.subjects.contract import IntArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Fit = Callable[[IntArray, IntArray], Array]
"""(rows to fit on ``[n]``, rows to predict ``[m]``) -> predictions ``[k, m]``."""


@dataclass(frozen=True)
class Folds:
    """Outcomes by fold, and who lies in which.

    Args:
        fold: ``[n]``, −1: in none.
        parts: outcomes of each fold.
    """

    fold: IntArray
    parts: Sequence[FoldOutcomes]

    def others(self, number: int, most: int | None = None) -> IntArray:
        """Rows of the users of the other folds, at most ``most`` of them by lot, fold by fold."""
        rows = np.concatenate([p.pool for k, p in enumerate(self.parts) if k != number])
        if most is None or most >= len(rows):
            return rows
        lot = np.argsort(uniform(rows.astype(np.uint64), number), kind="stable")[:most]
        return rows[np.sort(lot)]

    def losses(self, number: int, rows: IntArray) -> Outcomes:
        """Outcomes of some users of the other folds."""
        everything = combined([p.losses for k, p in enumerate(self.parts) if k != number])
        places = {row: place for place, row in enumerate(self.others(number).tolist())}
        return part(everything, rows=np.array([places[row] for row in rows.tolist()], dtype=np.int64))

    def each(self, name: str, make: Callable[[int], tuple[Array, IntArray]]) -> Array:
        """Values of everybody, each user's from the fold of which it is held out: ``[..., n]``.

        Args:
            name: of the score.
            make: fold -> values of all users ``[..., n]``, and the rows whose outcomes they rest on.

        Raises:
            LeakError: values of a fold rest on its own users.
        """
        found = [make(number) for number in range(len(self.parts))]
        fitted = np.zeros((len(found), len(self.fold)), dtype=bool)
        values = np.full(found[0][0].shape, np.nan)
        for number, (value, rows) in enumerate(found):
            fitted[number, rows] = True
            tested = self.fold == number
            values[..., tested] = value[..., tested]
        check_held_out(name, self.fold, fitted)
        return values


def held_out_cud(
    folds: Folds,
    circuits: Circuits,
    anchors: AnchorSettings,
    similarity: SimilaritySettings,
    *,
    users: int | None = None,
    methods: Sequence[str] | None = None,
    runs: Sequence[int] | None = None,
    name: str = "cud",
) -> Array:
    """CUD of every user from anchors among the other folds: ``[n]``; NaN in no fold.

    Args:
        folds: outcomes.
        circuits: of all users.
        anchors: how they are chosen.
        similarity: of circuits.
        users: most users that anchors are chosen from; None: all of the other folds.
        methods, runs: unlearning methods and runs that vote; None: all.
        name: of the score, for sentences.
    """

    def make(number: int) -> tuple[Array, IntArray]:
        rows = folds.others(number, users)
        outcomes = part(folds.losses(number, rows), methods=methods, runs=runs)
        chosen = choose_anchors(outcomes, anchors)
        return score(circuits, chosen, similarity, draws=0).cud, rows

    return folds.each(name, make)


def held_out_fit(folds: Folds, targets: Array, known: Mask, fit: Fit, *, name: str) -> Array:
    """Predictions by a regression fitted on the other folds: ``[k, n]``; NaN for users without features.

    Args:
        folds: who is fitted on, who is held out.
        targets: ``[M, n]`` that it learns; users with one that is no number are not fitted on.
        known: ``[n]`` users with features.
        fit: makes predictions.
        name: of the score, for sentences.
    """
    usable = known & np.isfinite(targets).all(0)
    others = np.flatnonzero(known)

    def make(number: int) -> tuple[Array, IntArray]:
        rows = folds.others(number)
        rows = rows[usable[rows]]
        found = fit(rows, others)
        values = np.full((len(found), len(known)), np.nan)
        values[:, others] = found
        return values, rows

    return folds.each(name, make)
