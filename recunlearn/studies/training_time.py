"""How long training takes, from a few timed steps."""

import copy
import time

import numpy as np
import torch

from recunlearn.subjects.recbole.subject import RecBoleSubject

STEPS = 4
"""Training steps timed."""


def epoch_seconds(subject: RecBoleSubject, steps: int = STEPS) -> float:
    """Forward and backward pass over as many samples as an epoch has; the first step is not counted."""
    model = copy.deepcopy(subject.model)
    size = int(subject.bundle.config["train_batch_size"])
    size = max(1, min(size, int(subject.n_samples().sum())))
    generator = torch.Generator().manual_seed(0)
    everyone = np.flatnonzero(subject.n_samples() > 0).astype(np.int64)
    marks = []
    for _ in range(1 + steps):
        batch = subject.draw(everyone, size, generator, negatives=True)
        (-subject.log_likelihood(model, batch).mean()).backward()
        marks.append(time.perf_counter())
    batches = -(-int(subject.n_samples().sum()) // size)
    return (marks[-1] - marks[0]) / steps * batches
