"""GraNd: length of the gradient of single samples."""

from dataclasses import dataclass
from typing import ClassVar

from recunlearn.studies.competitors.averaging import Sums
from recunlearn.studies.competitors.contract import Array, Competitor
from recunlearn.studies.competitors.gradients import can_be_exact, exact_norms, projected_norms
from recunlearn.studies.losses import BATCH
from recunlearn.subjects.contract import IntArray, Recommender


@dataclass(frozen=True)
class GraNd(Competitor):
    """‖∇_θ ℓ‖₂ over all trainable parameters, averaged over the user's training samples.

    Source: Paul, Ganguli, Dziugaite, 2021, arXiv 2107.07075. Deviation: of the trained model, not early in
    training and not averaged over trainings. Exact where torch can vectorise per-sample gradients of the
    model; else (sparse propagation) estimated from random projections.
    """

    name: ClassVar = "grand"
    direction: ClassVar = 1

    directions: int = 64
    """Projections of the estimate: relative standard deviation 1 / √(2 directions) of a sample's norm."""
    per_user: int | None = None
    """Samples of a user that are measured, the last by time; None: all. Cost: samples times parameters."""

    def measure(self, subject: Recommender, users: IntArray, seed: int) -> Array:
        """Average."""
        exact, sums = can_be_exact(subject), Sums(len(subject.entities))
        for batch in subject.batches(users, batch_size=BATCH, per_entity=self.per_user, seed=seed):
            norms = (
                exact_norms(subject, batch)
                if exact
                else projected_norms(subject, batch, self.directions, seed)
            )
            sums.add(batch, norms)
        return sums.mean(users)
