"""What unlearning did to every user: folds of users, each unlearned by every method and measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from recunlearn.difficulty.outcomes import hardness
from recunlearn.evaluation.distances import jensen_shannon, log_probabilities
from recunlearn.evaluation.forgetting import share_left
from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.records import Outcomes
from recunlearn.foundation.seeds import uniform
from recunlearn.foundation.settings import AnchorSettings
from recunlearn.studies.fold_in import FoldIn, folded_in, split_history
from recunlearn.studies.losses import entity_losses
from recunlearn.studies.pieces import Arrays
from recunlearn.studies.pool import LEAST_SAMPLES
from recunlearn.studies.probe import Probed, probed, retraining_noise
from recunlearn.subjects.contract import IntArray, Recommender

Array = NDArray[np.float64]
LEAST_FOLD = 10
"""Users of a fold, at least: ranks are compared within it."""
CELLS = 1 << 21
"""Scores held at a time for each model."""
OUTCOMES = ("increase", "share-left", "divergence", "fold-in")
"""increase, share-left: docs/metrics/outcomes.md; divergence: Jensen-Shannon divergence of the item
distributions to the retrained models' over the original's; fold-in: share left under vectors fitted anew."""
PRIMARY = OUTCOMES[:2]


def assign_folds(subject: Recommender, folds: int, seed: int) -> IntArray:
    """Fold of every entity by lot, equal sizes; −1 for those with too few samples: ``[n]``."""
    eligible = np.flatnonzero(subject.n_samples() >= LEAST_SAMPLES)
    if len(eligible) < LEAST_FOLD * folds:
        raise UsageError(
            f"{len(eligible)} users with {LEAST_SAMPLES} training interactions or more are too few for "
            f"{folds} folds of {LEAST_FOLD} users. Lower folds, or take a larger data set."
        )
    order = eligible[np.argsort(uniform(eligible.astype(np.uint64), seed + 2), kind="stable")]
    fold = np.full(len(subject.entities), -1, dtype=np.int64)
    fold[order] = np.arange(len(order)) % folds
    return fold


class Distances:
    """Distributions over items and fitted vectors of every model of a probe, beside its losses.

    Args:
        subject: with the original model.
        pool: rows of the entities.
        seed: of the negatives and of the split of their histories.
    """

    name = "distances-1"

    def __init__(self, subject: Recommender, pool: IntArray, seed: int) -> None:
        self.subject, self.pool, self.seed, self.how = subject, pool, seed, FoldIn()
        self.history = split_history(subject, pool, self.how, seed)

    def of_retrained(self, model: nn.Module) -> Arrays:
        """``log_p``: ``[n, items]``, half precision (probabilities to .1 %); ``fold_in``: ``[n]``."""
        log_p = np.maximum(self._log_p(model), np.finfo(np.float16).min)  # e^-65504 is 0 anyway
        return {"log_p": log_p.astype(np.float16), "fold_in": self._fold_in(model)}

    def of_unlearned(self, model: nn.Module, retrained: Sequence[Arrays]) -> Arrays:
        """``jsd``: ``[n]`` mean over the retrained models; ``fold_in``: ``[n]``."""
        return {"jsd": self._jsd(model, retrained), "fold_in": self._fold_in(model)}

    def _log_p(self, model: nn.Module) -> Array:
        step = max(1, CELLS // len(self.subject.items))
        rows = [self.pool[s : s + step] for s in range(0, len(self.pool), step)]
        return np.concatenate([log_probabilities(self.subject.item_scores(model, r).numpy()) for r in rows])

    def _jsd(self, model: nn.Module, retrained: Sequence[Arrays]) -> Array:
        own = self._log_p(model)
        found = [jensen_shannon(own, piece["log_p"].astype(np.float64)) for piece in retrained]
        return np.mean(found, axis=0)

    def _fold_in(self, model: nn.Module) -> Array:
        fitted = folded_in(self.subject, model, self.pool, self.history, self.how, self.seed)
        if fitted is None:
            return np.full(len(self.pool), np.nan)
        return entity_losses(self.subject, fitted, self.history.test, self.pool)


@dataclass(frozen=True)
class FoldOutcomes:
    """What unlearning did to the users of one fold.

    Args:
        pool: their rows, ascending.
        losses: before, after, retrained.
        hardness: outcome -> method -> how hard each was: ``[M, n]``, NaN where not measurable.
    """

    pool: IntArray
    losses: Outcomes
    hardness: Mapping[str, Array]


def unlearn_fold(
    subject: Recommender,
    settings: AnchorSettings,
    pool: IntArray,
    *,
    distances: bool,
    seed: int,
    folder: Path,
) -> FoldOutcomes:
    """Unlearn a fold with every method; finished parts are kept in ``folder``."""
    also = Distances(subject, pool, seed) if distances else None
    found = probed(subject, settings, pool=pool, also=also, seed=seed, folder=folder)
    values = {kind: hardness(found.outcomes, kind).mean(1) for kind in PRIMARY}
    return FoldOutcomes(pool, found.outcomes, values | ({} if also is None else _further(found)))


def _further(found: Probed) -> dict[str, Array]:
    """Hardness by what :class:`Distances` measured, the mean over unlearning seeds: ``[M, n]``."""
    runs, before = found.unlearned.values(), found.original
    jsd = np.stack([np.mean([run["jsd"] for run in method], axis=0) for method in runs])
    anew = np.stack([piece["fold_in"] for piece in found.retrained])
    noise = retraining_noise(anew)
    left = [[share_left(before["fold_in"], run["fold_in"], anew, noise) for run in method] for method in runs]
    return {
        "divergence": jsd / np.where(before["jsd"] > 0, before["jsd"], np.nan),
        "fold-in": np.array(left).mean(1),
    }


def gathered(folds: Sequence[FoldOutcomes], n_entities: int) -> dict[str, Array]:
    """Hardness of every user by outcome: ``[M, n_entities]``; outcomes that nobody has are left out."""
    values: dict[str, Array] = {}
    for fold in folds:
        for name, value in fold.hardness.items():
            values.setdefault(name, np.full((len(value), n_entities), np.nan))[:, fold.pool] = value
    return {name: value for name, value in values.items() if not np.isnan(value).all()}
