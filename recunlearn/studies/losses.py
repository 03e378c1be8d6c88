"""Losses of entities over their own training samples."""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from recunlearn.subjects.contract import Batch, IntArray, Subject

BATCH = 8192


def device_of(model: nn.Module) -> torch.device:
    """Device of the model's parameters; the CPU where it has none."""
    parameter = next(iter(model.parameters()), None)
    return torch.device("cpu") if parameter is None else parameter.device


def samples(subject: Subject, entities: IntArray, seed: int, per_entity: int | None = None) -> list[Batch]:
    """Training samples of ``entities`` (at most ``per_entity`` each), to be measured under many models."""
    device = device_of(subject.model)
    batches = subject.batches(entities, batch_size=BATCH, per_entity=per_entity, seed=seed)
    return [b.to(device) for b in batches]


@torch.no_grad()
def entity_losses(
    subject: Subject, model: nn.Module, batches: Iterable[Batch], entities: IntArray
) -> NDArray[np.float64]:
    """Mean negative log-likelihood of every entity over its samples in ``batches``: ``[len(entities)]``.

    NaN for an entity without samples. The model is put into eval mode for the measurement and back.
    """
    n = len(subject.entities)
    total, count = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    training = model.training
    model.eval()
    for batch in batches:
        loss = -subject.log_likelihood(model, batch).double().cpu()
        owner = batch.entity.cpu()
        total.index_add_(0, owner, loss)
        count.index_add_(0, owner, torch.ones_like(loss))
    model.train(training)
    rows = torch.from_numpy(np.asarray(entities, dtype=np.int64))
    mean: NDArray[np.float64] = (total[rows] / count[rows]).numpy()
    return mean
