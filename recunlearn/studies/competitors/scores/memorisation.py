"""Memorisation: how much better the model knows a user that it was trained on, over many trainings."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from recunlearn.evaluation.membership import LEAST_REFERENCES, References
from recunlearn.studies.competitors.contract import Array, Competitor
from recunlearn.studies.references import membership_references
from recunlearn.subjects.contract import IntArray, Recommender


def leave_out(references: References) -> Array:
    """Mean over models with a user of exp(−loss), minus the mean over models without: ``[n]``.

    NaN without a model of either kind, and without samples.
    """
    chance, inside = np.exp(-references.loss.astype(np.float64)), references.inside
    with np.errstate(invalid="ignore", divide="ignore"):
        within = np.where(inside, chance, 0.0).sum(0) / inside.sum(0)
        without = np.where(inside, 0.0, chance).sum(0) / (~inside).sum(0)
    apart: Array = within - without
    return apart


@dataclass(frozen=True)
class Memorisation(Competitor):
    """E P(correct | trained with the user) − E P(correct | without), over models of random halves.

    Source: Feldman and Zhang, 2020, arXiv 2008.03703, subset estimator with users as units. Deviations: P is
    the geometric mean probability of the user's interactions, exp(−loss), since implicit feedback has no
    label to hit; an absent user is scored with the population's vector.
    Costs ``models`` times half a training; the same models serve membership inference.
    """

    name: ClassVar = "memorisation"
    direction: ClassVar = 1

    models: int = LEAST_REFERENCES
    """Even; half of them hold any given user."""
    folder: Path | None = None
    """Where each model's losses are kept, and read from: that of membership references; None: nowhere."""

    def measure(self, subject: Recommender, users: IntArray, seed: int) -> Array:
        """Train the models that are not stored yet.

        Raises:
            UsageError: fewer than 8 or an odd number of models.
        """
        return leave_out(membership_references(subject, self.models, seed=seed, folder=self.folder))[users]
