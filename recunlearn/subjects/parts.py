"""What unlearning by shards asks of a subject beyond the contract: models of parts of the training data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from recunlearn.subjects.contract import IntArray, Subject


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of a parameter that are the vectors of all entities, or of all items, in order.

    Args:
        parameter: its name in the model.
        first: row of entity or item 0.
        count: number of rows.
    """

    parameter: str
    first: int
    count: int


@dataclass(frozen=True)
class Vectors:
    """A model together with the places of its vectors.

    Args:
        model: scores as the model it was made of; all its vectors are rows of its parameters.
        entities: rows of the entities' vectors, at least one.
        items: rows of what entities are matched with; may be none.
    """

    model: nn.Module
    entities: tuple[Rows, ...]
    items: tuple[Rows, ...]


@runtime_checkable
class PartSubject(Subject, Protocol):
    """A subject that can be trained on any part of its training samples."""

    def pairs(self) -> tuple[IntArray, IntArray]:
        """Entity and item of every training sample: ``[n]`` each, in the order of ``batches``."""
        ...

    def train_on(
        self, kept: NDArray[np.bool_], *, seed: int, effort: float = 1.0, batch: float = 1.0
    ) -> nn.Module:
        """Train anew on the samples ``kept``, ``[n]`` in the order of ``batches``; same form and settings.

        ``effort`` multiplies the number of epochs, ``batch`` the samples of a step; a part has fewer samples
        and would otherwise make fewer steps. With everything kept, both at 1, this is ``retrain``.
        """
        ...

    def load_on(self, kept: NDArray[np.bool_], state: Mapping[str, Tensor]) -> nn.Module:
        """Model that ``train_on(kept, ...)`` returned, from its ``state_dict``."""
        ...

    def vectors(self, model: nn.Module) -> Vectors:
        """Places of the entities' and items' vectors, for models of the form of this subject's.

        Raises:
            UsageError: the model has no vectors of entities, or its form is not known.
        """
        ...

    def ensemble(self, models: Sequence[nn.Module]) -> nn.Module:
        """Model whose score is the mean of the models' scores."""
        ...
