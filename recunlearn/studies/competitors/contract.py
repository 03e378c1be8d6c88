"""The contract of a competing difficulty score."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from recunlearn.foundation.errors import UsageError
from recunlearn.studies.threads import threads
from recunlearn.subjects.contract import IntArray, Recommender

Array = NDArray[np.float64]


class Competitor(ABC):
    """One score of users, with its direction. Fields of a subclass are its settings, each with a default.

    A file in ``recunlearn/studies/competitors/scores`` holds one; docs/metrics/competitors.md lists them.
    """

    name: ClassVar[str]
    direction: ClassVar[int]
    """+1: a higher value is harder to unlearn, -1: a lower one is; fixed before any outcome was seen."""
    trivial: ClassVar[bool] = False
    """Whether it needs neither circuits nor gradients nor other models: one of the controls."""
    needs_vectors: ClassVar[bool] = False
    """Whether it has a meaning only for models with a vector of each user."""

    def values(self, subject: Recommender, users: IntArray, *, seed: int) -> Array:
        """Raw score of each of ``users``: ``[n]``, NaN where nothing can be said (:meth:`absence`).

        A user's value depends on the subject, the settings and the seed, not on which other users are asked
        for, nor on the number of threads. The subject's model is left as it was.

        Args:
            subject: with the model that is scored, and its training data.
            users: ``[n]`` rows of ``subject.entities``, in any order.
            seed: of the negatives and of everything that is drawn.

        Raises:
            UsageError: a row that the subject does not have.
        """
        wanted, place = np.unique(np.asarray(users, dtype=np.int64), return_inverse=True)
        _check(wanted, len(subject.entities))
        found = np.full(len(wanted), np.nan)
        active = subject.n_samples()[wanted] > 0
        if active.any() and self.absence(subject) is None:
            with threads(), in_eval_mode(subject.model):
                found[active] = self.measure(subject, wanted[active], seed)
        return np.where(np.isfinite(found), found, np.nan)[place.reshape(-1)]

    def hardness(self, subject: Recommender, users: IntArray, *, seed: int) -> Array:
        """``direction`` times :meth:`values`: high = hard, ``[n]``."""
        return self.direction * self.values(subject, users, seed=seed)

    @classmethod
    def absence(cls, subject: Recommender) -> str | None:
        """Why this score has no meaning for any user of ``subject``, in one sentence; None where it has."""
        if cls.needs_vectors and subject.user_vectors(subject.model) is None:
            return f"{cls.name} needs a vector of each user, and this model has none."
        return None

    @abstractmethod
    def measure(self, subject: Recommender, users: IntArray, seed: int) -> Array:
        """Score of ``users``, ascending, each with a training sample: ``[n]``; the model is in eval mode."""


def _check(rows: IntArray, count: int) -> None:
    outside = rows[(rows < 0) | (rows >= count)]
    if len(outside):
        raise UsageError(
            f"Users to score are rows from 0 to {count - 1} of the subject's entities, but got {outside[0]}."
        )


@contextmanager
def in_eval_mode(model: torch.nn.Module) -> Iterator[None]:
    """No dropout; the model gets its own mode back."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
