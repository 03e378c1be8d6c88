"""Where a model keeps the vectors of users and items; graph models become plain tables of their results."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from recunlearn.foundation.errors import UsageError
from recunlearn.subjects.contract import Batch
from recunlearn.subjects.parts import Rows, Vectors
from recunlearn.subjects.recbole.bundle import Bundle
from recunlearn.subjects.recbole.compat import build_model, model_class, with_values
from recunlearn.subjects.recbole.lookups import find_lookups, tables_at
from recunlearn.subjects.recbole.parameters import recbole_defaults
from recunlearn.subjects.recbole.scoring import clear_caches, raw_scores

PLAIN = "BPR"
"""RecBole's model whose score is a dot product of two tables, and nothing else."""


def find_vectors(bundle: Bundle, model: nn.Module, batch: Batch) -> Vectors:
    """Rows of users and items in the parameters that the score of ``batch`` reads.

    Raises:
        UsageError: the score reads no vector of the user, or a computed one that is no plain factor.
    """
    lookups = find_lookups(bundle.objective, model, batch)
    users = tables_at(lookups, batch, "user_id")
    items = tables_at(lookups, batch, "item_id")
    if not users:
        raise UsageError(
            f"{bundle.config['model']} has no vector of its own for each user, so there is nothing to put "
            "together from shards. Use SISA, which needs only scores, or a model such as BPR, LightGCN or "
            "NeuMF."
        )
    if None in users or None in items:
        model = _as_tables(bundle, model, batch)
        return find_vectors(bundle, model, batch)
    sizes = len(bundle.users), len(bundle.items)
    return Vectors(model, *(_rows(found, n) for found, n in zip((users, items), sizes, strict=True)))


def plain_model(bundle: Bundle, users: Tensor, items: Tensor) -> nn.Module:
    """BPR model with given vectors, padding row first: ``[U + 1, d]`` and ``[I + 1, d]``."""
    model: Any = build_model(_plain_bundle(bundle, users.shape[1]).config, bundle.train)
    with torch.no_grad():
        model.user_embedding.weight.copy_(users)
        model.item_embedding.weight.copy_(items)
    return model.eval()


def bundle_of(bundle: Bundle, model: Any) -> Bundle:
    """Settings that ``model`` can be built from again: those given, unless it is a plain model of others."""
    if type(model).__name__ != PLAIN:
        return bundle
    width = int(model.user_embedding.weight.shape[1])
    same = bundle.config["model"] == PLAIN and bundle.config["embedding_size"] == width
    return bundle if same else _plain_bundle(bundle, width)


def _plain_bundle(bundle: Bundle, width: int) -> Bundle:
    config = with_values(bundle.config, embedding_size=width, model=PLAIN)
    config.model_class = model_class(PLAIN)
    known = recbole_defaults(PLAIN)
    params = {k: v for k, v in bundle.facts["params"].items() if k in known}
    facts = {**bundle.facts, "model": PLAIN, "params": {**params, "embedding_size": width}}
    return replace(bundle, config=config, facts=facts, tasks={})


def dot_factors(bundle: Bundle, model: Any, batch: Batch) -> tuple[Tensor, Tensor] | None:
    """Tables whose dot product is the score, padding row first; None where the score is something else."""
    clear_caches(model)
    try:
        with torch.no_grad():
            outputs = model.forward()
    except TypeError:
        outputs = _two_tables(model)
    clear_caches(model)
    if not isinstance(outputs, tuple) or len(outputs) < 2:
        return None
    users, items = outputs[0].detach(), outputs[1].detach()
    if users.shape[0] != len(bundle.users) + 1 or items.shape[0] != len(bundle.items) + 1:
        return None
    if users.shape[1:] != items.shape[1:]:
        return None
    with torch.no_grad():
        found = (users[batch.columns["user_id"]] * items[batch.columns["item_id"]]).sum(-1)
        wanted = raw_scores(model, batch.columns).reshape(-1)
    clear_caches(model)
    return (users, items) if torch.allclose(found, wanted, rtol=1e-4, atol=1e-5) else None


def _two_tables(model: nn.Module) -> tuple[Tensor, ...]:
    """Parameters of a model that has two and no more, users first."""
    parameters = tuple(p for p in model.parameters())
    return parameters if len(parameters) == 2 else ()


def _as_tables(bundle: Bundle, model: nn.Module, batch: Batch) -> nn.Module:
    factors = dot_factors(bundle, model, batch)
    if factors is None:
        raise UsageError(
            f"{bundle.config['model']} computes the vectors of users and items, and its score is not their "
            "dot product, so models of shards cannot be put together. Use SISA, or LightGCN or BPR."
        )
    return plain_model(bundle, *factors)


def _rows(found: dict[str | None, int], count: int) -> tuple[Rows, ...]:
    return tuple(Rows(str(name), offset + 1, count) for name, offset in found.items())
