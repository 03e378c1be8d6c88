"""How long training takes, from a few timed steps."""

import copy
import time
from typing import Protocol

import numpy as np
import torch

from recunlearn.studies.losses import device_of
from recunlearn.subjects.contract import Subject

STEPS = 4
"""Training steps timed."""


class Trainable(Subject, Protocol):
    """A subject that knows how it is trained."""

    @property
    def training_batch(self) -> int:
        """Samples that its training computes at once."""
        ...


def epoch_seconds(subject: Trainable, steps: int = STEPS) -> float:
    """Forward and backward pass over as many samples as an epoch has; the first step is not counted."""
    model = copy.deepcopy(subject.model)
    size = max(1, min(subject.training_batch, int(subject.n_samples().sum())))
    generator = torch.Generator().manual_seed(0)
    everyone = np.flatnonzero(subject.n_samples() > 0).astype(np.int64)
    marks = []
    for _ in range(1 + steps):
        batch = subject.draw(everyone, size, generator, negatives=True).to(device_of(model))
        (-subject.log_likelihood(model, batch).mean()).backward()
        marks.append(time.perf_counter())
    batches = -(-int(subject.n_samples().sum()) // size)
    return (marks[-1] - marks[0]) / steps * batches
