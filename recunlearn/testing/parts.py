"""What unlearning by shards asks of a subject, for worlds whose model is a user table and more."""

import copy
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from recunlearn.subjects.contract import IntArray
from recunlearn.subjects.parts import Rows, Vectors

USERS, ITEMS = "user_embedding.weight", "item_embedding.weight"


class PartWorld:
    """Mixin: a world whose samples are the cells of ``consumed`` in order."""

    model: nn.Module
    consumed: NDArray[np.bool_]

    def pairs(self) -> tuple[IntArray, IntArray]:
        """Consumed pairs, user by user."""
        user, item = np.nonzero(self.consumed)
        return user.astype(np.int64), item.astype(np.int64)

    def train_on(
        self, kept: NDArray[np.bool_], *, seed: int, effort: float = 1.0, batch: float = 1.0
    ) -> nn.Module:
        """See :class:`~recunlearn.subjects.parts.PartSubject`; every step sees all samples anyway."""
        return self._train_on(kept, seed, effort)

    def _train_on(self, kept: NDArray[np.bool_], seed: int, effort: float) -> nn.Module:
        raise NotImplementedError

    def load_on(self, kept: NDArray[np.bool_], state: Mapping[str, Tensor]) -> nn.Module:
        """All is in the weights."""
        model = copy.deepcopy(self.model)
        model.load_state_dict(dict(state))
        return model.eval()

    def vectors(self, model: nn.Module) -> Vectors:
        """The user table, and the item table where there is one."""
        parameters = dict(model.named_parameters())
        found = [
            (Rows(name, 0, len(parameters[name])),) if name in parameters else () for name in (USERS, ITEMS)
        ]
        return Vectors(model, *found)

    def ensemble(self, models: Sequence[nn.Module]) -> nn.Module:
        """See :class:`~recunlearn.subjects.parts.PartSubject`."""
        return self._mean_of(models).eval()

    def _mean_of(self, models: Sequence[nn.Module]) -> nn.Module:
        raise NotImplementedError
