"""Bi-level anchors: the weights under which unlearning a pool works worst, and best."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recunlearn.difficulty.anchors import agreement, check_count, consensus_ranks
from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.records import Anchors
from recunlearn.foundation.settings import AnchorSettings
from recunlearn.foundation.store import content_hash
from recunlearn.studies.losses import entity_losses, samples
from recunlearn.studies.methods import Method
from recunlearn.studies.pieces import Pieces
from recunlearn.studies.pool import draw_pool, rest_of
from recunlearn.studies.probe import Progress
from recunlearn.studies.unlearn import BATCH, Budget, Trainer, calibrate
from recunlearn.subjects.contract import Batch, IntArray, Subject
from recunlearn.unlearning.goal import Goal

Array = NDArray[np.float64]
ITERATIONS = 8
"""Upper-level steps."""
STEP = 0.25
"""η: what the largest deviation of the losses adds to a weight in one upper-level step."""
GAMMA = 0.1
"""γ: pulls the weights apart from 0 and 1, in units of that deviation."""


def project(weights: Array, total: float) -> Array:
    """Nearest point of {0 <= w <= 1, sum w = total}: ``[n] -> [n]``, clip(w − ν, 0, 1) with ν by bisection.

    ``total`` must lie in [0, n].
    """
    low, high = float(weights.min()) - 1.0, float(weights.max())
    for _ in range(100):
        middle = (low + high) / 2
        if np.clip(weights - middle, 0.0, 1.0).sum() > total:
            low = middle
        else:
            high = middle
    return np.clip(weights - (low + high) / 2, 0.0, 1.0)


def worst_case_weights(
    forgotten: Callable[[Array], Array], n: int, total: float, *, sign: float, iterations: int = ITERATIONS
) -> Array:
    """w ← Π(w − sign · η (ℓ(w) + 2γw)) from uniform weights: ``[n]``; sign +1 hard (lowest ℓ), −1 easy.

    Args:
        forgotten: ``[n] -> [n]`` what unlearning with weights w made of every entity's loss.
        n, total: number of weights and their sum m.
        sign: +1 minimises, −1 maximises Σ w ℓ.
        iterations: upper-level steps.

    Source: Fan et al., arXiv 2403.07362, with signSGD below so that no implicit gradient is needed.
    Deviation: ℓ is centred (Π does not see a shift) and divided by its largest size, so η has no unit.
    """
    weights = np.full(n, total / n)
    for _ in range(iterations):
        loss = forgotten(weights)
        centred = loss - loss.mean()
        size = float(np.abs(centred).max())
        pressure = sign * centred / size if size > 0 else np.zeros(n)
        weights = project(weights - STEP * (pressure + 2 * GAMMA * weights), total)
    return weights


class SignSGD(torch.optim.Optimizer):
    """θ ← θ − lr · sign(gradient): its derivative with respect to the weights vanishes."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float) -> None:
        """Take parameters and the step size."""
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad.sign(), alpha=-group["lr"])


def bilevel(
    subject: Subject,
    settings: AnchorSettings | None = None,
    *,
    seed: int = 0,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Anchors:
    """Anchors by worst-case (hard) and best-case (easy) unlearning weights of a random pool.

    Lower level: GradDiff with sample weights under signSGD, for as many steps as bring the pool's mean loss,
    at uniform weights, to what the model gives strangers (population-mean vectors); no model is retrained.
    Upper level: :func:`worst_case_weights` with Σ w = 2 · count. Hardness is (1 + w_hard − w_easy) / 2,
    averaged over seeds; equal weights are ordered by the loss that uniform unlearning made. Agreement is
    between seeds.

    Raises:
        UsageError: ``outcome`` is ``share-left``, which needs retrained models, or the pool is too small.
    """
    settings = settings or AnchorSettings(source="bilevel")
    if settings.outcome == "share-left":
        raise UsageError(
            "Bi-level anchors work with outcome 'increase' or 'level', but got 'share-left', which needs "
            "retrained models. Set outcome in [anchors], or source to 'probe'."
        )
    pool = draw_pool(subject, settings.pool, settings.count, seed)
    check_count(settings.count, len(pool), len(pool))
    pieces = Pieces(None if folder is None else Path(folder) / _key(subject, settings, pool, seed))
    lower = _Lower.make(subject, settings, pool, seed)
    rows = []
    for number in range(settings.seeds):
        found = pieces.get(f"bilevel-{seed + number}", partial(_weights, lower, settings, seed + number))
        rows.append(np.stack([found["hard"], found["easy"], found["forgotten"]]))
        if progress is not None:
            progress(f"bi-level weights, seed {number + 1} of {settings.seeds}", number + 1, settings.seeds)
    return _anchors(subject.entities[pool], np.stack(rows), settings, seed)


@dataclass(frozen=True)
class _Lower:
    """The lower level: what unlearning with given weights makes of the pool's losses."""

    trainer: Trainer
    batches: list[Batch]
    before: Array
    strangers: float

    @classmethod
    def make(cls, subject: Subject, settings: AnchorSettings, pool: IntArray, seed: int) -> "_Lower":
        batches = samples(subject, pool, seed)
        before = entity_losses(subject, subject.model, batches, pool)
        unknown = subject.population_rows(subject.model, pool)
        strangers = float(entity_losses(subject, unknown, batches, pool).mean())
        trainer = Trainer(subject, pool, rest_of(subject, pool), settings.batch_size or BATCH, SignSGD)
        return cls(trainer, batches, before, strangers)

    def losses(self, model: nn.Module) -> Array:
        return entity_losses(self.trainer.subject, model, self.batches, self.trainer.forget)

    def budget(self, most: int, learning_rate: float, seed: int) -> Budget:
        goal = Goal(lambda m: float(self.losses(m).mean()), float(self.before.mean()), self.strangers, most)
        even = _weighted(self.trainer, np.ones(len(self.before)))
        return calibrate(self.trainer, even, goal, learning_rate=learning_rate, seed=seed)[0]

    def unlearned(self, weights: Array, budget: Budget, seed: int) -> Array:
        kept = weights > 0
        trainer = replace(self.trainer, forget=self.trainer.forget[kept])
        return self.losses(trainer.unlearned(_weighted(trainer, weights[kept]), budget, seed=seed))


def _weighted(trainer: Trainer, weights: Array) -> Method:
    """GradDiff whose forget loss weighs every sample by its entity's weight over the mean weight."""
    of_entity = torch.zeros(len(trainer.subject.entities))
    of_entity[torch.from_numpy(trainer.forget)] = torch.from_numpy(weights / weights.mean()).float()

    def forget(subject: Subject, model: nn.Module, original: nn.Module, batch: Batch) -> Tensor:
        weight = of_entity.to(batch.entity.device)[batch.entity]
        return (weight * subject.log_likelihood(model, batch)).mean()

    return Method("weighted GradDiff", forget)


def _weights(lower: _Lower, settings: AnchorSettings, seed: int) -> dict[str, Array]:
    """Hard and easy weights of one seed, and the outcome at uniform weights: each ``[n]``."""
    budget = lower.budget(settings.most_steps, settings.learning_rate, seed)
    base = lower.before if settings.outcome == "increase" else np.zeros_like(lower.before)

    def forgotten(weights: Array) -> Array:
        return lower.unlearned(weights, budget, seed) - base

    n, total = len(lower.before), float(2 * settings.count)
    return {
        "hard": worst_case_weights(forgotten, n, total, sign=1.0),
        "easy": worst_case_weights(forgotten, n, total, sign=-1.0),
        "forgotten": forgotten(np.full(n, total / n)),
    }


def _anchors(entities: NDArray[np.str_], found: Array, settings: AnchorSettings, seed: int) -> Anchors:
    """Anchors from hard weights, easy weights and outcomes ``[seeds, 3, n]``."""
    by_seed = (1 + found[:, 0] - found[:, 1]) / 2
    hardness = by_seed.mean(0)
    order = np.lexsort((-found[:, 2].mean(0), hardness))
    figures = agreement(consensus_ranks(by_seed[None]))
    figures |= {"pool": float(len(entities)), "not_measurable": 0.0}
    return Anchors(
        entities,
        hardness,
        easy=order[: settings.count].astype(np.int64),
        hard=order[::-1][: settings.count].astype(np.int64),
        measurable=np.ones(len(entities), dtype=bool),
        agreement=figures,
        settings={**settings.model_dump(mode="json"), "seed": seed},
    )


def _key(subject: Subject, settings: AnchorSettings, pool: IntArray, seed: int) -> str:
    return content_hash(dict(subject.describe()), settings.model_dump(), subject.entities[pool], seed)
