"""What one model is measured by: losses, ranks and quality for the users of a forget set and around it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import nn

from recunlearn.evaluation.distances import DISTANCES, log_probabilities
from recunlearn.evaluation.forgetting import activity_groups, neighbours
from recunlearn.evaluation.ranking import per_user_metrics
from recunlearn.foundation.seeds import uniform
from recunlearn.studies.fold_in import FoldIn, History, folded_in, in_pieces, joined, split_history
from recunlearn.studies.losses import entity_losses, samples
from recunlearn.subjects.contract import Batch, IntArray, Recommender

Array = NDArray[np.float64]
KS = (10, 20)
CELLS = 1 << 20
"""Scores held at a time for each model."""


@dataclass(frozen=True)
class Setting:
    """A forget set and the users around it, prepared once for every model that is measured on it.

    Args:
        subject: with its data; ``subject.model`` is not measured.
        forget: rows of the forgotten users.
        near: as many users whose histories are nearest to theirs.
        others: as many random users, neither forgotten nor near.
        fold_in: how vectors are fitted.
        seed: of the negatives, the random users and the fold-in.
    """

    subject: Recommender
    forget: IntArray
    near: IntArray
    others: IntArray
    fold_in: FoldIn
    seed: int

    @staticmethod
    def of(subject: Recommender, forget: IntArray, fold_in: FoldIn, seed: int) -> "Setting":
        """Find the neighbours, and draw the random users."""
        user, item = subject.interactions()
        shape = (len(subject.entities), len(subject.items))
        near = np.sort(neighbours(user, item, shape, forget, len(forget))).astype(np.int64)
        rest = np.setdiff1d(np.flatnonzero(subject.n_samples() > 0), np.concatenate([forget, near]))
        lot = uniform(rest.astype(np.uint64), seed)
        others = np.sort(rest[np.argsort(lot, kind="stable")[: len(forget)]])
        return Setting(subject, forget, near, others, fold_in, seed)

    @property
    def groups(self) -> Mapping[str, IntArray]:
        """Users whose scores are compared, by name."""
        return {"forget": self.forget, "near": self.near, "random": self.others}

    @cached_property
    def retain(self) -> IntArray:
        """Every user with training interactions that is not forgotten."""
        return np.setdiff1d(np.flatnonzero(self.subject.n_samples() > 0), self.forget)

    @cached_property
    def activity(self) -> NDArray[np.str_]:
        """Activity group of each user of ``retain``."""
        return activity_groups(self.subject.n_samples()[self.retain])

    @cached_property
    def batches(self) -> list[Batch]:
        """Deleted samples."""
        return samples(self.subject, self.forget, self.seed)

    @cached_property
    def history(self) -> History:
        """Deleted samples in the parts that vectors are fitted and tested on."""
        return split_history(self.subject, self.forget, self.fold_in, self.seed)

    @cached_property
    def deleted(self) -> sparse.csr_matrix:
        """Deleted items of each forgotten user: ``[n, n_items]`` bool."""
        user, item = self.subject.interactions()
        shape = (len(self.subject.entities), len(self.subject.items))
        table = sparse.csr_matrix((np.ones(len(user), dtype=bool), (user, item)), shape=shape)
        return table[self.forget]

    def losses(self, model: nn.Module, batches: list[Batch]) -> Array:
        """Mean loss of every forgotten user: ``[n]``."""
        return entity_losses(self.subject, model, batches, self.forget)

    def empty_losses(self, model: nn.Module) -> Array | None:
        """Mean loss of every forgotten user with an empty history: ``[n]``; None for models without."""
        whole = joined(self.batches)
        found = self.subject.without_history(model, whole)
        if found is None:
            return None
        return self.losses(found[0], in_pieces(found[1]))


@dataclass(frozen=True)
class Measured:
    """One model on a :class:`Setting`.

    Args:
        model: with the forgotten users' rows as they are (population mean in a retrained model).
        loss: ``[n]`` mean loss of each forgotten user's deleted samples.
        reset: ``[n]`` with the population's rows; None without user vectors.
        fold_in: ``[n]`` of the held-out part under fitted rows; None without user vectors.
        empty: ``[n]`` with an empty history; None for models that read none.
        rank: ``[n]`` median rank of each user's deleted items among all items, 1 the first.
        deleted: metrics of the deleted items as if they were the test part: ``[n]`` each.
        quality: metrics of the test part, ``[n_entities]`` each.
        norm: ``[n_entities]`` length of every user's vector; None without.
    """

    model: nn.Module
    loss: Array
    reset: Array | None
    fold_in: Array | None
    empty: Array | None
    rank: Array
    deleted: Mapping[str, Array]
    quality: Mapping[str, Array]
    norm: Array | None


def measure(setting: Setting, model: nn.Module, *, absent: bool = False) -> Measured:
    """Measure a model.

    Args:
        setting: forget set.
        model: to measure; its rows of the forgotten users are kept.
        absent: the model never saw them, so that their rows are noise: the population mean takes their place.
    """
    subject, forget = setting.subject, setting.forget
    stranger = subject.population_rows(model, forget)
    kept = stranger if absent else model
    vectors = subject.user_vectors(kept)
    fitted = None
    if vectors is not None:
        fitted = folded_in(subject, model, forget, setting.history, setting.fold_in, setting.seed)
    rank, deleted = _deleted_items(setting, kept)
    return Measured(
        model=kept,
        loss=setting.losses(kept, setting.batches),
        reset=None if vectors is None else setting.losses(stranger, setting.batches),
        fold_in=None if fitted is None else setting.losses(fitted, setting.history.test),
        empty=setting.empty_losses(kept),
        rank=rank,
        deleted=deleted,
        quality=subject.quality(kept),
        norm=None if vectors is None else torch.linalg.norm(vectors, dim=1).double().cpu().numpy(),
    )


def _deleted_items(setting: Setting, model: nn.Module) -> tuple[Array, dict[str, Array]]:
    """Median rank and ranking metrics of deleted items, no item left out of the ranking."""
    median, hits = [], []
    for rows, places in _tiles(setting.subject, setting.forget):
        scores = setting.subject.item_scores(model, rows).numpy()
        order = np.argsort(-scores, axis=1, kind="stable")
        relevant = np.take_along_axis(setting.deleted[places].toarray(), order, 1)
        hits.append(relevant[:, : max(KS)])
        median += [float(np.median(np.flatnonzero(r) + 1)) if r.any() else np.nan for r in relevant]
    sizes = np.asarray(setting.deleted.sum(1), dtype=np.int64).ravel()
    values = per_user_metrics(np.concatenate(hits), sizes, KS)
    wanted = {k: v for k, v in values.items() if k.startswith(("recall", "ndcg"))}
    return np.array(median), wanted


def distances(
    setting: Setting, measured: Measured, references: list[Measured], group: str
) -> dict[str, Array]:
    """Distance of a model to each reference for every user of a group: name -> ``[R, n]``."""
    found: dict[str, list[Array]] = {name: [] for name in DISTANCES}
    for rows, _ in _tiles(setting.subject, setting.groups[group]):
        own, *theirs = (
            log_probabilities(setting.subject.item_scores(m.model, rows).numpy())
            for m in (measured, *references)
        )
        for name, distance in DISTANCES.items():
            found[name].append(np.stack([distance(own, other) for other in theirs]))
    empty = np.zeros((len(references), 0))
    return {name: np.concatenate(parts, axis=1) if parts else empty for name, parts in found.items()}


def _tiles(subject: Recommender, users: IntArray) -> list[tuple[IntArray, slice]]:
    """Some users at a time, and their places: never all users' scores at once."""
    step = max(1, CELLS // max(len(subject.items), 1))
    return [(users[s : s + step], slice(s, s + step)) for s in range(0, len(users), step)]
