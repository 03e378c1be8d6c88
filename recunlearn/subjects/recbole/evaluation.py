"""How good a model is on the validation or test part: full ranking, or AUC and log loss where rows have labels."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import nn

from recunlearn.subjects.recbole.bundle import KS, Bundle
from recunlearn.subjects.recbole.compat import Interaction, quiet
from recunlearn.subjects.recbole.scoring import clear_caches

_TILE = 1 << 18


def main_metric(bundle: Bundle) -> str:
    """Name of the figure that training is stopped by."""
    return "auc" if bundle.labelled else "ndcg@10"


def evaluate(bundle: Bundle, model: nn.Module, phase: str) -> dict[str, float]:
    """Metrics of the "valid" or "test" part; the mode of ``model`` is left as it was. No draw of randomness."""
    training = model.training
    model.eval()
    clear_caches(model)
    try:
        with torch.no_grad(), quiet():
            return _labelled(bundle, model, phase) if bundle.labelled else _ranking(bundle, model, phase)
    finally:
        clear_caches(model)
        model.train(training)


def popularity(bundle: Bundle, phase: str) -> dict[str, float]:
    """The same metrics for the ranking by number of training interactions (mean label where rows have labels)."""
    item = bundle.train.inter_feat["item_id"].numpy()
    count = np.bincount(item, minlength=len(bundle.items) + 1).astype(np.float64)
    if not bundle.labelled:
        return evaluate(bundle, _Constant(count), phase)
    label = bundle.train.inter_feat["label"].numpy().astype(np.float64)
    liked = np.bincount(item, weights=label, minlength=len(count))
    share = (liked + label.mean()) / (count + 1)
    part = getattr(bundle, phase)
    return label_metrics(share[part.inter_feat["item_id"].numpy()], part.inter_feat["label"].numpy())


class _Constant(nn.Module):
    """Every user sees the same scores."""

    def __init__(self, scores: NDArray[np.float64]) -> None:
        super().__init__()
        self.scores = torch.from_numpy(scores)

    def full_sort_predict(self, interaction: Any) -> torch.Tensor:
        """``[B * n_items]``."""
        return self.scores.repeat(len(interaction))


def _labelled(bundle: Bundle, model: Any, phase: str) -> dict[str, float]:
    part = getattr(bundle, phase)
    if not len(part):
        return {}
    device = bundle.config["device"]
    pieces = [
        model.predict(part[np.arange(start, min(start + _TILE, len(part)))].to(device)).cpu()
        for start in range(0, len(part), _TILE)
    ]
    return label_metrics(torch.cat(pieces).double().numpy(), part.inter_feat["label"].numpy())


def label_metrics(probability: NDArray[Any], label: NDArray[Any]) -> dict[str, float]:
    """AUC (ties count half) and log loss, ``[n]`` each.

    Source: Mann and Whitney's U; RecBole 1.2.1 clips probabilities to [1e-15, 1 - 1e-15] in its log loss.
    """
    probability, positive = probability.astype(np.float64), label > 0
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    clipped = np.clip(probability, 1e-15, 1 - 1e-15)
    loss = -np.where(positive, np.log(clipped), np.log1p(-clipped)).mean()
    if not n_positive or not n_negative:
        return {"auc": float("nan"), "logloss": float(loss)}
    ranks = rankdata(probability)[positive].sum()
    return {
        "auc": float((ranks - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative)),
        "logloss": float(loss),
    }


def _ranking(bundle: Bundle, model: Any, phase: str) -> dict[str, float]:
    part = getattr(bundle, phase)
    if not len(part):
        return {}
    n_items = len(bundle.items) + 1
    sequential = "item_id_list" in part.inter_feat
    item = part.inter_feat["item_id"].numpy()
    user = part.inter_feat["user_id"].numpy()
    groups = np.arange(len(part)) if sequential else user
    known = np.zeros((0, 2), dtype=np.int64) if sequential else _history(bundle, phase)
    hits, sizes = [], []
    step = max(1, _TILE // n_items)
    owners = np.unique(groups)
    for start in range(0, len(owners), step):
        chunk = owners[start : start + step]
        rows = chunk if sequential else np.searchsorted(user, chunk, sorter=np.argsort(user, kind="stable"))
        query = part[rows] if sequential else part[np.argsort(user, kind="stable")[rows]]
        scores = _scores(bundle, model, query, n_items)
        scores[:, 0] = -torch.inf
        relevant = torch.zeros(len(chunk), n_items, dtype=torch.bool)
        mine = np.isin(groups, chunk)
        relevant[np.searchsorted(chunk, groups[mine]), item[mine]] = True
        seen = known[np.isin(known[:, 0], chunk)]
        at = (np.searchsorted(chunk, seen[:, 0]), seen[:, 1])
        scores[at] = torch.where(relevant[at], scores[at], -torch.inf)
        top = scores.topk(min(max(KS), n_items), dim=1).indices
        hits.append(relevant.gather(1, top).numpy())
        sizes.append(relevant.sum(1).numpy())
    return ranking_metrics(np.concatenate(hits), np.concatenate(sizes))


def _history(bundle: Bundle, phase: str) -> NDArray[np.int64]:
    parts = [bundle.train] if phase == "valid" else [bundle.train, bundle.valid]
    return np.concatenate(
        [np.stack([p.inter_feat[c].numpy() for c in ("user_id", "item_id")], 1) for p in parts]
    )


def _scores(bundle: Bundle, model: Any, query: Any, n_items: int) -> torch.Tensor:
    device = bundle.config["device"]
    query = query.to(device)
    try:
        return model.full_sort_predict(query).reshape(len(query), n_items).cpu()
    except NotImplementedError:
        pass
    items = Interaction({"item_id": torch.arange(n_items)})
    if bundle.train.item_feat is not None:
        items.update(bundle.train.item_feat)
    wide = query.repeat_interleave(n_items)
    wide.update(items.to(device).repeat(len(query)))
    return model.predict(wide).reshape(len(query), n_items).cpu()


def ranking_metrics(hits: NDArray[np.bool_], sizes: NDArray[Any]) -> dict[str, float]:
    """NDCG, recall, hit rate, precision and MRR at every k, mean over users.

    Args:
        hits: ``[n, K]`` whether the item at each rank is relevant.
        sizes: ``[n]`` relevant items of each user (at least 1).
    """
    out: dict[str, float] = {}
    discount = 1 / np.log2(np.arange(hits.shape[1]) + 2)
    for k in KS:
        top = hits[:, :k]
        gain = (top * discount[:k]).sum(1)
        ideal = np.cumsum(discount)[np.minimum(sizes, top.shape[1]) - 1]
        first = np.where(top.any(1), 1 / (top.argmax(1) + 1), 0)
        values = {
            "ndcg": gain / ideal,
            "recall": top.sum(1) / sizes,
            "hit": top.any(1),
            "precision": top.sum(1) / k,
            "mrr": first,
        }
        out.update({f"{name}@{k}": float(v.mean()) for name, v in values.items()})
    return out
