"""Logits of some users for all items, from any RecBole model, and samples without a history."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recunlearn.subjects.contract import Batch, IntArray
from recunlearn.subjects.recbole.bundle import Bundle
from recunlearn.subjects.recbole.compat import Interaction
from recunlearn.subjects.recbole.pair_scores import Scorer
from recunlearn.subjects.recbole.ranking import evaluating
from recunlearn.subjects.recbole.scoring import gives_probabilities

HISTORY, LENGTH = "item_id_list", "item_length"
ROWS = "history_item_value"
_SUFFIX = "_list"


def item_scores(bundle: Bundle, model: nn.Module, users: IntArray) -> Tensor:
    """Logits ``[len(users), n_items]`` on the CPU; ``users`` counts from 0, the padding item is left out.

    A model that ends in a sigmoid, or returns a softmax, gives the scores before it (up to a constant).
    """
    inputs = _inputs(bundle, np.asarray(users, dtype=np.int64))
    with evaluating(model):
        scorer = Scorer(model, inputs, bundle.train.get_item_feature(), 0, raw=True)
        scores = scorer(0, len(inputs)).cpu()
        kind = gives_probabilities(model, _a_few(bundle)) if scorer.full_sort else ""
    if kind == "sigmoid":
        scores = scores.clamp(torch.finfo(scores.dtype).tiny, 1 - torch.finfo(scores.dtype).eps / 2).logit()
    elif kind == "softmax":
        scores = scores.clamp_min(torch.finfo(scores.dtype).tiny).log()
    return scores[:, 1:]


def without_history(model: nn.Module, batch: Batch) -> tuple[nn.Module, Batch] | None:
    """Model and samples with an empty history; None where none is read.

    Sequences: the samples' lists become one step of padding, the shortest that a model reads. Auto-encoders
    keep the input row of every user: those of the samples become zero in a copy.
    """
    if HISTORY in batch.columns:
        return model, Batch(_emptied(dict(batch.columns)), batch.entity)
    rows = getattr(model, ROWS, None)
    if not isinstance(rows, Tensor) or getattr(model, "user_embedding", None) is not None:
        return None
    other = copy.deepcopy(model)
    changed = rows.clone()
    changed[batch.columns["user_id"].unique().to(rows.device)] = 0
    setattr(other, ROWS, changed)
    return other, batch


def _emptied(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    lists = {k: torch.zeros_like(v) for k, v in columns.items() if k.endswith(_SUFFIX)}
    return {**columns, **lists, LENGTH: torch.ones_like(columns[LENGTH])}


def _inputs(bundle: Bundle, users: IntArray) -> Any:
    """Row of each user: id and features, or all that training knows as the history of the next item."""
    if HISTORY not in bundle.train.inter_feat:
        return bundle.train.join(Interaction({"user_id": torch.from_numpy(users + 1)}))
    parts = [p for p in (bundle.train, bundle.valid) if len(p)]
    owner = np.concatenate([p.inter_feat["user_id"].numpy() for p in parts])
    length = np.concatenate([p.inter_feat[LENGTH].numpy() for p in parts])
    # The history of a user's first row after training holds all of training; without such a row the longest
    # training history, which lacks the last item.
    phase = np.repeat(np.arange(len(parts)), [len(p) for p in parts])
    place = np.concatenate([np.arange(len(p)) for p in parts])
    order = np.lexsort((place * np.where(phase, -1, 1), length * (phase == 0), phase, owner))
    last = order[np.searchsorted(owner[order], users + 1, side="right") - 1]
    rows = [parts[phase[i]][np.array([place[i]])].interaction for i in last]
    known = owner[last] == users + 1
    columns = {k: torch.cat([r[k] for r in rows]) for k in rows[0]}
    if not known.all():
        idle = torch.from_numpy(~known)
        empty = _emptied(columns)
        columns = {
            k: torch.where(idle.view(-1, *[1] * (v.dim() - 1)), empty[k], v) for k, v in columns.items()
        }
    columns["user_id"] = torch.from_numpy(users + 1)
    return Interaction(columns)


def _a_few(bundle: Bundle) -> Any:
    return bundle.train[np.arange(min(4, len(bundle.train)))].interaction
