"""Our own checkpoints: weights as safetensors, a JSON manifest and the id map; no interactions, no pickle."""

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from recunlearn.data.interactions import Interactions
from recunlearn.foundation.errors import CheckpointError, RecunlearnError
from recunlearn.foundation.settings import ScoreSettings, make_settings
from recunlearn.foundation.store import (
    atomic_folder,
    content_hash,
    file_hash,
    read_json,
    refuse_unwritable,
    write_json,
)
from recunlearn.subjects.device import resolve_device
from recunlearn.subjects.recbole.as_written import SPLIT, bundle_as_written
from recunlearn.subjects.recbole.bundle import STORED, Bundle, make_bundle
from recunlearn.subjects.recbole.evaluation import evaluate, popularity
from recunlearn.subjects.recbole.parameters import FORMAT, epochs_of
from recunlearn.subjects.recbole.resume import discard
from recunlearn.subjects.recbole.same_data import (
    MANIFEST,
    WEIGHTS,
    again,
    check_same_data,
    check_weights,
)
from recunlearn.subjects.recbole.subject import RecBoleSubject
from recunlearn.subjects.recbole.training import fit, prepare
from recunlearn.subjects.recbole.vectors import bundle_of

_KINDS: dict[str, type] = {
    **dict.fromkeys(("model", "data", "data_hash", "weights_hash", "id_map_hash"), str),
    **dict.fromkeys(("epochs", "patience", "seed", "trained_epochs"), int),
    **dict.fromkeys(("params", "metrics", "popularity_metrics"), dict),
}
_IMPORTED_KINDS = {"recbole_settings": dict, "imported": dict}
ID_MAP = "idmap.json"
SPLIT_FILE = "split.safetensors"
"""Parts of the rows, where they are kept and not drawn."""


def train_subject(
    interactions: Interactions, settings: ScoreSettings, *, folder: Path, progress: bool = False
) -> RecBoleSubject:
    """Train ``settings.model``, save it into ``folder`` and return it; a killed run resumes.

    Raises:
        UsageError: unknown model or parameter, or a device that is not there.
        DataError: the data lack what the model needs.
    """
    refuse_unwritable(folder)
    bundle = make_bundle(interactions, settings, device=resolve_device(settings.device))
    work = folder.with_name(f"{folder.name}.work")
    fitted = fit(
        bundle,
        epochs=epochs_of(settings),
        patience=settings.training.patience,
        work=work,
        progress=progress,
        title=f"Training {settings.model}",
    )
    phases = ("valid", "test")
    subject = RecBoleSubject(
        bundle,
        fitted.model,
        epochs=fitted.best_epoch,
        metrics={p: evaluate(bundle, fitted.model, p) for p in phases},
        popularity_metrics={p: popularity(bundle, p) for p in phases},
        weights_hash="",
    )
    save_subject(subject, folder, history={"losses": fitted.losses, "valid": fitted.valid})
    discard(work)
    return subject


def untrained_subject(interactions: Interactions, settings: ScoreSettings) -> RecBoleSubject:
    """Model of the settings as it is before training, to find out in a moment what can be done with it."""
    bundle = make_bundle(interactions, settings)
    model, _ = prepare(bundle)
    return RecBoleSubject(bundle, model, epochs=0, metrics={}, popularity_metrics={}, weights_hash="")


def save_subject(subject: RecBoleSubject, folder: Path, history: Mapping[str, Any] | None = None) -> None:
    """Write the checkpoint, whole or not at all; sets ``subject.weights_hash``.

    A model of another kind than the subject's (plain tables for a graph model) is stored as what it is.
    """
    bundle = bundle_of(subject.bundle, subject.model)
    state = {k: v.detach().cpu().contiguous().clone() for k, v in subject.model.state_dict().items()}
    with atomic_folder(folder) as temporary:
        save_file(state, temporary / WEIGHTS)
        id_map = _id_map(bundle)
        write_json(temporary / ID_MAP, id_map)
        subject.weights_hash = file_hash(temporary / WEIGHTS)
        parted = {}
        if bundle.labels is not None:
            save_file({"label": torch.from_numpy(bundle.labels)}, temporary / SPLIT_FILE)
            parted = {"split_hash": file_hash(temporary / SPLIT_FILE)}
        manifest = {
            "kind": "recbole",
            "format": FORMAT,
            **bundle.facts,
            "trained_epochs": subject.epochs,
            "metrics": subject.metrics,
            "popularity_metrics": subject.popularity_metrics,
            "history": dict(history or {}),
            "recbole_settings": _plain(bundle),
            "weights_hash": subject.weights_hash,
            "id_map_hash": content_hash(id_map),
            **parted,
            "versions": {p: version(p) for p in ("recunlearn", "recbole", "torch", "numpy", "lightning")},
        }
        write_json(temporary / MANIFEST, manifest)


def _id_map(bundle: Bundle) -> dict[str, Any]:
    """Ids of users and items by number; all tokens by number where data can no longer give them."""
    id_map: dict[str, Any] = {"users": bundle.users.tolist(), "items": bundle.items.tolist()}
    if bundle.facts.get("numbering") != STORED:
        return id_map
    ids = ("user_id", "item_id")
    return {**id_map, "features": {c: t for c, t in bundle.numbers.items() if c not in ids}}


def _plain(bundle: Bundle) -> dict[str, Any]:
    left_out = ("path", "dir", "device", "gpu", "wandb", "dataset", "config", "save")
    values = bundle.config.final_config_dict.items()
    return {
        k: v
        for k, v in values
        if isinstance(v, bool | int | float | str | list | dict | None) and not any(w in k for w in left_out)
    }


def load_subject(folder: Path, interactions: Interactions, *, device: str = "auto") -> RecBoleSubject:
    """Load a checkpoint onto the data that it was trained on.

    Raises:
        CheckpointError: a file is missing or damaged, the weights were altered, or the data are others.
    """
    manifest = _manifest(folder)
    check_same_data(folder, manifest, interactions.name, interactions.hash)
    weights = _weights(folder, manifest)
    bundle = _bundle(folder, interactions, manifest, resolve_device(device))
    _check_id_map(folder, manifest, bundle)
    model, _ = prepare(bundle)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(
            f"The weights in {folder / WEIGHTS} do not fit the model {manifest['model']}: "
            f"{str(error).splitlines()[-1].strip()} {again(folder)}"
        ) from None
    return RecBoleSubject(
        bundle,
        model,
        epochs=manifest["trained_epochs"],
        metrics=manifest["metrics"],
        popularity_metrics=manifest["popularity_metrics"],
        weights_hash=manifest["weights_hash"],
    )


def _manifest(folder: Path) -> dict[str, Any]:
    for name in (MANIFEST, WEIGHTS, ID_MAP):
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder} is not a complete model: {name} is missing. {again(folder)}")
    try:
        manifest = read_json(folder / MANIFEST)
    except RecunlearnError as error:
        raise CheckpointError(str(error)) from None
    if not isinstance(manifest, dict) or manifest.get("kind") != "recbole":
        raise CheckpointError(f"{folder / MANIFEST} does not describe a trained recommender. {again(folder)}")
    if manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"The model in {folder} was written by another version (format {manifest.get('format')!r}, here "
            f"{FORMAT}). {again(folder)}"
        )
    kinds = {**_KINDS, **(_IMPORTED_KINDS if _is_imported(manifest) else {})}
    wrong = [k for k, kind in kinds.items() if not isinstance(manifest.get(k), kind)]
    wrong += [k for k in ("metrics", "popularity_metrics") if k not in wrong and not _is_figures(manifest[k])]
    if wrong:
        raise CheckpointError(f"{folder / MANIFEST} has no usable {' and '.join(wrong)}. {again(folder)}")
    return manifest


def _is_figures(metrics: Mapping[str, Any]) -> bool:
    phases = metrics.values()
    return all(isinstance(p, dict) and all(isinstance(v, int | float) for v in p.values()) for p in phases)


def _weights(folder: Path, manifest: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    check_weights(folder, manifest)
    try:
        return load_file(folder / WEIGHTS)
    except SafetensorError as error:
        raise CheckpointError(f"{folder / WEIGHTS} is damaged ({error}). {again(folder)}") from None


def _bundle(folder: Path, interactions: Interactions, manifest: Mapping[str, Any], device: str) -> Bundle:
    """Prepare the data as the model saw them: by our split, or by RecBole's own for an imported model."""
    numbers = _numbers(folder, manifest) if manifest.get("numbering") == STORED else None
    if _is_imported(manifest):
        labels = None if numbers is None else _labels(folder, manifest)
        settings = manifest["recbole_settings"]
        bundle = bundle_as_written(interactions, settings, device=device, labels=labels, numbers=numbers)
        return replace(bundle, facts={**bundle.facts, "imported": manifest["imported"]})
    return make_bundle(interactions, settings_of(manifest), device=device, numbers=numbers)


def _numbers(folder: Path, manifest: Mapping[str, Any]) -> dict[str, list[str]]:
    """Tokens by number, from the id map."""
    try:
        stored = read_json(folder / ID_MAP)
        if content_hash(stored) != manifest["id_map_hash"]:
            raise ValueError
        return {"user_id": stored["users"], "item_id": stored["items"], **stored["features"]}
    except (RecunlearnError, KeyError, TypeError, ValueError):
        raise CheckpointError(f"{folder / ID_MAP} is damaged. {again(folder)}") from None


def _labels(folder: Path, manifest: Mapping[str, Any]) -> NDArray[np.int8]:
    """Part of each row of the data."""
    try:
        if file_hash(folder / SPLIT_FILE) != manifest.get("split_hash"):
            raise ValueError
        labels: NDArray[np.int8] = load_file(folder / SPLIT_FILE)["label"].numpy()
    except (OSError, SafetensorError, KeyError, ValueError):
        raise CheckpointError(f"{folder / SPLIT_FILE} is missing or damaged. {again(folder)}") from None
    return labels


def _is_imported(manifest: Any) -> bool:
    return isinstance(manifest, dict) and manifest.get("split") == SPLIT


def settings_of(manifest: Mapping[str, Any]) -> ScoreSettings:
    """Settings that a model of ours was trained with, from its facts or its manifest."""
    training = {k: manifest[k] for k in ("params", "epochs", "patience")}
    values = {"dataset": manifest["data"], **{n: manifest.get(n) for n in ("model", "seed", "min_rating")}}
    return make_settings(
        ScoreSettings, {**values, "training": training}, f"the manifest of {manifest['model']}"
    )


def _check_id_map(folder: Path, manifest: Mapping[str, Any], bundle: Bundle) -> None:
    id_map = _id_map(bundle)
    try:
        stored = read_json(folder / ID_MAP)
    except RecunlearnError:
        raise CheckpointError(f"{folder / ID_MAP} is damaged. {again(folder)}") from None
    if stored != id_map or content_hash(stored) != manifest.get("id_map_hash"):
        raise CheckpointError(
            f"{folder / ID_MAP} numbers users or items differently from the data set "
            f"'{bundle.facts['data']}', so the rows of the model would belong to others. {again(folder)}"
        )
