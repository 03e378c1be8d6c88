"""The probe pool: a random set of entities that is unlearned to see what happens."""

import numpy as np

from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.seeds import uniform
from recunlearn.subjects.contract import IntArray, Subject

LEAST_SAMPLES = 2
"""Entities with one sample have a loss too noisy to rank, unless nobody has more (rows of answers)."""


def draw_pool(subject: Subject, size: int, count: int, seed: int) -> IntArray:
    """Rows of the entities to probe, ascending: at most ``size`` and half of all; fixed by ``seed``.

    Raises:
        UsageError: fewer than ``2 * count`` entities can be drawn.
    """
    samples, words = subject.n_samples(), subject.words
    least = min(LEAST_SAMPLES, int(samples.max(initial=1)))
    eligible = np.flatnonzero(samples >= max(1, least))
    n_entities, some = len(subject.entities), f"{least} training {words.samples} or more"
    size = min(size, len(eligible), n_entities // 2)
    if size < 2:
        left = f"{n_entities} {words.entities} are" if n_entities != 1 else f"1 {words.entity} is"
        raise UsageError(
            f"No {words.entities} can be probed: at most half of them are, {left} left "
            f"and {len(eligible)} of them with {some}. Score a larger data set"
            + (", or lower --min-rating if it was given." if words.entity == "user" else ".")
        )
    if size < 2 * count:
        raise UsageError(
            f"Anchor count must be between 1 and {size // 2} (half of the {size} {words.entities} that can "
            f"be probed: at most half of {n_entities} {words.entities}, with {some}), but got {count}. Lower "
            "[anchors] count, or raise [anchors] pool if it is the limit."
        )
    order = np.argsort(uniform(eligible.astype(np.uint64), seed + 1), kind="stable")
    return np.sort(eligible[order[:size]]).astype(np.int64)


def rest_of(subject: Subject, pool: IntArray) -> IntArray:
    """Entities outside the pool that have training samples."""
    outside = np.ones(len(subject.entities), dtype=bool)
    outside[pool] = False
    return np.flatnonzero(outside & (subject.n_samples() > 0)).astype(np.int64)
