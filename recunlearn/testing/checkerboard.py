"""A tiny recommender on checkerboard data with known right answers: a subject trained in a moment."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recunlearn.foundation.seeds import mix, uniform
from recunlearn.foundation.store import content_hash
from recunlearn.foundation.words import Words
from recunlearn.subjects.contract import Batch, IntArray, PlanHints, Predictions
from recunlearn.subjects.population import mean_of_others
from recunlearn.testing.parts import PartWorld
from recunlearn.testing.ranked import RankedWorld


class DotProduct(nn.Module):
    """Score of a user and an item: a weighted dot product of their vectors plus a bias."""

    def __init__(self, n_users: int, n_items: int, size: int, seed: int) -> None:
        """Draw small vectors from ``seed``."""
        super().__init__()
        self.user_embedding = nn.Embedding(n_users, size)
        self.item_embedding = nn.Embedding(n_items, size)
        self.out = nn.Linear(size, 1)
        generator = torch.Generator().manual_seed(seed)
        for table in (self.user_embedding, self.item_embedding):
            nn.init.normal_(table.weight, std=0.1, generator=generator)
        nn.init.ones_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """``[...], [...] -> [...]``."""
        return self.out(self.user_embedding(user) * self.item_embedding(item)).squeeze(-1)


class CheckerboardWorld(RankedWorld, PartWorld):
    """Users and items of two colours; a user consumes ``density`` of the items of their own colour.

    Known: items of a user's own colour score above the others, also those that the user never saw; and a
    stranger, whose vector is the mean over both colours, has no colour: a pairwise loss of log 2.
    ``random_users`` at the end consume as many items of any colour, so that no model of this size fits them.

    Args:
        n_users, n_items: even numbers.
        density: share of the own colour's items in a user's history, each drawn by its own seed.
        random_users: users without a colour.
        size: length of the vectors.
        family: "pointwise", "pairwise" or "softmax": the objective the model is trained on.
        epochs, seed: of the training.
    """

    words = Words()

    def __init__(
        self,
        n_users: int = 40,
        n_items: int = 30,
        *,
        density: float = 0.7,
        random_users: int = 0,
        size: int = 2,
        family: str = "pointwise",
        epochs: int = 80,
        seed: int = 0,
    ) -> None:
        """Make the data and train the model."""
        self.family, self.size, self.epochs, self.seed, self.n_items = family, size, epochs, seed, n_items
        self.entities = np.array([f"user-{n:03d}" for n in range(n_users)])
        self.colourless = np.arange(n_users) >= n_users - random_users
        cells = np.arange(n_users * n_items, dtype=np.uint64)
        lot = uniform(cells, seed).reshape(n_users, n_items)
        own = (np.arange(n_users)[:, None] + np.arange(n_items)[None, :]) % 2 == 0
        chance = np.where(self.colourless[:, None], density / 2, np.where(own, density, 0.0))
        self.consumed: NDArray[np.bool_] = lot < chance
        self.relevant: NDArray[np.bool_] = own & ~self.colourless[:, None] & ~self.consumed
        user, item = np.nonzero(self.consumed)
        self._user, self._item = torch.from_numpy(user), torch.from_numpy(item)
        self.model: nn.Module = self._train(torch.ones(len(user), dtype=torch.bool), seed)

    def n_samples(self) -> IntArray:
        """Interactions of each user."""
        return self.consumed.sum(1).astype(np.int64)

    def batches(
        self,
        entities: IntArray | None = None,
        *,
        batch_size: int,
        per_entity: int | None = None,
        seed: int = 0,
    ) -> Iterator[Batch]:
        """See :class:`~recunlearn.subjects.contract.Subject`."""
        wanted = np.arange(len(self.entities)) if entities is None else np.asarray(entities)
        rows = [self._rows_of(int(e), per_entity, seed) for e in wanted]
        every = torch.cat(rows) if rows else torch.empty(0, dtype=torch.long)
        for part in every.split(batch_size):
            if len(part):
                yield self._batch(part, self._fixed_negatives(part, seed))

    def draw(
        self, entities: IntArray, size: int, generator: torch.Generator, *, negatives: bool = False
    ) -> Batch:
        """See :class:`~recunlearn.subjects.contract.Subject`; one negative a positive."""
        rows = torch.isin(self._user, torch.as_tensor(entities)).nonzero().squeeze(1)
        chosen = rows[torch.randint(len(rows), (size,), generator=generator)]
        unseen = self._random_negatives(chosen, generator)
        batch = self._batch(chosen, unseen)
        return self._with_negatives(batch, unseen) if negatives and self.family == "pointwise" else batch

    def log_likelihood(self, model: nn.Module, batch: Batch) -> Tensor:
        """``[B]`` under the family's objective."""
        scores = self.class_scores(model, batch).log_softmax(1)
        return scores.gather(1, self._column(batch)[:, None]).squeeze(1)

    def predictions(self, batch: Batch) -> Predictions:
        """One a sample."""
        return Predictions(torch.arange(len(batch), device=batch.entity.device), self._column(batch))

    def class_scores(self, model: nn.Module, batch: Batch) -> Tensor:
        """``[B, 2]`` (pointwise, pairwise) or ``[B, n_items]`` (softmax)."""
        user, item = batch.columns["user_id"], batch.columns["item_id"]
        if self.family == "softmax":
            items = torch.arange(self.n_items, device=item.device)
            return model(user[:, None], items[None, :])
        score = model(user, item)
        if self.family == "pairwise":
            return torch.stack([model(user, batch.columns["neg_item_id"]), score], 1)
        return torch.stack([torch.zeros_like(score), score], 1)

    def arithmetic(self, model: nn.Module) -> AbstractContextManager[None]:
        """Float32 throughout."""
        return nullcontext()

    def retrain(self, without: IntArray, *, seed: int, progress: bool = False) -> nn.Module:
        """Train anew without the interactions of ``without``."""
        return self._train(~torch.isin(self._user, torch.as_tensor(without)), seed)

    def population_rows(self, model: nn.Module, entities: IntArray) -> nn.Module:
        """Copy with the mean of all other users' vectors in the rows of ``entities``."""
        changed = copy.deepcopy(model)
        weight = changed.get_parameter("user_embedding.weight").data
        inside = torch.zeros(len(weight), dtype=torch.bool)
        inside[torch.as_tensor(entities)] = True
        weight[inside] = mean_of_others(weight, inside)
        return changed

    def hints(self) -> PlanHints:
        """Plain tables: one field, all rows, no padding."""
        return PlanHints()

    def covariates(self) -> Mapping[str, NDArray[np.float64]]:
        """``mean_item_popularity``: how many users consumed a user's items, averaged; NaN without any."""
        popularity = self.consumed.sum(0).astype(np.float64)
        with np.errstate(invalid="ignore"):
            return {"mean_item_popularity": self.consumed @ popularity / self.consumed.sum(1)}

    def describe(self) -> Mapping[str, object]:
        """Data and weights by content hash."""
        weights = {name: value.detach().numpy() for name, value in self.model.state_dict().items()}
        return {"family": self.family, "data": content_hash(self.consumed), "weights": content_hash(weights)}

    def _rows_of(self, entity: int, per_entity: int | None, seed: int) -> Tensor:
        rows = (self._user == entity).nonzero().squeeze(1)
        if per_entity is None or len(rows) <= per_entity:
            return rows
        lot = uniform(rows.numpy().astype(np.uint64), seed)
        return rows[torch.from_numpy(np.sort(np.argsort(lot, kind="stable")[:per_entity]))]

    def _batch(self, rows: Tensor, unseen: Tensor) -> Batch:
        columns = {"user_id": self._user[rows], "item_id": self._item[rows]}
        if self.family == "pairwise":
            columns["neg_item_id"] = unseen
        if self.family == "pointwise":
            columns["label"] = torch.ones(len(rows))
        return Batch(columns, self._user[rows])

    def _with_negatives(self, batch: Batch, unseen: Tensor) -> Batch:
        columns = {
            "user_id": batch.columns["user_id"].repeat(2),
            "item_id": torch.cat([batch.columns["item_id"], unseen]),
            "label": torch.cat([batch.columns["label"], torch.zeros(len(unseen))]),
        }
        return Batch(columns, batch.entity.repeat(2))

    def _column(self, batch: Batch) -> Tensor:
        if self.family == "softmax":
            return batch.columns["item_id"]
        if self.family == "pairwise":
            return torch.ones(len(batch), dtype=torch.long, device=batch.entity.device)
        return batch.columns["label"].long()

    def _fixed_negatives(self, rows: Tensor, seed: int) -> Tensor:
        lot = mix(rows.numpy().astype(np.uint64), seed)
        return self._nth_unseen(self._user[rows], torch.from_numpy((lot >> np.uint64(33)).astype(np.int64)))

    def _random_negatives(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        return self._nth_unseen(self._user[rows], torch.randint(1 << 30, (len(rows),), generator=generator))

    def _nth_unseen(self, user: Tensor, number: Tensor) -> Tensor:
        unseen = torch.from_numpy(~self.consumed)
        order = unseen.byte().argsort(dim=1, descending=True, stable=True)
        return order[user, number % unseen.sum(1)[user]]

    def _train_on(self, kept: NDArray[np.bool_], seed: int, effort: float) -> nn.Module:
        return self._train(torch.from_numpy(kept), seed, max(1, round(self.epochs * effort)))

    def _mean_of(self, models: Sequence[nn.Module]) -> nn.Module:
        """Weighted dot products add up: vectors side by side."""
        model = DotProduct(len(self.entities), self.n_items, self.size * len(models), 0)
        parts = [dict(m.named_parameters()) for m in models]
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                values = tuple(p[name] for p in parts)
                bias = name == "out.bias"
                parameter.copy_(torch.stack(values).mean(0) if bias else torch.cat(values, 1))
            model.out.weight /= len(models)
        return model

    def _train(self, kept: Tensor, seed: int, epochs: int | None = None) -> nn.Module:
        model = DotProduct(len(self.entities), self.n_items, self.size, seed)
        generator = torch.Generator().manual_seed(seed)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=1e-3)
        rows = kept.nonzero().squeeze(1)
        for _ in range(self.epochs if epochs is None else epochs):
            unseen = self._random_negatives(rows, generator)
            batch = self._batch(rows, unseen)
            if self.family == "pointwise":
                batch = self._with_negatives(batch, unseen)
            loss = -self.log_likelihood(model, batch).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        model.zero_grad()
        return model.eval()
