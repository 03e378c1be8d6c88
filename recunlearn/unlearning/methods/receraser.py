"""RecEraser: similar users (or interactions) share a shard; an attentive mixture of the shards' vectors."""

from typing import ClassVar, Literal

from pydantic import Field

from recunlearn.foundation.errors import UsageError
from recunlearn.subjects.contract import IntArray
from recunlearn.subjects.parts import PartSubject
from recunlearn.unlearning.shards.aggregator import own_parameters, side_by_side
from recunlearn.unlearning.shards.mixing import Mixing, Recipe, mix
from recunlearn.unlearning.shards.partition import by_interactions, by_users, interactions_at_random
from recunlearn.unlearning.shards.sharded import OF_ORIGINAL, Combined, Request, Sharded, ShardSettings


class RecEraserSettings(ShardSettings):
    """Shards, and the aggregator's training."""

    partition: Literal["ubp", "inbp", "random"] = "ubp"
    """Similar users together, similar interactions together, or interactions dealt out at random."""
    aggregator_steps: int = Field(default=1000, ge=1)
    """Steps of an aggregator that starts from nothing."""
    aggregator_rate: float = Field(default=3e-3, gt=0)
    """Adam's learning rate of the aggregator."""
    aggregator_batch: int = Field(default=8192, ge=1)
    """Interactions in a step of the aggregator."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """Probability that a shard is left out of a row's mixture in a step of the aggregator's training."""
    warm_start: bool = True
    """After a deletion the aggregator starts from the original's weights, else from nothing."""
    warm_steps: int = Field(default=60, ge=1)
    """Steps of an aggregator that starts from the original's weights."""


class RecEraser(Sharded):
    """Sub-models of similar users, and an aggregator that is trained on all that is left.

    Source: arXiv 2201.06820. Deviations (docs/methods/receraser.md): the vectors that are partitioned are the
    original model's own; all sub-models begin from the same weights; layers of a model that are no vectors
    are shared and trained with the aggregator.
    """

    name: ClassVar[str] = "RecEraser"
    settings_type: ClassVar[type[ShardSettings]] = RecEraserSettings

    @property
    def starts_from_original(self) -> bool:
        """As set."""
        return bool(self.settings.warm_start)

    def partition(self, subject: PartSubject, owner: IntArray, item: IntArray) -> IntArray:
        """By the vectors of the subject's model."""
        s = self.settings
        # First of all: a model without vectors is refused before anything is trained.
        found = subject.vectors(subject.model)
        if s.partition == "random":
            return interactions_at_random(owner, s.shards, seed=s.partition_seed)
        users = side_by_side(found.model, found.entities).double().cpu().numpy()
        if s.partition == "ubp":
            return by_users(owner, users, s.shards, seed=s.partition_seed)
        if not found.items:
            raise UsageError(
                "partition = 'inbp' needs vectors of items, which this model has not. Use partition = 'ubp'."
            )
        items = side_by_side(found.model, found.items).double().cpu().numpy()
        return by_interactions(owner, item, users, items, s.shards, seed=s.partition_seed)

    def combine(self, request: Request, before: Request | None) -> Combined:
        """Train the aggregator, or read it back."""
        start = None if before is None else self._mix(before, None)
        done = self._mix(request, start)
        numbers = sum(p.numel() for p in done.aggregator.parameters() if p.requires_grad)
        model = request.subject.population_rows(done.aggregator.plain(), request.absent).eval()
        return Combined(model, done.steps, numbers, done.seconds, done.diverged, done.history)

    def _mix(self, request: Request, start: Mixing | None) -> Mixing:
        title = f"{self.name}: aggregator{'' if len(request.forget) else OF_ORIGINAL}"
        return mix(request, self._recipe(warm=start is not None), start, title)

    def combining(self, subject: PartSubject, forget: IntArray) -> tuple[str, int, int]:
        """Training of the aggregator on what is left."""
        warm = self.settings.warm_start
        recipe = self._recipe(warm=warm)
        how = "from the original's weights" if warm else "from nothing"
        words = f", and then trains its aggregator {how} in {recipe.steps:,} steps"
        return words, own_parameters(subject.vectors(subject.model), self.settings.shards), recipe.steps

    def _recipe(self, *, warm: bool) -> Recipe:
        s = self.settings
        steps = s.warm_steps if warm else s.aggregator_steps
        return Recipe(steps, s.dropout, s.aggregator_batch, s.aggregator_rate)
