"""SISA: users dealt out to shards at random, a model each, and the mean of their scores."""

from typing import ClassVar

from recunlearn.subjects.contract import IntArray
from recunlearn.subjects.parts import PartSubject
from recunlearn.unlearning.shards.partition import at_random
from recunlearn.unlearning.shards.sharded import Combined, Request, Sharded, ShardSettings


class SISASettings(ShardSettings):
    """Shards, and nothing else."""


class SISA(Sharded):
    """Score = mean of the sub-models' raw scores; works for every model.

    A user is a stranger to all shards but one and gets their answers to an unknown user: the population's
    vector.

    Source: Bourtoule et al., "Machine Unlearning", arXiv 1912.03817, without slices; the mean of scores in
    place of a vote, as items are ranked and not classified.
    """

    name: ClassVar[str] = "SISA"
    settings_type: ClassVar[type[ShardSettings]] = SISASettings
    plain: ClassVar[bool] = False

    def partition(self, subject: PartSubject, owner: IntArray, item: IntArray) -> IntArray:
        """All samples of a user in one shard."""
        return at_random(owner, self.settings.shards, seed=self.settings.partition_seed)

    def combine(self, request: Request, before: Request | None) -> Combined:
        """Mean; nothing is trained."""
        strangers = ~request.seen(request.owner, len(request.subject.entities))
        models = [
            request.subject.population_rows(model, absent.nonzero()[0])
            for model, absent in zip(request.models(), strangers, strict=True)
        ]
        return Combined(request.subject.ensemble(models).eval())

    def combining(self, subject: PartSubject, forget: IntArray) -> tuple[str, int, int]:
        """Nothing."""
        return "", 0, 0
