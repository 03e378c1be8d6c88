"""The probe pool: a random set of entities that is unlearned to see what happens."""

import numpy as np

from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.seeds import uniform
from recunlearn.subjects.contract import IntArray, Subject

LEAST_SAMPLES = 2
"""Entities with one training sample have a loss too noisy to rank."""


def draw_pool(subject: Subject, size: int, count: int, seed: int) -> IntArray:
    """Rows of the entities to probe, ascending: at most ``size`` and half of all; fixed by ``seed``.

    Raises:
        UsageError: fewer than ``2 * count`` entities can be drawn.
    """
    eligible = np.flatnonzero(subject.n_samples() >= LEAST_SAMPLES)
    n_entities = len(subject.entities)
    size = min(size, len(eligible), n_entities // 2)
    if size < 2:
        raise UsageError(
            f"No users can be probed: at most half of them are, {n_entities} user{'s' * (n_entities != 1)} "
            f"{'are' if n_entities != 1 else 'is'} left and {len(eligible)} of them with {LEAST_SAMPLES} "
            "training interactions or more. Score a larger data set, or lower --min-rating if it was given."
        )
    if size < 2 * count:
        raise UsageError(
            f"Anchor count must be between 1 and {size // 2} (half of the {size} users that can be probed: "
            f"at most half of {n_entities} users, with {LEAST_SAMPLES} training interactions or more), but "
            f"got {count}. Lower [anchors] count, or raise [anchors] pool if it is the limit."
        )
    order = np.argsort(uniform(eligible.astype(np.uint64), seed + 1), kind="stable")
    return np.sort(eligible[order[:size]]).astype(np.int64)


def rest_of(subject: Subject, pool: IntArray) -> IntArray:
    """Entities outside the pool that have training samples."""
    outside = np.ones(len(subject.entities), dtype=bool)
    outside[pool] = False
    return np.flatnonzero(outside & (subject.n_samples() > 0)).astype(np.int64)
