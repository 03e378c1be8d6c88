"""Whom a request forgets, and who is left."""

import numpy as np

from recunlearn.foundation.errors import UsageError
from recunlearn.subjects.contract import IntArray, Subject

FAMILIES = ("pointwise", "pairwise", "softmax")


def checked(subject: Subject, forget: IntArray) -> IntArray:
    """Rows of ``subject.entities`` to forget, ascending and once each.

    Raises:
        UsageError: none, all, a row that does not exist, or nobody with a training sample.
    """
    rows: IntArray = np.unique(np.asarray(forget, dtype=np.int64))
    count, who = len(subject.entities), subject.words
    if not len(rows):
        raise UsageError(
            f"The forget set is empty: nothing is to be forgotten. Name one {who.entity} or more."
        )
    if rows[0] < 0 or rows[-1] >= count:
        wrong = int(rows[0] if rows[0] < 0 else rows[-1])
        raise UsageError(
            f"Numbers of {who.entities} to forget must be between 0 and {count - 1}, but got {wrong}."
        )
    samples = subject.n_samples()
    if not samples[rows].sum():
        raise UsageError(
            f"None of the {len(rows)} {who.entities} to forget has training {who.samples}, so the model "
            "never saw them. Name others."
        )
    if not samples.sum() - samples[rows].sum():
        raise UsageError(
            f"All {who.entities} with training {who.samples} are to be forgotten, so nothing is left to "
            f"keep. Name fewer {who.entities}, or delete the model."
        )
    return rows


def rest_of(subject: Subject, forget: IntArray) -> IntArray:
    """Rows of everybody else who has training samples."""
    outside = np.ones(len(subject.entities), dtype=bool)
    outside[forget] = False
    return np.flatnonzero(outside & (subject.n_samples() > 0)).astype(np.int64)


def check_family(name: str, subject: Subject, families: tuple[str, ...] = FAMILIES) -> None:
    """Refuse a model whose objective the method ``name`` has no loss for."""
    if subject.family not in families:
        raise UsageError(
            f"{name} works with {', '.join(families)} models, but this one is {subject.family!r}. "
            "Name another method, or retrain."
        )
