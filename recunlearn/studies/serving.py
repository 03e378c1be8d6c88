"""What a service asks of a trained model: recommendations of one user, and vectors for an index."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from recunlearn.data.catalogue import data_hash, load_interactions
from recunlearn.data.interactions import Interactions
from recunlearn.data.tombstones import is_tombstone
from recunlearn.foundation import paths
from recunlearn.foundation.errors import RecunlearnError, UsageError
from recunlearn.foundation.store import atomic_file
from recunlearn.studies.keys import Keys, read_checkpoint
from recunlearn.subjects.recbole.store import load_subject
from recunlearn.subjects.recbole.subject import RecBoleSubject

Reason = Literal["", "unknown", "deleted", "untrained"]
Side = Literal["items", "users"]
_NAMED = 3
"""Models that are named where the asked-for one is not there."""
_COMPARED = 5
"""Users whose scores of all items are compared with dot products."""
_WHY = {
    "unknown": "is not in the data set",
    "deleted": "was deleted",
    "untrained": "has no training interaction",
}


@dataclass(frozen=True)
class Recommended:
    """Items for one user, the best first.

    Args:
        items: external ids.
        scores: the model's logits, or numbers of training interactions.
        source: ``model``, or ``popular`` where the model knows nothing of the user.
        reason: why ``popular``; "" for ``model``.
        facts: data set, model and its hash.
    """

    items: tuple[str, ...]
    scores: tuple[float, ...]
    source: Literal["model", "popular"]
    reason: Reason
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Served:
    """A model with its data, ready to answer.

    Args:
        subject: the model.
        data: of the same content hash.
    """

    subject: RecBoleSubject
    data: Interactions

    @property
    def facts(self) -> dict[str, str]:
        """What answered."""
        told = dict(self.subject.describe())
        return {k: str(told[k]) for k in ("data", "model", "weights_hash", "data_hash")}


def served(keys: Keys) -> Served:
    """Load the model of a run; it is never trained here.

    Raises:
        UsageError: there is none yet.
        CheckpointError: it is damaged or belongs to other data.
    """
    settings = keys.settings
    if not (keys.model / "manifest.json").is_file():
        others = _models_of(settings.dataset)
        named = f": {', '.join(map(str, others[:_NAMED]))}" if others else ""
        raise UsageError(
            f"There is no trained {settings.model} of '{settings.dataset}' with these settings. Run first: "
            f"score-users --dataset {settings.dataset} --model {settings.model}, or name a "
            f"--checkpoint{named}."
        )
    data = load_interactions(settings.dataset)
    return Served(load_subject(keys.model, data, device=settings.device), data)


def _models_of(dataset: str) -> list[Path]:
    """Folders of models that belong to a data set as it is now, the newest first."""
    now, found = data_hash(dataset), []
    for manifest in paths.models().glob("*/manifest.json"):
        try:
            if read_checkpoint(manifest.parent)["data_hash"] == now:
                found.append(manifest)
        except RecunlearnError:
            continue
    return [m.parent for m in sorted(found, key=lambda m: -m.stat().st_mtime)]


def recommend(
    model: Served,
    user: str,
    k: int = 10,
    *,
    strangers: Literal["popular", "error"] = "popular",
    deleted: bool = False,
) -> Recommended:
    """Top ``k`` items that a user has not interacted with, in any part of the data.

    A user of whom the model knows nothing (unknown, deleted, or without a training interaction) gets the
    items with the most training interactions, or an error. Items that the data no longer have are never
    recommended.

    Args:
        model: from :func:`served`.
        user: external id.
        k: at least 1; fewer items come where there are fewer.
        strangers: what such a user gets.
        deleted: the user is known to have been deleted.

    Raises:
        UsageError: ``strangers="error"`` and the model knows nothing of the user.
    """
    if k < 1:
        raise UsageError(f"-k is the number of items and at least 1, but got {k}.")
    subject, data = model.subject, model.data
    row, reason = _row(subject, data, user, deleted)
    if reason and strangers == "error":
        raise UsageError(
            f"The user {_WHY[reason]} ('{data.name}'), so the model has no recommendation. Choose "
            "--strangers popular for the most popular items."
        )
    if reason:
        _, items = subject.interactions()
        scores = np.bincount(items, minlength=len(subject.items)).astype(np.float64)
    else:
        scores = subject.item_scores(subject.model, np.array([row]))[0].double().numpy()
    best = _best(subject, data, user, scores, k)
    return Recommended(
        tuple(subject.items[best].tolist()),
        tuple(scores[best].tolist()),
        "popular" if reason else "model",
        reason,
        model.facts,
    )


def _row(subject: RecBoleSubject, data: Interactions, user: str, deleted: bool) -> tuple[int, Reason]:
    found = np.flatnonzero(subject.entities == user)
    if len(found) and not is_tombstone(user) and subject.n_samples()[found[0]]:
        return int(found[0]), ""
    if user in set(data.users.tolist()):
        return -1, "untrained"
    return -1, "deleted" if deleted else "unknown"


def _best(
    subject: RecBoleSubject, data: Interactions, user: str, scores: NDArray[np.float64], k: int
) -> NDArray[np.int64]:
    """Rows of the best allowed items; ties in the order of the items."""
    seen = data.items[data.item[(data.users == user)[data.user]]]
    allowed = np.isin(subject.items, data.items) & ~np.isin(subject.items, seen)
    order = np.argsort(-scores, kind="stable")
    chosen: NDArray[np.int64] = order[allowed[order]][:k]
    return chosen


def embeddings(model: Served, side: Side) -> tuple[NDArray[np.str_], NDArray[np.float32]]:
    """Ids and vectors ``[n, d]`` of items or users that the data have; several tables side by side.

    Graph models give their propagated vectors.

    Raises:
        UsageError: the model has no vectors of that side.
    """
    subject, data = model.subject, model.data
    ids, known = (subject.items, data.items) if side == "items" else (subject.entities, data.users)
    table = _vectors(subject, side)
    if table is None:
        raise UsageError(
            f"{subject.bundle.facts['model']} has no vector for each of its {side}. "
            + ("Use recommend instead." if side == "items" else "Export items only, or use recommend.")
        )
    kept = np.isin(ids, known)
    return ids[kept], table.numpy().astype(np.float32)[kept]


def _vectors(subject: RecBoleSubject, side: Side) -> torch.Tensor | None:
    count = len(subject.items) if side == "items" else len(subject.entities)
    try:
        found = subject.vectors(subject.model)
    except UsageError:
        return _named_table(subject, side[:-1], count)
    state = dict(found.model.named_parameters())
    rows = found.items if side == "items" else found.entities
    tables = [state[r.parameter].detach().cpu()[r.first : r.first + r.count] for r in rows]
    return torch.cat(tables, 1) if tables else None


def _named_table(subject: RecBoleSubject, word: str, count: int) -> torch.Tensor | None:
    """The table of a model that does not look vectors up by user and item (sequential models)."""
    for name, value in subject.model.named_parameters():
        if word in name and value.dim() == 2 and len(value) >= count + 1:
            return value.detach().cpu()[1 : count + 1]
    return None


def is_dot_product(model: Served) -> bool:
    """Tell whether the score of a user and an item is the dot product of their exported vectors."""
    subject = model.subject
    users, items = _vectors(subject, "users"), _vectors(subject, "items")
    if users is None or items is None or users.shape[1] != items.shape[1]:
        return False
    some = np.flatnonzero(subject.n_samples())[:_COMPARED]
    scores = subject.item_scores(subject.model, some)
    return bool(torch.allclose(users[some] @ items.T, scores, rtol=1e-3, atol=1e-4))


def export_embeddings(model: Served, file: Path, sides: tuple[Side, ...] = ("items",)) -> dict[str, int]:
    """Write ids and vectors into a ``.parquet`` or ``.npz`` file, whole or not at all; returns the counts.

    Parquet has the columns ``kind``, ``id`` and ``vector``; npz the arrays ``item_ids``, ``items``,
    ``user_ids``, ``users`` and ``facts``. Data set, model, hashes and whether scores are dot products are
    stored with them.

    Raises:
        UsageError: another ending, or a model without such vectors.
    """
    file = Path(file)
    writers = {".parquet": _write_parquet, ".npz": _write_npz}
    if file.suffix not in writers:
        raise UsageError(f"--out is a .parquet or .npz file, but got {file.name}. Name one.")
    if file.is_dir():
        raise RecunlearnError(f"{file} is a folder, but --out names a file. Name another.")
    found = {side: embeddings(model, side) for side in sides}
    facts = {**model.facts, "dot_product": str(is_dot_product(model)).lower()}
    with atomic_file(file) as temporary:
        writers[file.suffix](temporary, found, facts)
    return {side: len(ids) for side, (ids, _) in found.items()}


def _write_parquet(path: Path, found: Mapping[Side, tuple[Any, Any]], facts: Mapping[str, str]) -> None:
    tables = [
        pa.table(
            {
                "kind": pa.array([side[:-1]] * len(ids)),
                "id": pa.array(ids.tolist(), pa.string()),
                "vector": pa.array(list(vectors), pa.list_(pa.float32())),
            }
        )
        for side, (ids, vectors) in found.items()
    ]
    pq.write_table(pa.concat_tables(tables).replace_schema_metadata(dict(facts)), path)


def _write_npz(path: Path, found: Mapping[Side, tuple[Any, Any]], facts: Mapping[str, str]) -> None:
    arrays: dict[str, Any] = {"facts": np.array(json.dumps(dict(facts)))}
    for side, (ids, vectors) in found.items():
        arrays |= {f"{side[:-1]}_ids": ids, side: vectors}
    with path.open("wb") as opened:
        np.savez_compressed(opened, **arrays)
