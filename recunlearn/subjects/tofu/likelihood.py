"""Scores of answer tokens: prompt and padding count nowhere.

Rows are filled up at their end, and a causal model's token never reads what comes after it, so no attention
mask is needed: what stands at the filled-up places reaches no answer, however far attention reads back.
Models that are not causal are refused where training begins (``refuse_reading_ahead``).
"""

import inspect

import torch
from torch import Tensor, nn
from torch.nn import functional

from recunlearn.subjects.contract import Batch, Predictions


def answer_places(batch: Batch) -> Tensor:
    """Places whose next token belongs to the answer: ``[B, T]`` bool."""
    at = torch.arange(batch.columns["tokens"].shape[1], device=batch.entity.device)
    return (at >= batch.columns["prompt"][:, None] - 1) & (at < batch.columns["length"][:, None] - 1)


def predictions(batch: Batch) -> Predictions:
    """Every answer token, sample by sample."""
    places = answer_places(batch)
    sample = places.nonzero()[:, 0]
    return Predictions(sample, batch.columns["tokens"][:, 1:][places[:, :-1]])


def answer_scores(model: nn.Module, batch: Batch) -> Tensor:
    """Logits over the vocabulary for every answer token: ``[P, V]``."""
    places = answer_places(batch)
    first = int(batch.columns["prompt"].min()) - 1
    options = {"logits_to_keep": places.shape[1] - first} if _keeps(model) else {}
    logits: Tensor = model(input_ids=batch.columns["tokens"], use_cache=False, **options).logits
    return logits[:, -(places.shape[1] - first) :][places[:, first:]]


def mean_log_likelihood(model: nn.Module, batch: Batch) -> Tensor:
    """Mean over the tokens of each answer of log softmax at the token: ``[B]``."""
    told = predictions(batch)
    each = -functional.cross_entropy(answer_scores(model, batch), told.column, reduction="none")
    total = each.new_zeros(len(batch)).index_add(0, told.sample, each)
    return total / (batch.columns["length"] - batch.columns["prompt"])


def _keeps(model: nn.Module) -> bool:
    """Whether a model can leave out the logits of the first tokens."""
    return "logits_to_keep" in inspect.signature(model.forward).parameters


__all__ = ["answer_scores", "mean_log_likelihood", "predictions"]
