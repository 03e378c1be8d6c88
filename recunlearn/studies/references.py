"""Reference models of membership inference: each trained on a random half of the users."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recunlearn.evaluation.membership import LEAST_REFERENCES, References, halves
from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.store import content_hash
from recunlearn.studies.losses import BATCH, entity_losses
from recunlearn.studies.pieces import Pieces
from recunlearn.subjects.contract import Subject

Progress = Callable[[str, int, int], None]


def membership_references(
    subject: Subject,
    count: int = LEAST_REFERENCES,
    *,
    seed: int = 0,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> References:
    """Every user's loss under ``count`` models, each trained on its own random half of the users.

    They serve every method and forget set of one trained model; each costs as much as half a training.

    Args:
        subject: with its training data.
        count: even; 8 or more.
        seed: of the halves, the trainings and the negatives.
        folder: where each model's losses are kept as it finishes; the same call goes on from there.
        progress: told each model that is done.

    Raises:
        UsageError: too few or an odd number of models.
    """
    if count < LEAST_REFERENCES or count % 2:
        raise UsageError(
            f"Membership inference needs an even number of reference models, {LEAST_REFERENCES} or more, but "
            f"got {count}."
        )
    inside = halves(len(subject.entities), count, seed)
    key = content_hash(dict(subject.describe()), count, seed)
    pieces = Pieces(None if folder is None else Path(folder) / f"references-{key}")
    losses = []
    for number in range(count):
        make = partial(_losses, subject, np.flatnonzero(~inside[number]), seed, seed + 1 + number)
        losses.append(pieces.get(f"reference-{number}", make)["loss"])
        if progress is not None:
            progress(f"reference model {number + 1} of {count}", number + 1, count)
    return References(np.stack(losses), inside)


def _losses(
    subject: Subject, absent: NDArray[np.int64], seed: int, training: int
) -> dict[str, NDArray[np.float64]]:
    model = subject.population_rows(subject.retrain(absent, seed=training), absent)
    everyone = np.arange(len(subject.entities))
    batches = subject.batches(everyone, batch_size=BATCH, seed=seed)
    return {"loss": entity_losses(subject, model, batches, everyone)}
