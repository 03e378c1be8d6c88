"""Fold-in: what shared weights still know about forgotten users, once their vectors are fitted anew."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from recunlearn.foundation.seeds import uniform
from recunlearn.studies.losses import BATCH, device_of, samples
from recunlearn.subjects.contract import Batch, IntArray, Recommender

MOST_SAMPLES = 16_384
"""Interactions of a step; sets that have fewer are fitted in full batches."""


@dataclass(frozen=True)
class FoldIn:
    """How vectors are fitted: Adam on the mean loss + ridge · mean ‖v − population‖².

    With the ridge the optimum hardly depends on rate and steps; without it, vectors of some dozen
    interactions are overfitted within some steps and the held-out loss measures that instead.
    """

    share: float = 0.5
    """Share of each user's interactions that the vector is fitted on."""
    steps: int = 80
    learning_rate: float = 0.03
    ridge: float = 0.01


@dataclass(frozen=True)
class History:
    """Forgotten interactions in two parts, and what was not consumed.

    Args:
        fit: that vectors are fitted on.
        test: whose loss is measured.
        negatives: sampled negatives (pointwise models); None where the loss brings its own.
    """

    fit: Batch
    test: list[Batch]
    negatives: Batch | None


def split_history(subject: Recommender, entities: IntArray, how: FoldIn, seed: int) -> History:
    """Split every entity's samples by lot; a single sample goes to the test part."""
    whole = joined(samples(subject, entities, seed))
    owner = whole.entity.cpu().numpy()
    order = np.lexsort((uniform(np.arange(len(owner), dtype=np.uint64), seed), owner))
    count = np.bincount(owner)
    place = np.arange(len(owner)) - (np.cumsum(count) - count)[owner[order]]
    inside = np.zeros(len(owner), dtype=bool)
    inside[order] = place < np.floor(how.share * count[owner[order]])
    chosen = torch.from_numpy(inside).to(whole.entity.device)
    fit, rest = whole[chosen], whole[~chosen]
    return History(fit, in_pieces(rest), _negatives(subject, entities, len(fit), seed))


def joined(parts: list[Batch]) -> Batch:
    """Batches one after the other."""
    columns = {k: torch.cat([p.columns[k] for p in parts]) for k in parts[0].columns}
    return Batch(columns, torch.cat([p.entity for p in parts]))


def in_pieces(batch: Batch) -> list[Batch]:
    """Cut a long batch."""
    return [batch[slice(start, start + BATCH)] for start in range(0, len(batch), BATCH)]


def _negatives(subject: Recommender, entities: IntArray, count: int, seed: int) -> Batch | None:
    """As many negatives as training adds to ``count`` positives."""
    if not count or subject.family != "pointwise":
        return None
    drawn = subject.draw(entities, count, torch.Generator().manual_seed(seed), negatives=True)
    if len(drawn) == count:  # rows carry their own labels, negatives among them
        return None
    return drawn[torch.arange(len(drawn)) >= count].to(device_of(subject.model))


def folded_in(
    subject: Recommender, model: nn.Module, entities: IntArray, history: History, how: FoldIn, seed: int
) -> nn.Module | None:
    """Copy of ``model`` with vectors of ``entities`` fitted on ``history.fit``, all else frozen.

    None where the model has no user vectors.
    """
    found = subject.free_rows(model, entities)
    if found is None or not len(history.fit):
        return None
    free, vectors = found
    free.eval()
    start = [v.detach().clone() for v in vectors]
    optimiser = torch.optim.Adam(vectors, lr=how.learning_rate)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(how.steps):
        loss = _mean_loss(subject, free, history, generator)
        away = sum(((v - s) ** 2).sum() for v, s in zip(vectors, start, strict=True))
        optimiser.zero_grad()
        (loss + how.ridge * away / len(entities)).backward()
        optimiser.step()
    for vector in vectors:
        vector.requires_grad_(False)
    return free


def _mean_loss(
    subject: Recommender, model: nn.Module, history: History, generator: torch.Generator
) -> Tensor:
    """Mean training loss over positives and negatives together."""
    parts = [history.fit] if history.negatives is None else [history.fit, history.negatives]
    room = MOST_SAMPLES / sum(map(len, parts))
    if room < 1:
        parts = [p[torch.randint(len(p), (max(1, int(room * len(p))),), generator=generator)] for p in parts]
    return -torch.cat([subject.log_likelihood(model, p) for p in parts]).mean()
