"""A linear recommender whose unlearning has a closed form, so that the hardest users are known beforehand."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recunlearn.foundation.seeds import uniform
from recunlearn.foundation.store import content_hash
from recunlearn.foundation.words import Words
from recunlearn.subjects.contract import Batch, IntArray, PlanHints, Predictions
from recunlearn.subjects.population import mean_of_others
from recunlearn.testing.parts import PartWorld
from recunlearn.testing.ranked import RankedWorld


class LinearScore(nn.Module):
    """Score of a user and an item: the user's vector times the item's fixed features."""

    def __init__(self, weight: Tensor, features: Tensor) -> None:
        """Take user vectors ``[U, d]`` (trainable) and item features ``[I, d]`` (fixed)."""
        super().__init__()
        self.user_embedding = nn.Embedding.from_pretrained(weight.clone(), freeze=False)
        self.item_features = nn.Embedding.from_pretrained(features.clone(), freeze=True)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """``[B], [B] -> [B]``."""
        return (self.user_embedding(user) * self.item_features(item)).sum(-1)


class LinearWorld(RankedWorld, PartWorld):
    """Fragile and sturdy users, alike in everything but the direction and length of their items' features.

    Every user consumes the items of one kind; all items of a kind have the features x, and the user's vector
    is margin · x / ‖x‖², so that every interaction of every user scores ``margin``: the loss before, the
    activity and the popularity are the same for all. An unlearning method that takes sign steps of size η
    (Adam's first steps) lowers the score by η ‖x‖₁ a step, so after T steps

        increase of loss = softplus(η T ‖x‖₁ − margin) − softplus(−margin),

    which grows with ‖x‖₁ alone. Fragile users (first half) have long features in the first block of
    dimensions, sturdy users short ones in the second. A circuit (strength by dimension) shows the block; its
    total, the margin, is the same for all.

    Args:
        n_users: even.
        kinds: kinds of items on each side, of growing length.
        items: items of a kind, all consumed by its users.
        size: dimensions of a block.
        margin: score of every consumed item.
        seed: of the features' directions.
    """

    family = "pointwise"
    words = Words()

    def __init__(
        self,
        n_users: int = 48,
        *,
        kinds: int = 4,
        items: int = 5,
        size: int = 6,
        margin: float = 2.0,
        seed: int = 0,
    ) -> None:
        """Make the features and the closed-form solution."""
        self.entities = np.array([f"user-{n:03d}" for n in range(n_users)])
        self.fragile = np.arange(n_users) < n_users // 2
        self.of_a_kind = items
        self.kind = np.where(self.fragile, np.arange(n_users) % kinds, kinds + np.arange(n_users) % kinds)
        features = _features(kinds, size, seed)
        of_user = features[self.kind]
        self.length = np.abs(of_user).sum(1)
        vectors = margin * of_user / (of_user**2).sum(1, keepdims=True)
        self.model: nn.Module = LinearScore(
            torch.from_numpy(vectors).float(), torch.from_numpy(np.repeat(features, items, axis=0)).float()
        ).eval()
        self.margin = margin
        kinds_of_items = np.repeat(np.arange(len(features)), items)
        self.consumed: NDArray[np.bool_] = self.kind[:, None] == kinds_of_items[None, :]
        self.relevant: NDArray[np.bool_] = np.zeros_like(self.consumed)

    def increase(self, step: float, steps: int) -> NDArray[np.float64]:
        """Increase of every user's loss after ``steps`` sign steps of size ``step``: ``[n]``."""
        lowered = step * steps * self.length - self.margin
        result: NDArray[np.float64] = np.logaddexp(0.0, lowered) - np.logaddexp(0.0, -self.margin)
        return result

    def circuits(self) -> NDArray[np.float64]:
        """Strength of every dimension on every user's score, weight times feature: ``[n, 2 size]``."""
        weight = self.model.get_parameter("user_embedding.weight").detach().double().numpy()
        features = self.model.get_parameter("item_features.weight").double().numpy()
        strength: NDArray[np.float64] = weight * features[self.kind * self.of_a_kind]
        return strength

    def n_samples(self) -> IntArray:
        """Interactions of each user."""
        return np.full(len(self.entities), self.of_a_kind, dtype=np.int64)

    def batches(
        self,
        entities: IntArray | None = None,
        *,
        batch_size: int,
        per_entity: int | None = None,
        seed: int = 0,
    ) -> Iterator[Batch]:
        """See :class:`~recunlearn.subjects.contract.Subject`."""
        wanted = np.arange(len(self.entities)) if entities is None else np.asarray(entities, dtype=np.int64)
        user = np.repeat(wanted, self.of_a_kind)
        place = np.tile(np.arange(self.of_a_kind), len(wanted))
        if per_entity is not None and per_entity < self.of_a_kind:
            lot = uniform((user * self.of_a_kind + place).astype(np.uint64), seed).reshape(-1, self.of_a_kind)
            kept = (lot.argsort(1).argsort(1) < per_entity).reshape(-1)
            user, place = user[kept], place[kept]
        for first in range(0, len(user), batch_size):
            yield self._positives(user[first : first + batch_size], place[first : first + batch_size])

    def draw(
        self, entities: IntArray, size: int, generator: torch.Generator, *, negatives: bool = False
    ) -> Batch:
        """See :class:`~recunlearn.subjects.contract.Subject`; one negative, of another kind, a positive."""
        lot = torch.randint(1 << 30, (3, size), generator=generator).numpy()
        user = np.asarray(entities, dtype=np.int64)[lot[0] % len(entities)]
        batch = self._positives(user, lot[1] % self.of_a_kind)
        if not negatives:
            return batch
        n_items = self.of_a_kind * (self.kind.max() + 1)
        other = (
            self.kind[user] * self.of_a_kind + self.of_a_kind + lot[2] % (n_items - self.of_a_kind)
        ) % n_items
        columns = {
            "user_id": batch.columns["user_id"].repeat(2),
            "item_id": torch.cat([batch.columns["item_id"], torch.from_numpy(other)]),
            "label": torch.cat([batch.columns["label"], torch.zeros(size)]),
        }
        return Batch(columns, batch.entity.repeat(2))

    def log_likelihood(self, model: nn.Module, batch: Batch) -> Tensor:
        """``[B]``: log sigma(s), or log sigma(-s) for a negative."""
        sign = 2 * batch.columns["label"] - 1
        return nn.functional.logsigmoid(sign * model(batch.columns["user_id"], batch.columns["item_id"]))

    def class_scores(self, model: nn.Module, batch: Batch) -> Tensor:
        """``[B, 2]``: 0 and the score."""
        score = model(batch.columns["user_id"], batch.columns["item_id"])
        return torch.stack([torch.zeros_like(score), score], 1)

    def predictions(self, batch: Batch) -> Predictions:
        """One a sample: the label."""
        return Predictions(torch.arange(len(batch)), batch.columns["label"].long())

    def arithmetic(self, model: nn.Module) -> AbstractContextManager[None]:
        """Float32 throughout."""
        return nullcontext()

    def retrain(self, without: IntArray, *, seed: int, progress: bool = False) -> nn.Module:
        """Users are independent, so retraining gives the same vectors, and zeros to ``without``."""
        model = copy.deepcopy(self.model)
        model.get_parameter("user_embedding.weight").data[torch.as_tensor(without)] = 0.0
        return model

    def _train_on(self, kept: NDArray[np.bool_], seed: int, effort: float) -> nn.Module:
        present = np.zeros(len(self.entities), dtype=bool)
        present[np.nonzero(self.consumed)[0][kept]] = True
        return self.retrain(np.flatnonzero(~present), seed=seed)

    def _mean_of(self, models: Sequence[nn.Module]) -> nn.Module:
        """All models have the same items, so the mean of the vectors scores the mean."""
        model = copy.deepcopy(models[0])
        weights = [m.get_parameter("user_embedding.weight").data for m in models]
        model.get_parameter("user_embedding.weight").data = torch.stack(weights).mean(0)
        return model

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
        """``mean_item_popularity``: users of the same kind, who all consume the same items."""
        return {"mean_item_popularity": np.bincount(self.kind)[self.kind].astype(np.float64)}

    def describe(self) -> Mapping[str, object]:
        """Weights by content hash."""
        weights = {name: value.detach().numpy() for name, value in self.model.state_dict().items()}
        return {"family": self.family, "weights": content_hash(weights), "items": self.of_a_kind}

    def _positives(self, user: IntArray, place: IntArray) -> Batch:
        owner = torch.from_numpy(user)
        item = torch.from_numpy(self.kind[user] * self.of_a_kind + place)
        return Batch({"user_id": owner, "item_id": item, "label": torch.ones(len(owner))}, owner)


def _features(kinds: int, size: int, seed: int) -> NDArray[np.float64]:
    """Features of every kind ``[2 kinds, 2 size]``: fragile 1.5 to 2, sturdy 0.5 to 1 times a direction."""
    generator = np.random.default_rng(seed)
    block = generator.uniform(0.7, 1.3, (2, kinds, size))
    growth = 0.5 + 0.5 * np.arange(kinds) / max(kinds - 1, 1)
    features = np.zeros((2 * kinds, 2 * size))
    for side, shift in ((0, 1.0), (1, 0.0)):
        unit = block[side] / block[side].sum(1, keepdims=True) * size
        features[side * kinds : (side + 1) * kinds, side * size : (side + 1) * size] = (
            unit * (growth + shift)[:, None]
        )
    return features
