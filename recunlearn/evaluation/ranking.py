"""Top-k ranking metrics and metrics of labelled predictions: pure functions of arrays.

Definitions and averages are those of RecBole 1.2.1 (``recbole.evaluator.metrics``), so that values compare.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

Hits = NDArray[np.bool_]
Counts = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]


def recall(hits: Hits, positives: Counts, k: int) -> Floats:
    """``|top-k ∩ positives| / |positives|`` of each user: [U].

    Args:
        hits: ``[U, K]``, True where the item at that rank is a positive; K >= k.
        positives: ``[U]`` positives of each user, those outside the top K included.
        k: cut-off.
    """
    return _ratio(hits[:, :k].sum(1), positives)


def precision(hits: Hits, positives: Counts, k: int) -> Floats:
    """``|top-k ∩ positives| / k`` of each user: [U]. NaN without positives."""
    return _ratio(hits[:, :k].sum(1), np.where(positives > 0, k, 0))


def hit(hits: Hits, positives: Counts, k: int) -> Floats:
    """1 where the top k holds a positive, else 0: [U]. NaN without positives."""
    return _ratio(hits[:, :k].max(1, initial=False), positives > 0)


def mrr(hits: Hits, positives: Counts, k: int) -> Floats:
    """``1 / rank`` of the first positive, 0 where it lies beyond k: [U]. NaN without positives."""
    top = hits[:, :k]
    reciprocal = np.where(top.any(1), 1.0 / (top.argmax(1) + 1.0), 0.0)
    return _ratio(reciprocal, positives > 0)


def ndcg(hits: Hits, positives: Counts, k: int) -> Floats:
    """``DCG / IDCG`` with gain 1 and discount ``1 / log2(rank + 1)``: [U]. NaN without positives.

    IDCG sums the discounts of the first ``min(k, |positives|)`` ranks.
    Source: Järvelin, Kekäläinen, "Cumulated gain-based evaluation of IR techniques", TOIS 2002.
    """
    discount = 1.0 / np.log2(np.arange(2, k + 2))
    ideal = np.concatenate(([0.0], np.cumsum(discount)))[np.minimum(positives, k)]
    return _ratio(hits[:, :k] @ discount[: hits[:, :k].shape[1]], ideal)


RANKING_METRICS: dict[str, Callable[[Hits, Counts, int], Floats]] = {
    "recall": recall,
    "ndcg": ndcg,
    "mrr": mrr,
    "hit": hit,
    "precision": precision,
}


def per_user_metrics(hits: Hits, positives: Counts, ks: Sequence[int]) -> dict[str, Floats]:
    """Every metric at every cut-off, such as ``"ndcg@10"``: name -> [U], NaN for users without positives."""
    if hits.ndim != 2 or len(hits) != len(positives):
        raise ValueError(f"Hits must be [U, K] for {len(positives)} users, but got {hits.shape}.")
    return {f"{name}@{k}": metric(hits, positives, k) for name, metric in RANKING_METRICS.items() for k in ks}


def mean_metrics(per_user: Mapping[str, Floats], empty: Literal["skip", "zero"] = "skip") -> dict[str, float]:
    """Mean of each metric over users.

    Args:
        per_user: what :func:`per_user_metrics` returns.
        empty: users without positives are left out (``skip``) or count as 0 (``zero``).

    Returns:
        Name -> mean; NaN if nobody is left.
    """
    means = {}
    for name, values in per_user.items():
        kept = values[~np.isnan(values)] if empty == "skip" else np.nan_to_num(values, nan=0.0)
        means[name] = float(kept.mean()) if len(kept) else float("nan")
    return means


def auc(scores: Floats, labels: Floats) -> float:
    """Probability that a positive scores above a negative, ties counting half; NaN if one class is absent.

    ``(sum of the positives' ranks - M (M + 1) / 2) / (M N)`` for M positives and N negatives, over all rows
    together (not averaged over users), as RecBole's AUC.
    """
    positive = np.asarray(labels) > 0
    m, n = int(positive.sum()), int((~positive).sum())
    if m == 0 or n == 0:
        return float("nan")
    ranks = rankdata(np.asarray(scores))
    return float((ranks[positive].sum() - m * (m + 1) / 2) / (m * n))


def log_loss(probabilities: Floats, labels: Floats, eps: float = 1e-15) -> float:
    """``-mean(y log p + (1 - y) log(1 - p))``, natural logarithm, p clipped into ``[eps, 1 - eps]``."""
    p = np.clip(np.asarray(probabilities, dtype=np.float64), eps, 1 - eps)
    y = np.asarray(labels, dtype=np.float64)
    return float(-np.mean(y * np.log(p) + (1 - y) * np.log(1 - p)))


def _ratio(numerator: NDArray[Any], denominator: NDArray[Any]) -> Floats:
    """Divide, NaN where the denominator is 0: users without positives have no value."""
    out = np.full(len(numerator), np.nan)
    np.divide(numerator, denominator, out=out, where=denominator != 0, casting="unsafe")
    return out
