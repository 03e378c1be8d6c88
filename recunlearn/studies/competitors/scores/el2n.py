"""EL2N: length of the error vector."""

from typing import ClassVar

from torch import Tensor

from recunlearn.studies.competitors.averaging import user_means
from recunlearn.studies.competitors.contract import Array, Competitor
from recunlearn.subjects.contract import Batch, IntArray, Recommender


class EL2N(Competitor):
    """‖softmax(z) − onehot(y)‖₂, averaged over the user's training samples; of two classes √2 (1 − p_y).

    Source: Paul, Ganguli, Dziugaite, 2021, arXiv 2107.07075. Deviation: of the trained model, not early in
    training and not averaged over trainings.
    """

    name: ClassVar = "el2n"
    direction: ClassVar = 1

    def measure(self, subject: Recommender, users: IntArray, seed: int) -> Array:
        """Average."""

        def error(batch: Batch) -> Tensor:
            scores = subject.class_scores(subject.model, batch)
            own = subject.predictions(batch).column
            # float64: 1 - p loses its digits where the model is sure
            away = scores.double().softmax(1)
            away.scatter_add_(1, own[:, None], away.new_full((len(own), 1), -1.0))
            return away.norm(dim=1)

        return user_means(subject, users, seed, error)
