"""Scores of answer tokens: prompt and padding count nowhere.

Rows are filled up at their end, and a causal model's token never reads what comes after it, so no attention
mask is needed: what stands at the filled-up places reaches no answer, however far attention reads back.
Models that are not causal are refused where training begins (``refuse_reading_ahead``).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
    """Logits over the vocabulary for every answer token: ``[P, V]``; none are computed for other places."""
    places = answer_places(batch)
    with _head_at(model, places):
        logits: Tensor = model(input_ids=batch.columns["tokens"], use_cache=False).logits
    return logits[0]


def mean_log_likelihood(model: nn.Module, batch: Batch) -> Tensor:
    """Mean over the tokens of each answer of log softmax at the token: ``[B]``."""
    told = predictions(batch)
    each = -functional.cross_entropy(answer_scores(model, batch), told.column, reduction="none")
    total = each.new_zeros(len(batch)).index_add(0, told.sample, each)
    return total / (batch.columns["length"] - batch.columns["prompt"])


@contextmanager
def _head_at(model: Any, places: Tensor) -> Iterator[None]:
    """Let the layer that makes logits see ``[1, P, d]`` instead of ``[B, T, d]``."""

    def taken(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0][places][None], *inputs[1:])

    handle = model.get_output_embeddings().register_forward_pre_hook(taken)
    try:
        yield
    finally:
        handle.remove()


__all__ = ["answer_scores", "mean_log_likelihood", "predictions"]
