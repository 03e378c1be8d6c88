"""Competing scores by name: every file in ``scores`` holds one class."""

import inspect
from functools import cache

from recunlearn.foundation.errors import UsageError, near_miss
from recunlearn.foundation.scanning import scan
from recunlearn.studies.competitors import scores
from recunlearn.studies.competitors.contract import Array, Competitor
from recunlearn.subjects.contract import IntArray, Recommender


@cache
def _kinds() -> dict[str, type[Competitor]]:
    return scan(scores, lambda kind: issubclass(kind, Competitor) and not inspect.isabstract(kind))


def known() -> tuple[str, ...]:
    """Names of all competitors, in alphabetical order."""
    return tuple(_kinds())


def find(name: str) -> type[Competitor]:
    """Class of a competitor by name; its constructor takes its settings.

    Raises:
        UsageError: an unknown name; the sentence lists the known ones.
    """
    if name not in _kinds():
        raise UsageError(
            f"Unknown competing score {name!r}.{near_miss(name, known())} Allowed: {', '.join(known())}."
        )
    return _kinds()[name]


def hardness(name: str, subject: Recommender, users: IntArray, seed: int) -> Array:
    """Direction times value of a competitor with default settings: ``[n]``, high = hard, NaN where unknown.

    Args:
        name: one of :func:`known`.
        subject: with its training data.
        users: ``[n]`` rows of ``subject.entities``.
        seed: of everything that is drawn.

    Raises:
        UsageError: an unknown name, or a row that the subject does not have.
    """
    return find(name)().hardness(subject, users, seed=seed)
