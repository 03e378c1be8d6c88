"""Full-ranking evaluation on data sets that RecBole built, and evaluation of labelled rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recunlearn.evaluation.ranking import auc, log_loss, mean_metrics, per_user_metrics
from recunlearn.foundation.arrays import distinct
from recunlearn.subjects.recbole.compat import Interaction, ModelType, quiet
from recunlearn.subjects.recbole.pair_scores import SHARED_TILE, ItemScores, Scorer
from recunlearn.subjects.recbole.scoring import clear_caches

KS = (10, 20)
Phase = Literal["train", "valid", "test"]
_CELLS = 1 << 20
_LABELLED_ROWS = 1 << 14


class RankingTask:
    """What is ranked and what is relevant, prepared once and used for every model.

    General and context-aware models: one row per user of the phase; items that the user has interacted with
    up to the phase are masked unless they are relevant now. Sequential models: one row per sample, nothing
    masked. Both as in RecBole's ``FullSortEvalDataLoader``.

    Args:
        train, valid, test: RecBole's built data sets.
        phase: the data set whose interactions are relevant.
        masked: leave known items out of the ranking; False to ask where forgotten items would be ranked.
        positives: relevant pairs instead of the phase's: internal user and item numbers, ``[n]`` each.
    """

    def __init__(
        self,
        train: Any,
        valid: Any,
        test: Any,
        phase: Phase = "valid",
        *,
        masked: bool = True,
        positives: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    ) -> None:
        parts = {"train": train, "valid": valid, "test": test}
        self.dataset = parts[phase]
        self.n_items = int(self.dataset.item_num)
        self.counts = np.bincount(_column(train, train.iid_field), minlength=self.n_items)
        if self.dataset.config["MODEL_TYPE"] == ModelType.SEQUENTIAL:
            if positives is not None:
                raise ValueError("Sequential models rank one item per sample: positives cannot be given.")
            self._rows_are_samples()
            return
        self.group = max(int(self.dataset.config["eval_batch_size"] or 0) // self.n_items, 1)
        self._rows_are_users(positives or _pairs(self.dataset))
        if masked and not self.dataset.config["repeatable"]:
            known = [_pairs(parts[p]) for p in list(parts)[: list(parts).index(phase) + 1]]
            users, items = (np.concatenate(side) for side in zip(*known, strict=True))
            self.mask = np.setdiff1d(distinct(self._keys(users, items)), self.relevant, assume_unique=True)

    def __len__(self) -> int:
        """Return the number of ranked rows: users, or samples of sequential models."""
        return len(self.user)

    def evaluate(self, model: nn.Module, ks: Sequence[int] = KS) -> dict[str, float]:
        """Mean Recall, NDCG, MRR, Hit and Precision at every k, such as ``"ndcg@10"``; NaN without rows.

        Ties: in the order in which ``torch.topk`` leaves them, as RecBole.
        """
        return mean_metrics(per_user_metrics(self._hits(model, max(ks)), self.sizes, ks))

    def per_user(self, model: nn.Module, ks: Sequence[int] = KS) -> pd.DataFrame:
        """Return the metrics of each row: external ``user_id``, then one column per metric and k."""
        values = per_user_metrics(self._hits(model, max(ks)), self.sizes, ks)
        return pd.DataFrame({"user_id": self._tokens(self.dataset.uid_field, self.user), **values})

    def ranks(self, model: nn.Module) -> pd.DataFrame:
        """Rank (from 1) of every relevant item among those not masked: ``user_id``, ``item_id``, ``rank``."""
        found = []
        with evaluating(model):
            for start, scores, relevant in self._scored(self._scorer(model)):
                order = scores.argsort(dim=1, descending=True, stable=True)
                places = torch.arange(self.n_items, device=order.device).expand_as(order)
                rank = torch.empty_like(order).scatter_(1, order, places)
                found.append(rank.view(-1)[relevant - start * self.n_items].cpu().numpy() + 1)
        row, item = np.divmod(self.relevant, self.n_items)
        return pd.DataFrame(
            {
                "user_id": self._tokens(self.dataset.uid_field, self.user[row]),
                "item_id": self._tokens(self.dataset.iid_field, item),
                "rank": np.concatenate(found) if found else np.zeros(0, dtype=np.int64),
            }
        )

    def popularity_metrics(self, ks: Sequence[int] = KS) -> dict[str, float]:
        """The same metrics for the ranking by training interactions (ties: the smaller item number first)."""
        order = np.lexsort((np.arange(self.n_items), -self.counts))
        scores = np.empty(self.n_items, dtype=np.float32)
        scores[order] = np.arange(self.n_items, 0, -1)
        return self.evaluate(ItemScores(torch.from_numpy(scores)), ks)

    def _rows_are_samples(self) -> None:
        self.group = 0
        self.inputs = self.dataset[np.arange(len(self.dataset))]
        self.user = _column(self.dataset, self.dataset.uid_field)
        self.sizes = np.ones(len(self.user), dtype=np.int64)
        item = _column(self.dataset, self.dataset.iid_field)
        self.relevant = np.arange(len(item)) * self.n_items + item
        self.mask = np.zeros(0, dtype=np.int64)

    def _rows_are_users(self, positives: tuple[NDArray[np.int64], NDArray[np.int64]]) -> None:
        self.user = distinct(positives[0])
        uid = self.dataset.uid_field
        self.inputs = self.dataset.join(Interaction({uid: torch.from_numpy(self.user)}))
        self.relevant = distinct(self._keys(*positives))
        self.sizes = np.bincount(self.relevant // self.n_items, minlength=len(self.user))
        self.mask = np.zeros(0, dtype=np.int64)

    def _keys(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number the cells of the table rows x items; users without a row are dropped."""
        row = np.searchsorted(self.user, users)
        kept = self.user[np.minimum(row, len(self.user) - 1)] == users if len(self.user) else row < 0
        return row[kept] * self.n_items + items[kept]

    def _scorer(self, model: nn.Module) -> Scorer:
        return Scorer(model, self.inputs, self.dataset.get_item_feature(), self.group)

    def _tokens(self, name: str, numbers: NDArray[np.int64]) -> NDArray[Any]:
        return np.asarray(self.dataset.field2id_token[name], dtype=object)[numbers]

    def _scored(self, scorer: Any) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield first row, masked scores ``[r, n_items]`` and the relevant cells of chunks of rows."""
        step = max(1, _CELLS // self.n_items)
        step -= step % SHARED_TILE[0] if step > SHARED_TILE[0] else 0
        for start in range(0, len(self), step):
            stop = min(start + step, len(self))
            scores = scorer(start, stop)
            scores[:, 0] = -torch.inf
            scores.view(-1)[
                self._cells(self.mask, start, stop, scores.device) - start * self.n_items
            ] = -torch.inf
            yield start, scores, self._cells(self.relevant, start, stop, scores.device)

    def _cells(self, keys: NDArray[np.int64], start: int, stop: int, device: torch.device) -> Tensor:
        low, high = np.searchsorted(keys, (start * self.n_items, stop * self.n_items))
        return torch.from_numpy(keys[low:high]).to(device)

    def _hits(self, model: nn.Module, k: int) -> NDArray[np.bool_]:
        """``[rows, k]`` whether the item at each rank is relevant."""
        hits = np.zeros((len(self), k), dtype=bool)
        k = min(k, self.n_items)
        with evaluating(model):
            scorer = self._scorer(model)
            for start, scores, cells in self._scored(scorer):
                relevant = torch.zeros_like(scores, dtype=torch.bool)
                relevant.view(-1)[cells - start * self.n_items] = True
                hits[start : start + len(scores), :k] = _top_hits(scorer, start, scores, relevant, k)
        return hits


def labelled_metrics(model: nn.Module, part: Any) -> dict[str, float]:
    """``auc`` and ``logloss`` over rows that carry their own label, as RecBole's labelled mode."""
    scores, labels = predictions(model, part), _column(part, part.label_field)
    return {"auc": auc(scores, labels), "logloss": log_loss(scores, labels)}


def predictions(model: nn.Module, part: Any) -> NDArray[np.float64]:
    """What the model predicts for every row of a data set: ``[n]``."""
    parameter = next(model.parameters(), None)
    device = "cpu" if parameter is None else parameter.device
    predict: Any = model.predict
    with evaluating(model):
        pieces = [
            predict(part[np.arange(start, min(start + _LABELLED_ROWS, len(part)))].to(device)).view(-1).cpu()
            for start in range(0, len(part), _LABELLED_ROWS)
        ]
    return torch.cat(pieces).double().numpy() if pieces else np.zeros(0)


def _top_hits(scorer: Scorer, start: int, scores: Tensor, relevant: Tensor, k: int) -> NDArray[np.bool_]:
    """Hits of the top k; rows whose hits hang on rounding are scored again plainly."""
    top = scores.topk(min(k + 1, scores.shape[1]) if scorer.tolerance else k, dim=1)
    hits = relevant.gather(1, top.indices)
    if scorer.tolerance:
        rows = _doubtful(top.values, hits, scorer.tolerance).nonzero().view(-1)
        if len(rows):
            again = scorer.plain(rows.cpu() + start).masked_fill_(scores[rows] == -torch.inf, -torch.inf)
            hits[rows, :k] = relevant[rows].gather(1, again.topk(k, dim=1).indices)
    return hits[:, :k].cpu().numpy()


def _doubtful(values: Tensor, hits: Tensor, tolerance: float) -> Tensor:
    """Rows in which a swap of two scores closer than ``tolerance`` could change the hits: ``[r]`` bool.

    Swaps among relevant or among irrelevant items change nothing; the last pair stands for all below it.
    """
    close = values[:, :-1] - values[:, 1:] <= tolerance
    matters = hits[:, :-1] != hits[:, 1:]
    matters[:, -1] = True
    return (close & matters).any(1)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode without gradients and without stale caches; the model's mode is left as it was."""
    training = model.training
    model.eval()
    clear_caches(model)
    try:
        with torch.no_grad(), quiet():
            yield
    finally:
        clear_caches(model)
        model.train(training)


def _column(dataset: Any, name: str) -> NDArray[Any]:
    values: NDArray[Any] = dataset.inter_feat[name].numpy()
    return values


def _pairs(dataset: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return _column(dataset, dataset.uid_field), _column(dataset, dataset.iid_field)
