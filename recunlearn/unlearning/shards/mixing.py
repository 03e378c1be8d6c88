"""Training of the aggregator by the loop of all methods; stored under the hash of what makes it."""

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from recunlearn.foundation.store import content_hash
from recunlearn.unlearning.contract import History
from recunlearn.unlearning.draws import Draws, Pair
from recunlearn.unlearning.journal import Journal
from recunlearn.unlearning.loop import Run
from recunlearn.unlearning.request import rest_of
from recunlearn.unlearning.shards.aggregator import Aggregator
from recunlearn.unlearning.shards.sharded import Request
from recunlearn.unlearning.shards.submodels import read_state, write_state

RULES = 1
"""Raised when the same sub-models and settings would no longer give the same aggregator."""


@dataclass(frozen=True)
class Recipe:
    """How an aggregator is trained.

    Args:
        steps: optimiser steps.
        dropout: probability that a shard is left out of a row's mixture in a step.
        batch_size: samples a step.
        learning_rate: of Adam.
    """

    steps: int
    dropout: float
    batch_size: int
    learning_rate: float


@dataclass(frozen=True)
class Mixing:
    """A trained aggregator.

    Args:
        aggregator: of the sub-models of ``shards``.
        shards: numbers of the shards, in the order of the aggregator.
        key: hash of everything that makes it.
        steps, seconds, diverged, history: of its training; ``seconds`` holds the loading of the sub-models,
            ``history`` is empty where it was read back.
    """

    aggregator: Aggregator
    shards: list[int]
    key: str
    steps: int
    seconds: float
    diverged: bool
    history: History


def mix(request: Request, recipe: Recipe, start: Mixing | None, title: str) -> Mixing:
    """Aggregator of the request's sub-models, trained on its samples or read back from its folder.

    Args:
        request: whose parts are trained.
        recipe: of the training.
        start: aggregator of another state of the data to start from; None: from nothing.
        title: told as progress.
    """
    began = time.perf_counter()
    aggregator = _aggregator(request)
    shards = [part.shard for part in request.parts]
    key = _key(request, recipe, start)
    path = request.folder / f"aggregator-{key}.safetensors"
    stored = read_state(path)
    if stored is not None:
        _load(aggregator, stored[0])
        return Mixing(aggregator, shards, key, recipe.steps, stored[1], False, {})
    if start is not None:
        _load(aggregator, _of_shards(start, shards))
    work = request.folder / f"aggregator-{key}"
    run = _run(aggregator, request, recipe, Journal(work, key), title)
    before = time.perf_counter() - began
    seconds = before + run().seconds
    if not run.diverged:
        write_state(path, _own(aggregator), seconds)
    shutil.rmtree(work, ignore_errors=True)
    history = {"step": run.history["step"], "aggregator_loss": run.history["forget_loss"]}
    return Mixing(aggregator, shards, key, run.step, seconds, run.diverged, history)


def _aggregator(request: Request) -> Aggregator:
    subject = request.subject
    parts = [subject.vectors(model) for model in request.models()]
    rows = parts[0].items[0].count if parts[0].items else 0
    seen_items = request.seen(request.item, rows) if rows else np.zeros((len(parts), 0), dtype=bool)
    seen_entities = request.seen(request.owner, len(subject.entities))
    seen = (torch.from_numpy(seen_entities), torch.from_numpy(seen_items))
    return Aggregator(subject, parts, *seen, seed=request.seed)


def _run(aggregator: Aggregator, request: Request, recipe: Recipe, journal: Journal, title: str) -> Run:
    def losses(model: nn.Module, pair: Pair, step: int) -> tuple[Tensor, Tensor | None, Tensor]:
        # Drawn by step, so that a resumed run draws the same.
        generator = torch.Generator().manual_seed((request.seed << 32) + step)
        dropout = (recipe.dropout, generator) if recipe.dropout else None
        loss = -aggregator.log_likelihood(pair.forget, dropout).mean()
        return loss, None, loss

    rest = rest_of(request.subject, request.forget)
    draws = Draws(request.subject, rest, None, recipe.batch_size, request.seed, negatives=True)
    run = Run(aggregator, losses, draws, recipe.steps, recipe.learning_rate)
    run.journal, run.progress, run.title = journal, request.progress, title
    return run


def _key(request: Request, recipe: Recipe, start: Mixing | None) -> str:
    parts = [part.key for part in request.parts]
    return content_hash(RULES, parts, vars(recipe), request.seed, None if start is None else start.key)


def _own(aggregator: Aggregator) -> dict[str, Tensor]:
    return {name: p for name, p in aggregator.named_parameters() if p.requires_grad}


def _load(aggregator: Aggregator, values: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in _own(aggregator).items():
            parameter.copy_(values[name])


def _of_shards(start: Mixing, shards: list[int]) -> dict[str, Tensor]:
    """Trained numbers of an aggregator, of the shards that are left."""
    places = [start.shards.index(shard) for shard in shards]
    return {
        name: value.detach()[places] if name.startswith("translation.") else value.detach()
        for name, value in _own(start.aggregator).items()
    }
