"""How good a model is on the validation or test part: full ranking, or AUC and log loss with labels."""

from typing import Any

import numpy as np
import torch
from torch import nn

from recunlearn.subjects.recbole.bundle import Bundle
from recunlearn.subjects.recbole.ranking import RankingTask, labelled_metrics


def main_metric(bundle: Bundle) -> str:
    """Name of the figure that training is stopped by."""
    return "auc" if bundle.labelled else "ndcg@10"


def evaluate(bundle: Bundle, model: nn.Module, phase: str) -> dict[str, float]:
    """Metrics of the "valid" or "test" part (empty without rows); keeps the model's mode, draws nothing."""
    part = getattr(bundle, phase)
    if not len(part):
        return {}
    return labelled_metrics(model, part) if bundle.labelled else _task(bundle, phase).evaluate(model)


def popularity(bundle: Bundle, phase: str) -> dict[str, float]:
    """The same metrics for the ranking by number of training interactions (by mean label with labels)."""
    part = getattr(bundle, phase)
    if not len(part):
        return {}
    if not bundle.labelled:
        return _task(bundle, phase).popularity_metrics()
    return labelled_metrics(_LikedShare(bundle), part)


def _task(bundle: Bundle, phase: Any) -> RankingTask:
    """Prepare the ranking of a phase once a bundle."""
    if phase not in bundle.tasks:
        bundle.tasks[phase] = RankingTask(bundle.train, bundle.valid, bundle.test, phase)
    return bundle.tasks[phase]


class _LikedShare(nn.Module):
    """Predicts an item's share of label 1 in training, with one more rating at the overall share."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__()
        item = bundle.train.inter_feat["item_id"].numpy()
        label = bundle.train.inter_feat["label"].numpy().astype(np.float64)
        size = len(bundle.items) + 1
        liked, count = np.bincount(item, weights=label, minlength=size), np.bincount(item, minlength=size)
        self.share = torch.from_numpy((liked + label.mean()) / (count + 1))

    def predict(self, interaction: Any) -> torch.Tensor:
        """``[B]``."""
        return self.share[interaction["item_id"]]
