"""A language model and its question-answer rows as a subject."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.store import content_hash
from recunlearn.foundation.words import Words
from recunlearn.subjects.contract import Batch, IntArray, PlanHints, Predictions
from recunlearn.subjects.tofu import likelihood
from recunlearn.subjects.tofu.arithmetic import training_arithmetic
from recunlearn.subjects.tofu.data import Rows
from recunlearn.subjects.tofu.encoding import encode
from recunlearn.subjects.tofu.model import context_of, vocabulary_of
from recunlearn.subjects.tofu.overlap import shared_ngrams
from recunlearn.subjects.tofu.parts import components_of
from recunlearn.subjects.tofu.samples import Samples
from recunlearn.subjects.tofu.settings import LanguageSettings
from recunlearn.subjects.tofu.training import fit


class LanguageSubject:
    """Entities are rows or authors; a sample is a row; its likelihood is that of the answer's tokens.

    The log-likelihood is the mean over the tokens of an answer, so that long answers count no more than short
    ones: the loss is what a truth ratio or SimNPO is made of, and NPO's beta acts on a token.

    Args:
        rows: in the order of training.
        model: trained on them; any causal model of transformers whose layers are recognised.
        tokenizer: of the model.
        settings: of text, training and circuits.
        start: ``start(seed)`` is the model that training began with.
        weights_hash: of the stored weights; "" while nothing is stored.
        losses: mean loss of every epoch of the training.
    """

    family = "softmax"

    @property
    def words(self) -> Words:
        """Rows or authors, and their answers."""
        return self.settings.words

    def __init__(
        self,
        rows: Rows,
        model: nn.Module,
        tokenizer: Any,
        settings: LanguageSettings,
        start: Callable[[int], nn.Module],
        *,
        weights_hash: str = "",
        losses: tuple[float, ...] = (),
    ) -> None:
        self.rows, self.tokenizer, self.settings, self.start = rows, tokenizer, settings, start
        self.model: nn.Module = model.eval()
        self.weights_hash, self.losses = weights_hash, losses
        self.encoded = encode(rows, tokenizer, settings.text, context_of(model), vocabulary_of(model))
        names = rows.ids if settings.entity == "row" else rows.authors
        self.entities, owner = _numbered(names)
        self.samples = Samples(self.encoded, owner, len(self.entities))

    @property
    def training_batch(self) -> int:
        """Rows that training computes at once."""
        return self.settings.training.batch_size

    def n_samples(self) -> IntArray:
        """Rows of each entity: ``[n_entities]``."""
        return self.samples.counts.copy()

    def batches(
        self,
        entities: IntArray | None = None,
        *,
        batch_size: int,
        per_entity: int | None = None,
        seed: int = 0,
    ) -> Iterator[Batch]:
        """Every row of ``entities`` once, entity by entity, filled up to the longest of its batch."""
        chosen = np.arange(len(self.entities)) if entities is None else np.asarray(entities, dtype=np.int64)
        device = next(self.model.parameters()).device
        for batch in self.samples.batches(self.samples.rows(chosen, per_entity, seed), batch_size):
            yield batch.to(device)

    def draw(
        self, entities: IntArray, size: int, generator: torch.Generator, *, negatives: bool = False
    ) -> Batch:
        """``size`` rows of ``entities`` with replacement; there are no negatives."""
        pool = self.samples.rows(np.asarray(entities, dtype=np.int64))
        if not len(pool):
            raise UsageError("There is no row to draw from. Name one entity or more.")
        return self.samples.batch(pool[torch.randint(len(pool), (size,), generator=generator).numpy()])

    def log_likelihood(self, model: nn.Module, batch: Batch) -> Tensor:
        """``[B]``: mean over the tokens of the answer of log softmax at the token."""
        return likelihood.mean_log_likelihood(model, batch)

    def class_scores(self, model: nn.Module, batch: Batch) -> Tensor:
        """``[P, V]`` logits for every answer token."""
        return likelihood.answer_scores(model, batch)

    def predictions(self, batch: Batch) -> Predictions:
        """Row of the batch and token, of every answer token."""
        return likelihood.predictions(batch)

    def arithmetic(self, model: nn.Module) -> AbstractContextManager[None]:
        """In bf16 where training is."""
        return training_arithmetic(model, self.settings.training)

    def retrain(self, without: IntArray, *, seed: int, progress: bool = False) -> nn.Module:
        """Train anew on the rows of all others, from where the training began."""
        gone = np.isin(self.samples.owner, np.asarray(without, dtype=np.int64))
        if gone.all():
            raise UsageError("Retraining without all rows leaves nothing to train on. Name fewer.")
        model, rows = self.start(seed), np.flatnonzero(~gone).astype(np.int64)
        model.to(next(self.model.parameters()).device)
        options = {"progress": progress, "title": "Retraining"}
        return fit(model, self.samples, rows, self.settings.training, seed=seed, **options).model  # type: ignore[arg-type]

    def population_rows(self, model: nn.Module, entities: IntArray) -> nn.Module:
        """Return a copy: no weight of a language model belongs to one row."""
        return copy.deepcopy(model)

    def hints(self) -> PlanHints:
        """Embedding, attention heads and MLPs."""
        return components_of(self.model, self.settings.circuits.attention)

    def covariates(self) -> Mapping[str, NDArray[np.float64]]:
        """Mean tokens of answer and question, and the share of word trigrams that other entities have too."""
        e = self.encoded
        figures = {
            "answer_tokens": e.length - e.prompt,
            "question_tokens": e.prompt,
            "shared_ngrams": self._overlap,
        }
        return {name: self._mean(values.astype(np.float64)) for name, values in figures.items()}

    @cached_property
    def _overlap(self) -> NDArray[np.float64]:
        return shared_ngrams(self.rows, self.samples.owner)

    def _mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        total = np.bincount(self.samples.owner, weights=values, minlength=len(self.entities))
        return np.asarray(total / self.samples.counts, dtype=np.float64)

    def describe(self) -> Mapping[str, object]:
        """Data and weights by hash, kind of entity, how text becomes tokens."""
        weights = self.weights_hash or content_hash(
            {k: v.detach().float().cpu().numpy() for k, v in self.model.state_dict().items()}
        )
        return {
            "model": type(self.model).__name__,
            "family": self.family,
            "data": ", ".join(self.settings.files),
            "data_hash": self.rows.hash,
            "weights_hash": weights,
            "entity": self.settings.entity,
            "text": self.settings.text.model_dump(),
            "positives": "answers",
        }


def _numbered(names: NDArray[np.str_]) -> tuple[NDArray[np.str_], IntArray]:
    """Names once each, in order of appearance, and the number of every row's."""
    unique, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return unique[order], place[inverse].astype(np.int64)
