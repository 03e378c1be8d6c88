"""A trained RecBole model as a :class:`Subject`."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.words import Words
from recunlearn.subjects.contract import Batch, IntArray, PlanHints, Predictions
from recunlearn.subjects.parts import Vectors
from recunlearn.subjects.recbole import item_scores, parts, scoring
from recunlearn.subjects.recbole.bundle import Bundle
from recunlearn.subjects.recbole.compat import with_seed
from recunlearn.subjects.recbole.evaluation import per_user
from recunlearn.subjects.recbole.lookups import (
    LookUp,
    find_lookups,
    plan_hints,
    tables_at,
    user_vectors,
    with_free_rows,
    with_population_rows,
)
from recunlearn.subjects.recbole.read_position import at_read_position, reads_one_position
from recunlearn.subjects.recbole.samples import Samples
from recunlearn.subjects.recbole.training import fit
from recunlearn.subjects.recbole.vectors import find_vectors

Metrics = Mapping[str, Mapping[str, float]]


class RecBoleSubject:
    """A trained recommender with its training samples.

    Args:
        bundle: settings and data.
        model: trained, in eval mode.
        epochs: epochs that made the weights; retraining runs as many.
        metrics: "valid" and "test" -> figures such as ``ndcg@10`` (``auc`` and ``logloss`` with labels).
        popularity_metrics: the same for the ranking by popularity.
        weights_hash: SHA-256 of the stored weights.
    """

    words = Words()

    def __init__(
        self,
        bundle: Bundle,
        model: nn.Module,
        *,
        epochs: int,
        metrics: Metrics,
        popularity_metrics: Metrics,
        weights_hash: str,
    ) -> None:
        self.bundle = bundle
        self.model = model.eval()
        self.entities: NDArray[np.str_] = bundle.users
        self.items: NDArray[np.str_] = bundle.items
        self.family = bundle.objective
        self.epochs = epochs
        self.metrics, self.popularity_metrics = metrics, popularity_metrics
        self.weights_hash = weights_hash
        scoring.clear_caches(self.model)

    @cached_property
    def samples(self) -> Samples:
        """Training samples by user."""
        return Samples(self.bundle)

    @property
    def main_metric(self) -> str:
        """Figure that training was stopped by: ``ndcg@10``, or ``auc`` where rows have labels."""
        return "auc" if self.bundle.labelled else "ndcg@10"

    def beats_popularity(self) -> bool:
        """Tell whether the model does better on the test part than popularity; True without a test part."""
        ours = self.metrics.get("test", {}).get(self.main_metric)
        theirs = self.popularity_metrics.get("test", {}).get(self.main_metric)
        return ours is None or theirs is None or ours > theirs

    @property
    def training_batch(self) -> int:
        """Samples that training computes at once."""
        return int(self.bundle.config["train_batch_size"])

    def n_samples(self) -> IntArray:
        """Training samples of each user: ``[n_entities]``."""
        return self.samples.counts.copy()

    def batches(
        self,
        entities: IntArray | None = None,
        *,
        batch_size: int,
        per_entity: int | None = None,
        seed: int = 0,
    ) -> Iterator[Batch]:
        """Every training sample of ``entities`` once, user by user, by time (else in file order)."""
        chosen = np.arange(len(self.entities)) if entities is None else np.asarray(entities, dtype=np.int64)
        return self.samples.batches(self.samples.rows(chosen, per_entity, seed), batch_size, seed)

    def draw(
        self, entities: IntArray, size: int, generator: torch.Generator, *, negatives: bool = False
    ) -> Batch:
        """``size`` samples with replacement; pointwise models get their sampled negatives on request.

        Rows that carry their own label (context-aware models on data with ratings) need no negatives: they
        are drawn with their labels.
        """
        pool = self.samples.rows(np.asarray(entities, dtype=np.int64))
        if not len(pool):
            raise UsageError("None of the chosen users has a training interaction to draw from.")
        rows = pool[torch.randint(len(pool), (size,), generator=generator).numpy()]
        seed = int(torch.randint(2**31 - 1, (1,), generator=generator))
        sampled = self._sampled_negatives() if negatives else 0
        return self.samples.batch(rows, seed, sampled=sampled)

    def _sampled_negatives(self) -> int:
        count = self.bundle.config["train_neg_sample_args"]["sample_num"]
        wanted = self.family == "pointwise" and not self.bundle.labelled and count != "none"
        return int(count) if wanted else 0

    def log_likelihood(self, model: nn.Module, batch: Batch) -> Tensor:
        """``[B]``: log sigma(±s), log sigma(s_i - s_j) or log softmax(s)_i.

        The form follows the model's family, also where RecBole's loss adds a regulariser or a margin.
        """
        return scoring.log_likelihood(self.family, model, batch.columns)

    def class_scores(self, model: nn.Module, batch: Batch) -> Tensor:
        """``[B, C]`` logits: ``[0, ±s]``, ``[s_j, s_i]`` or all items (item 0 included, as trained)."""
        return scoring.class_scores(self.family, model, batch.columns)

    def predictions(self, batch: Batch) -> Predictions:
        """One a sample: its item, or the second of two classes."""
        rows = torch.arange(len(batch), device=batch.entity.device)
        softmax = self.family == "softmax"
        return Predictions(rows, batch.columns["item_id"].long() if softmax else torch.ones_like(rows))

    def arithmetic(self, model: nn.Module) -> AbstractContextManager[None]:
        """Float32 throughout, as RecBole trains."""
        return nullcontext()

    def retrain(self, without: IntArray, *, seed: int, progress: bool = False) -> nn.Module:
        """Train anew without the users' rows: same id map, sizes and number of epochs, no evaluation."""
        gone = np.zeros(len(self.entities) + 1, dtype=bool)
        gone[np.asarray(without, dtype=np.int64) + 1] = True
        bundle = self.bundle.without(~gone[self.samples.user])
        if not len(bundle.train):
            raise UsageError("Retraining without all users leaves no interaction. Name fewer users.")
        bundle = replace(bundle, config=with_seed(bundle.config, seed))
        return fit(bundle, epochs=self.epochs, patience=None, progress=progress, title="Retraining").model

    def pairs(self) -> tuple[IntArray, IntArray]:
        """Users and items of all training rows, from 0, user by user as in ``batches``."""
        order = self.samples.rows(np.arange(len(self.entities)))
        return self.samples.user[order].astype(np.int64) - 1, self.samples.item[order].astype(np.int64) - 1

    def train_on(
        self, kept: NDArray[np.bool_], *, seed: int, effort: float = 1.0, batch: float = 1.0
    ) -> nn.Module:
        """Train anew on some rows: same id map, sizes and settings, no evaluation."""
        epochs = max(1, round(self.epochs * effort))
        return parts.train_part(self.bundle, self._marked(kept), seed=seed, epochs=epochs, batch=batch)

    def load_on(self, kept: NDArray[np.bool_], state: Mapping[str, Tensor]) -> nn.Module:
        """Model of some rows, from its weights."""
        return parts.load_part(self.bundle, self._marked(kept), state)

    def _marked(self, kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
        rows = np.zeros(len(self.samples.user), dtype=bool)
        rows[self.samples.rows(np.arange(len(self.entities)))[kept]] = True
        return rows

    def vectors(self, model: nn.Module) -> Vectors:
        """Rows of users and items; a graph model becomes the plain model of its propagated tables."""
        return find_vectors(self.bundle, model, self._spread())

    def ensemble(self, models: Sequence[nn.Module]) -> nn.Module:
        """Model whose raw score is the mean of the models' raw scores."""
        return parts.mean_model(self.bundle, models, self._spread())

    def population_rows(self, model: nn.Module, entities: IntArray) -> nn.Module:
        """Copy with the users' own vectors replaced by the mean over all other users.

        Covers every table that the score reads at the user's row; features such as age stay. Graph models
        read a propagated table: its rows are replaced. Models without user vectors (SASRec) are only copied.
        """
        lookups, batch = self._watched(model)
        tables = tables_at(lookups, batch, "user_id")
        if not tables:
            return copy.deepcopy(model)
        return with_population_rows(model, tables, entities, len(self.entities))

    def tables(self, model: nn.Module, column: str) -> Mapping[str | None, int]:
        """Tables that the score reads at the numbers in ``column`` -> row of number 0; None: computed."""
        lookups, batch = self._watched(model)
        return tables_at(lookups, batch, column) if column in batch.columns else {}

    def interactions(self) -> tuple[IntArray, IntArray]:
        """Users and items of the training rows (those with label 1 where rows have labels), from 0."""
        user, item = self.samples.user.astype(np.int64) - 1, self.samples.item.astype(np.int64) - 1
        if not self.bundle.labelled:
            return user, item
        liked = self.bundle.train.inter_feat["label"].numpy() > 0
        return user[liked], item[liked]

    def item_scores(self, model: nn.Module, entities: IntArray) -> Tensor:
        """Logits for every item, by the model's own full-sort method or in tiles of pairs."""
        return item_scores.item_scores(self.bundle, model, entities)

    def quality(self, model: nn.Module) -> Mapping[str, NDArray[np.float64]]:
        """Recall and NDCG of the test part by user, known items left out; AUC and log loss with labels."""
        return per_user(self.bundle, model)

    def user_vectors(self, model: nn.Module) -> Tensor | None:
        """Rows of every table that the score reads at the user's row, side by side."""
        lookups, batch = self._watched(model)
        return user_vectors(model, tables_at(lookups, batch, "user_id"), len(self.entities))

    def free_rows(self, model: nn.Module, entities: IntArray) -> tuple[nn.Module, list[nn.Parameter]] | None:
        """Copy in which only these users' rows can be trained; graph models: their propagated rows."""
        lookups, batch = self._watched(model)
        tables = tables_at(lookups, batch, "user_id")
        return with_free_rows(model, tables, entities, len(self.entities)) if tables else None

    def without_history(self, model: nn.Module, batch: Batch) -> tuple[nn.Module, Batch] | None:
        """Return samples with one step of padding, or a copy of the model with empty input rows."""
        return item_scores.without_history(model, batch)

    def hints(self) -> PlanHints:
        """Names, row ranges and padding of the embedding tables, and what the score does not read."""
        lookups, batch = self._watched(self.model)
        found = plan_hints(self.model, lookups, batch)
        one = reads_one_position(self.log_likelihood, self.model, self._ends())
        return replace(found, shortcut=at_read_position if one else None)

    def covariates(self) -> Mapping[str, NDArray[np.float64]]:
        """``mean_item_popularity``: training interactions of a user's items, averaged; NaN without any."""
        item, user = self.samples.item, self.samples.user
        popularity = np.bincount(item).astype(np.float64)[item]
        total = np.bincount(user, weights=popularity, minlength=len(self.entities) + 1)[1:]
        with np.errstate(invalid="ignore"):
            return {"mean_item_popularity": total / self.samples.counts}

    def describe(self) -> Mapping[str, object]:
        """Plain settings that identify the trained model."""
        return {**self.bundle.facts, "trained_epochs": self.epochs, "weights_hash": self.weights_hash}

    def _watched(self, model: nn.Module) -> tuple[list[LookUp], Batch]:
        batch = self._spread()
        mode = model.training
        found = find_lookups(self.family, model.eval(), batch)
        model.train(mode)
        return found, batch

    def _spread(self) -> Batch:
        """One sample of each of some users."""
        return self.samples.batch(self.samples.rows(self._some(), 1), 0)

    def _ends(self) -> Batch:
        """First and last sample of some users: short histories and long ones."""
        users = self._some()
        rows, after = self.samples.rows(users), np.cumsum(self.samples.counts[users])
        first = after - self.samples.counts[users]
        return self.samples.batch(rows[np.unique([*first, *(after - 1)])], 0)

    def _some(self) -> IntArray:
        active = np.flatnonzero(self.samples.counts)
        return active[np.unique(np.linspace(0, len(active) - 1, 32).astype(np.int64))]
