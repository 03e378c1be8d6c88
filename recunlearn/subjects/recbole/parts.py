"""Models of parts of the training data: trained, read back, and put together."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recunlearn.foundation.errors import UsageError
from recunlearn.subjects.contract import Batch
from recunlearn.subjects.recbole.bundle import Bundle
from recunlearn.subjects.recbole.compat import build_model, with_values
from recunlearn.subjects.recbole.scoring import clear_caches, gives_probabilities, raw_scores
from recunlearn.subjects.recbole.training import fit
from recunlearn.subjects.recbole.vectors import dot_factors, plain_model


def train_part(bundle: Bundle, rows: NDArray[np.bool_], *, seed: int, epochs: int, batch: float) -> nn.Module:
    """Train on the training rows marked in ``rows``, ``[n]`` in file order, from scratch."""
    size = max(1, round(bundle.config["train_batch_size"] * batch))
    config = with_values(bundle.config, seed=seed, train_batch_size=size)
    return fit(replace(_part(bundle, rows), config=config), epochs=epochs, patience=None).model


def load_part(bundle: Bundle, rows: NDArray[np.bool_], state: Mapping[str, Tensor]) -> nn.Module:
    """Model of these rows with stored weights; what a model keeps beside weights (a graph) is theirs."""
    part = _part(bundle, rows)
    model = build_model(part.config, part.train)
    model.load_state_dict(dict(state))
    clear_caches(model)
    return model.eval()


def _part(bundle: Bundle, rows: NDArray[np.bool_]) -> Bundle:
    if not rows.any():
        raise UsageError("A part without any interaction cannot be trained. Name fewer users.")
    return bundle.without(rows)


def mean_model(bundle: Bundle, models: Sequence[nn.Module], batch: Batch) -> nn.Module:
    """Model whose score is the mean of the models' raw scores.

    Dot products add up: the mean over k models of width d is one plain model of width k d, which everything
    that knows a BPR model can read. Other models stay apart in an :class:`Ensemble`.
    """
    factors = [dot_factors(bundle, m, batch) for m in models]
    tables = [f for f in factors if f is not None]
    if len(tables) == len(models):
        users, items = (torch.cat([t[side] for t in tables], dim=1) for side in (0, 1))
        return plain_model(bundle, users, items / len(models))
    return Ensemble(models, gives_probabilities(models[0], batch.columns)).eval()


class Ensemble(nn.Module):
    """Mean of the raw scores of several models, before a final sigmoid, which is applied last.

    Args:
        models: of one class, each with what it needs.
        ending: "sigmoid" where the models end in one, "softmax" where ``full_sort_predict`` does, else "".
    """

    def __init__(self, models: Sequence[nn.Module], ending: str) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self.ending = ending

    def predict(self, interaction: Any) -> Tensor:
        """``[B]``."""
        columns = interaction.interaction
        score = torch.stack([raw_scores(m, columns).reshape(-1) for m in self.models]).mean(0)
        return torch.sigmoid(score) if self.ending == "sigmoid" else score

    def full_sort_predict(self, interaction: Any) -> Tensor:
        """``[B * n_items]``; NotImplementedError where the models have none."""
        found = [self._all(m, interaction) for m in self.models]
        score = torch.stack(found).mean(0)
        return torch.sigmoid(score) if self.ending == "sigmoid" else score

    def _all(self, model: Any, interaction: Any) -> Tensor:
        clear_caches(model)
        scores: Tensor = model.full_sort_predict(interaction)
        if self.ending == "sigmoid":
            return scores.logit()
        return scores.clamp_min(torch.finfo(scores.dtype).tiny).log() if self.ending == "softmax" else scores
