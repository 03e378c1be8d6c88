"""One training of one model in a study: every slow piece is made once and stored."""

from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recunlearn.difficulty.anchors import check_count
from recunlearn.foundation import paths
from recunlearn.foundation.records import Anchors, Circuits
from recunlearn.foundation.store import content_hash
from recunlearn.studies.competitors.registry import hardness
from recunlearn.studies.keys import Keys, keys_for
from recunlearn.studies.pieces import Pieces
from recunlearn.studies.score_stages import anchored, traced, trained
from recunlearn.studies.scoring import Listener
from recunlearn.studies.validity.outcomes import FoldOutcomes, assign_folds, unlearn_fold
from recunlearn.studies.validity.settings import ValiditySettings
from recunlearn.subjects.contract import IntArray
from recunlearn.subjects.recbole.subject import RecBoleSubject

Array = NDArray[np.float64]


class Trial:
    """The k-th training of a model: its circuits, its users' outcomes and competing scores.

    Args:
        settings: of the study.
        model: RecBole model.
        number: k.
        listener: told about training and tracing.
    """

    def __init__(
        self, settings: ValiditySettings, model: str, number: int, listener: Listener | None = None
    ) -> None:
        self.settings, self.model, self.number = settings, model, number
        self.seed = settings.seed + number
        self.listener = listener or Listener()
        self.folder = paths.cache() / "validity"

    @cached_property
    def keys(self) -> Keys:
        """Folders that are shared with ``score-users``."""
        return keys_for(self.settings.scored(self.model, self.number))

    @cached_property
    def subject(self) -> RecBoleSubject:
        """The trained model, trained first if need be."""
        return trained(self.keys, self.listener, anchors=False)

    @cached_property
    def circuits(self) -> Circuits:
        """Circuits of every user."""
        return traced(self.keys, self.subject, self.listener)

    @cached_property
    def fold(self) -> IntArray:
        """Fold of every user, by lot; each training has folds of its own."""
        fold = assign_folds(self.subject, self.settings.folds, self.settings.seed)
        inside = fold[fold >= 0]
        fewest = len(inside) - int(np.bincount(inside).max())  # users of the other folds
        check_count(self.keys.settings.anchors.count, fewest, fewest)
        return fold

    def outcomes(self, number: int) -> FoldOutcomes:
        """What unlearning did to the users of a fold."""
        pool = np.flatnonzero(self.fold == number)
        options: dict[str, Any] = {"distances": self.settings.distances, "seed": self.seed}
        return unlearn_fold(
            self.subject, self.keys.settings.anchors, pool, folder=self.folder / "outcomes", **options
        )

    def competitor(self, name: str) -> Array:
        """Hardness of every user by a competing score."""
        everyone = np.flatnonzero(self.subject.n_samples() > 0)
        key = content_hash(dict(self.subject.describe()), self.seed)
        pieces = Pieces(self.folder / "competitors" / key)
        values = np.full(len(self.subject.entities), np.nan)
        make = partial(hardness, name, self.subject, everyone, seed=self.seed)
        values[everyone] = pieces.get(name, lambda: {"hardness": make()})["hardness"]
        return values

    def other_circuits(self, **changes: Any) -> Circuits:
        """Circuits with other settings."""
        return traced(self._other("circuits", changes), self.subject, self.listener)

    def other_anchors(self, **changes: Any) -> Anchors:
        """Anchors as ``score-users`` would find them with other settings."""
        return anchored(self._other("anchors", changes), self.subject, self.listener)[0]

    def _other(self, table: str, changes: dict[str, Any]) -> Keys:
        settings = self.keys.settings
        changed = getattr(settings, table).model_copy(update=changes)
        return keys_for(settings.model_copy(update={table: changed}))
