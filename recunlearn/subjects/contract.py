"""The one contract: what can be trained, traced and unlearned.

Everything after ``subjects`` is written once against :class:`Subject` and serves recommenders and
language models alike.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.words import Words

IntArray = NDArray[np.int64]
COMPUTED = "*"
"""First letter of the names of tables that a model computes from its parameters (graph models)."""


@dataclass(frozen=True)
class Batch:
    """Samples in columns, each with the number of the entity it belongs to.

    Sequences are filled up with zeros to the longest of their own batch.

    Args:
        columns: model inputs by field name, each ``[B, ...]``.
        entity: ``[B]`` int64, index into ``Subject.entities``.
    """

    columns: Mapping[str, Tensor]
    entity: Tensor

    @staticmethod
    def of(**columns: Tensor) -> "Batch":
        """Samples that belong to nobody in particular: each is its own entity."""
        sizes = {k: len(v) if isinstance(v, Tensor) and v.dim() else None for k, v in columns.items()}
        if None in sizes.values() or len(set(sizes.values())) != 1:
            told = ", ".join(f"{k} {'no such tensor' if n is None else n}" for k, n in sizes.items())
            raise UsageError(
                "Batch.of needs tensors with one row a sample, the same number in each column, but got: "
                f"{told or 'nothing'}."
            )
        first = next(iter(columns.values()))
        return Batch(columns, torch.arange(len(first), device=first.device))

    def __len__(self) -> int:
        """Return the number of samples B."""
        return len(self.entity)

    def tile(self, times: int) -> "Batch":
        """Repeat the whole batch ``times`` times, step-major: ``[times * B, ...]``."""
        columns = {k: v.repeat(times, *([1] * (v.dim() - 1))) for k, v in self.columns.items()}
        return Batch(columns, self.entity.repeat(times))

    def __getitem__(self, rows: slice | Tensor) -> "Batch":
        """Take some samples."""
        return Batch({k: v[rows] for k, v in self.columns.items()}, self.entity[rows])

    def to(self, device: torch.device | str) -> "Batch":
        """Move every column."""
        return Batch({k: v.to(device) for k, v in self.columns.items()}, self.entity.to(device))

    @staticmethod
    def join(parts: Sequence["Batch"]) -> "Batch":
        """Several batches as one; where sequences differ in length, shorter ones get zeros at their end."""

        def joined(name: str) -> Tensor:
            columns = [part.columns[name] for part in parts]
            longest = max((c.shape[1] for c in columns if c.dim() == 2), default=0)
            return torch.cat(
                [functional.pad(c, (0, longest - c.shape[1])) if c.dim() == 2 else c for c in columns]
            )

        return Batch({name: joined(name) for name in parts[0].columns}, torch.cat([p.entity for p in parts]))

    def with_columns(self, **columns: Tensor) -> "Batch":
        """Replace or add columns."""
        return replace(self, columns={**self.columns, **columns})


@dataclass(frozen=True)
class Predictions:
    """What the rows of ``class_scores`` predict: a recommender's sample is one row, a text's one per token.

    Args:
        sample: ``[P]`` int64, row of the batch that each prediction belongs to, ascending.
        column: ``[P]`` int64, class that the sample has there.
    """

    sample: Tensor
    column: Tensor


@dataclass(frozen=True)
class PlanHints:
    """What a subject knows about its own look-ups and the tracer cannot see.

    Args:
        fields: embedding table (module path of the table) -> names of the rows' fields, in the order of the
            look-up's second axis; such a ``[B, F, d]`` tensor has one source per field.
            Any other ``[B, L, d]`` tensor is a sequence of positions, summed over.
        rows: embedding table -> first and last row (exclusive) of each field, for the population mean;
            without an entry: all rows but the padding row.
        padding: embedding table -> index that stands for "nothing" (never moved along the path);
            :data:`COMPUTED` holds for every table that the model computes.
        names: embedding table or component -> what a person calls it, where its path does not say so.
        order: fields in the order in which the model stacks their vectors, for the names of pairs.
        pairs: modules that are the second-order term of a factorisation machine over those vectors.
        components: modules whose outputs are the components, beside the look-ups, where a person knows better
            than the search: everything else is part of the segments between them; (): all that is found.
        heads: component that is a linear layer over concatenated heads -> their number. As a source it is
            split into the heads' terms, which add up to its output (less the bias).
        shortcut: context in which a pass of the model (in eval mode) over a batch leaves out what its score
            does not read: score and edges are the same, to rounding; None: there is none.
    """

    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rows: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    padding: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    heads: Mapping[str, int] = field(default_factory=dict)
    shortcut: Callable[[nn.Module, Batch], AbstractContextManager[None]] | None = None

    def nothing(self, table: str) -> int | None:
        """Index that stands for "nothing" in a table, if any."""
        return self.padding.get(table, self.padding.get(COMPUTED) if table.startswith(COMPUTED) else None)


@runtime_checkable
class Subject(Protocol):
    """A trained model together with its training samples, grouped by entity (user; question-answer row).

    ``entities`` holds external ids in a fixed order; every array "over entities" follows it. There is one
    order for the original, the retrained and the unlearned model.
    """

    entities: NDArray[np.str_]
    model: nn.Module
    """The trained model in eval mode. Never changed in place by later stages: they deep-copy it."""
    family: str
    """"pointwise", "pairwise" or "softmax": the model's own objective."""

    @property
    def words(self) -> Words:
        """For sentences that people read."""
        ...

    def n_samples(self) -> IntArray:
        """Training samples of each entity: ``[n_entities]``."""
        ...

    def batches(
        self,
        entities: IntArray | None = None,
        *,
        batch_size: int,
        per_entity: int | None = None,
        seed: int = 0,
    ) -> Iterator[Batch]:
        """Every training sample of ``entities`` (all by default) once, in a fixed order grouped by entity.

        Negatives that a pairwise objective needs are fixed by ``seed`` and the sample alone, whatever the
        batch. ``per_entity`` keeps at most that many samples of each entity: the last ones by time where
        there is a time, else a choice fixed by ``seed``.
        """
        ...

    def draw(
        self, entities: IntArray, size: int, generator: torch.Generator, *, negatives: bool = False
    ) -> Batch:
        """``size`` training samples of ``entities`` with replacement.

        With ``negatives`` a pointwise subject adds as many sampled negatives as its training does
        (label 0), so that ``-log_likelihood(...).mean()`` is the training loss; other families need none.
        """
        ...

    def log_likelihood(self, model: nn.Module, batch: Batch) -> Tensor:
        """``[B]``: log sigma(±s) (pointwise), log sigma(s_i - s_j) (pairwise), log softmax(s)_i (softmax).

        The mean over the predictions of a sample that has several (the tokens of an answer).
        Differentiable with respect to ``model``; no dropout of its own: the mode of ``model`` decides.
        """
        ...

    def class_scores(self, model: nn.Module, batch: Batch) -> Tensor:
        """``[P, C]`` logits, P = B but for sequences; their log-softmax at ``predictions`` is the likelihood.

        Pointwise ``[0, s]``, pairwise ``[s_j, s_i]``, softmax all items (or the vocabulary).
        """
        ...

    def predictions(self, batch: Batch) -> Predictions:
        """Sample and own class of every row of ``class_scores``."""
        ...

    def arithmetic(self, model: nn.Module) -> AbstractContextManager[None]:
        """What training computes losses of ``model`` in; entered around steps on weights and looks at them.

        Nothing, or lower precision of products where this subject's training uses it. Figures that are
        reported are computed outside.
        """
        ...

    def retrain(self, without: IntArray, *, seed: int, progress: bool = False) -> nn.Module:
        """Train anew without the samples of ``without``; same settings, same number of epochs."""
        ...

    def population_rows(self, model: nn.Module, entities: IntArray) -> nn.Module:
        """Copy of ``model`` in which the entities' own vectors are the mean over all other entities' vectors.

        Of all entities at once: each gets the mean over all but itself. This is the model's answer to an
        absent entity. A subject without entity vectors returns a copy.
        """
        ...

    def hints(self) -> PlanHints:
        """Names, row ranges and padding of the embedding tables."""
        ...

    def covariates(self) -> Mapping[str, NDArray[np.floating]]:
        """Plain facts that a score is compared with, such as ``mean_item_popularity``: ``[n]`` each."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Plain settings that identify the trained model in content hashes: data hash, weights hash, ..."""
        ...


@runtime_checkable
class Recommender(Subject, Protocol):
    """A subject whose entities are users that items are recommended to; what its evaluation asks for."""

    items: NDArray[np.str_]
    """External ids of the items; scores and item numbers follow this order."""

    def interactions(self) -> tuple[IntArray, IntArray]:
        """Return rows of ``entities`` and ``items`` of every positive training interaction, ``[n]`` each."""
        ...

    def item_scores(self, model: nn.Module, entities: IntArray) -> Tensor:
        """Logits for every item, no item left out: ``[len(entities), n_items]``, on the CPU.

        Models that read a history get the training history. Ask for some hundred entities at a time.
        """
        ...

    def quality(self, model: nn.Module) -> Mapping[str, NDArray[np.float64]]:
        """Metrics of the test part by user, such as ``ndcg@10`` (``auc``, ``logloss`` with labels): ``[n]``.

        NaN for a user without a test row.
        """
        ...

    def user_vectors(self, model: nn.Module) -> Tensor | None:
        """Every user's own vector as the score reads it: ``[n_entities, d]``; None where there is none."""
        ...

    def free_rows(self, model: nn.Module, entities: IntArray) -> tuple[nn.Module, list[nn.Parameter]] | None:
        """Copy of ``model`` in which only the vectors of ``entities`` can be trained, from the population's.

        Everything else is frozen. None where there are no user vectors.
        """
        ...

    def without_history(self, model: nn.Module, batch: Batch) -> tuple[nn.Module, Batch] | None:
        """Return model and samples with an empty history, wherever it lies; None where none is read."""
        ...
