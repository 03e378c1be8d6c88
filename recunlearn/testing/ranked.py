"""What the evaluation asks of a recommender, for worlds whose model scores any user and item."""

import copy
from collections.abc import Mapping
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recunlearn.evaluation.ranking import per_user_metrics
from recunlearn.subjects.contract import Batch, IntArray
from recunlearn.subjects.population import mean_of_others

KS = (10, 20)
USERS = "user_embedding.weight"


class RankedWorld:
    """Mixin: a world with ``consumed`` and ``relevant`` and a model with a table ``user_embedding``.

    ``consumed``: ``[n_users, n_items]`` bool, the training data. ``relevant``: what each user would like
    besides: the test part.
    """

    model: nn.Module
    consumed: NDArray[np.bool_]
    relevant: NDArray[np.bool_]

    @cached_property
    def items(self) -> NDArray[np.str_]:
        """``item-000`` and so on."""
        return np.array([f"item-{n:03d}" for n in range(self.consumed.shape[1])])

    def interactions(self) -> tuple[IntArray, IntArray]:
        """Consumed pairs."""
        user, item = np.nonzero(self.consumed)
        return user.astype(np.int64), item.astype(np.int64)

    def item_scores(self, model: nn.Module, entities: IntArray) -> Tensor:
        """See :class:`~recunlearn.subjects.contract.Recommender`."""
        users, items = torch.as_tensor(np.asarray(entities)), torch.arange(self.consumed.shape[1])
        with torch.no_grad():
            scores: Tensor = model(users[:, None], items[None, :])
        return scores

    def quality(self, model: nn.Module) -> Mapping[str, NDArray[np.float64]]:
        """Recall and NDCG of the relevant items among those not consumed."""
        n = len(self.consumed)
        scores = self.item_scores(model, np.arange(n)).double().numpy()
        order = np.argsort(-np.where(self.consumed, -np.inf, scores), axis=1, kind="stable")[:, : max(KS)]
        relevant = self.relevant & ~self.consumed
        values = per_user_metrics(np.take_along_axis(relevant, order, 1), relevant.sum(1), KS)
        return {k: v for k, v in values.items() if k.startswith(("recall", "ndcg"))}

    def user_vectors(self, model: nn.Module) -> Tensor | None:
        """Rows of the user table."""
        return model.get_parameter(USERS).detach()

    def free_rows(self, model: nn.Module, entities: IntArray) -> tuple[nn.Module, list[nn.Parameter]] | None:
        """See :class:`~recunlearn.subjects.contract.Recommender`."""
        free = copy.deepcopy(model)
        for parameter in free.parameters():
            parameter.requires_grad_(False)
        table = free.get_parameter(USERS)
        inside = torch.zeros(len(table), dtype=torch.bool)
        inside[torch.as_tensor(np.asarray(entities))] = True
        table.data[inside] = mean_of_others(table.data, inside)
        table.requires_grad_(True).register_hook(lambda grad: grad * inside[:, None])
        return free, [table]

    def without_history(self, model: nn.Module, batch: Batch) -> tuple[nn.Module, Batch] | None:
        """No model here reads a history."""
        return None
