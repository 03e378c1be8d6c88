"""How good a model is on the validation or test part: full ranking, or AUC and log loss with labels."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from recunlearn.evaluation.ranking import auc, log_loss
from recunlearn.foundation.store import content_hash
from recunlearn.subjects.recbole.bundle import Bundle
from recunlearn.subjects.recbole.compat import ModelType
from recunlearn.subjects.recbole.ranking import RankingTask, labelled_metrics, predictions


def main_metric(bundle: Bundle) -> str:
    """Name of the figure that training is stopped by."""
    return "auc" if bundle.labelled else "ndcg@10"


def evaluate(bundle: Bundle, model: nn.Module, phase: str) -> dict[str, float]:
    """Metrics of the "valid" or "test" part (empty without rows); keeps the model's mode, draws nothing."""
    part = getattr(bundle, phase)
    if not len(part):
        return {}
    return labelled_metrics(model, part) if bundle.labelled else _task(bundle, phase).evaluate(model)


def per_user(
    bundle: Bundle, model: nn.Module, users: NDArray[np.int64] | None = None
) -> dict[str, NDArray[np.float64]]:
    """Metrics of the test part by user, in the order of ``bundle.users``: name -> ``[n]``, NaN without rows.

    Rankings: Recall and NDCG at 10 and 20. Labels: each user's log loss, and AUC where both labels occur.
    ``users`` (from 0) spares the ranking for all others, who are NaN or, in sequential and labelled models,
    measured all the same.
    """
    if not len(bundle.test):
        return {}
    if bundle.labelled:
        return _labelled_per_user(bundle, model)
    task = _task(bundle, "test") if users is None else _task_of_some(bundle, users)
    table = task.per_user(model)
    names = [c for c in table.columns if c.startswith(("recall@", "ndcg@"))]
    return {c: _by_user(task.user - 1, table[c].to_numpy(), len(bundle.users)) for c in names}


def _by_user(owner: NDArray[np.int64], values: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Mean of each user's rows: ``[m] -> [n]``; NaN without one."""
    total, count = np.bincount(owner, weights=values, minlength=n), np.bincount(owner, minlength=n)
    mean: NDArray[np.float64] = np.divide(total, count, out=np.full(n, np.nan), where=count > 0)
    return mean


def _labelled_per_user(bundle: Bundle, model: nn.Module) -> dict[str, NDArray[np.float64]]:
    owner = bundle.test.inter_feat["user_id"].numpy() - 1
    label = bundle.test.inter_feat["label"].numpy()
    scores, n = predictions(model, bundle.test), len(bundle.users)
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=n))
    rows = [order[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    return {
        "auc": np.array([auc(scores[r], label[r]) if len(r) else np.nan for r in rows]),
        "logloss": np.array([log_loss(scores[r], label[r]) if len(r) else np.nan for r in rows]),
    }


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


def _task_of_some(bundle: Bundle, users: NDArray[np.int64]) -> RankingTask:
    """Ranking of the test part for some users."""
    if bundle.config["MODEL_TYPE"] == ModelType.SEQUENTIAL:
        return _task(bundle, "test")
    name = f"test of {content_hash(users)}"
    if name not in bundle.tasks:
        user, item = (bundle.test.inter_feat[c].numpy() for c in ("user_id", "item_id"))
        some = np.isin(user - 1, users)
        pairs = user[some], item[some]
        bundle.tasks[name] = RankingTask(bundle.train, bundle.valid, bundle.test, "test", positives=pairs)
    return bundle.tasks[name]


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
