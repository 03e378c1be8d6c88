"""Export of a checkpoint for RecBole: the ``.pth`` its trainer would have saved, and data files beside it.

This is the only pickle that the program writes, and only when asked for.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from recunlearn.data.catalogue import load_interactions
from recunlearn.data.interactions import Interactions
from recunlearn.foundation.errors import CheckpointError, RecunlearnError, UsageError
from recunlearn.foundation.store import (
    atomic_file,
    atomic_folder,
    is_only_sealed,
    read_json,
    refuse_unwritable,
    write_seal,
)
from recunlearn.subjects.recbole.as_written import SPLIT, bundle_as_written
from recunlearn.subjects.recbole.bundle import STORED, Bundle, make_bundle
from recunlearn.subjects.recbole.compat import plain_config
from recunlearn.subjects.recbole.dataset import Tables
from recunlearn.subjects.recbole.renumber import renumbered
from recunlearn.subjects.recbole.store import MANIFEST, load_subject, settings_of
from recunlearn.subjects.recbole.subject import RecBoleSubject
from recunlearn.subjects.recbole.training import build_optimiser, prepare

PARTS = ("train", "valid", "test")
_COMPARED = 20
"""Users whose scores of all items must be those of the checkpoint."""


def export_recbole(folder: Path, file: Path) -> None:
    """Write ``file`` (``.pth``) and, beside it, the folder ``<name>-data`` with RecBole's atomic files.

    ``load_data_and_model`` and ``Trainer.resume_checkpoint`` of RecBole 1.2.1 read them without this program
    (with torch >= 2.6 RecBole needs ``weights_only=False``). Deleted users have no row any more: users and
    items are numbered as RecBole numbers the files, and scores are compared before anything is written. Times
    of sequential models are replaced by their ranks, because RecBole rounds times to 24 bits. The optimiser
    begins anew.

    Args:
        folder: a checkpoint of ours.
        file: target; its parent is made.

    Raises:
        CheckpointError: a damaged checkpoint, other data, or a model that cannot be renumbered.
        UsageError: ``file`` has another ending, or what is in its place, or in the data's, would be lost.
    """
    folder, file = Path(folder), Path(file).absolute()
    if file.suffix != ".pth":
        raise UsageError(f"An export for RecBole is a .pth file, but got {file.name}. Name one.")
    if not (folder / MANIFEST).is_file():
        raise CheckpointError(f"{folder} is no trained model: {MANIFEST} is missing. Name its folder.")
    beside = file.with_name(f"{file.stem}-data")
    _check_free(file, beside)
    data = load_interactions(str(read_json(folder / MANIFEST).get("data")))
    subject = load_subject(folder, data, device="cpu")
    bundle, model = _as_numbered_by_recbole(subject, data)
    name = data.name
    _write_data(bundle, name, beside)
    config = plain_config(
        bundle.config,
        dataset=name,
        data_path=str(beside / name),
        checkpoint_dir=str(file.parent),
        device=torch.device("cpu"),
        use_gpu=False,
    )
    state = {
        "config": config,
        "epoch": subject.epochs - 1,
        "cur_step": 0,
        "best_valid_score": subject.metrics.get("valid", {}).get(subject.main_metric, -np.inf),
        "state_dict": model.state_dict(),
        "other_parameter": model.other_parameter() if hasattr(model, "other_parameter") else None,
        "optimizer": build_optimiser(model, bundle.config).state_dict(),
    }
    with atomic_file(file) as temporary:
        torch.save(state, temporary, pickle_protocol=4)


def _check_free(file: Path, beside: Path) -> None:
    """Refuse to replace anything but the data of an earlier export as it was written."""
    if file.is_dir():
        raise UsageError(
            f"{file} is a folder, but an export for RecBole is a file. Name another one with --out."
        )
    refuse_unwritable(file)
    inside = list(beside.iterdir()) if beside.is_dir() else [beside] * beside.exists()
    if not all(p.is_dir() and is_only_sealed(p) for p in inside):
        raise UsageError(
            f"The data of the export would go to {beside}, where more lies than an earlier export wrote. "
            "It is not replaced: name another file with --out, or move it away."
        )


def _as_numbered_by_recbole(subject: RecBoleSubject, data: Interactions) -> tuple[Bundle, Any]:
    """Bundle and model under the numbers that RecBole gives to the data as they are."""
    bundle: Bundle = subject.bundle
    if bundle.facts.get("numbering") != STORED:
        return bundle, subject.model
    if bundle.facts["split"] == SPLIT:
        settings = bundle.config.final_config_dict
        fresh = bundle_as_written(data, settings, labels=bundle.labels)
    else:
        fresh = make_bundle(data, settings_of(bundle.facts))
    model, _ = prepare(fresh)
    model.load_state_dict(renumbered(subject.model, model, bundle.numbers, fresh.numbers))
    moved = RecBoleSubject(
        fresh, model, epochs=subject.epochs, metrics={}, popularity_metrics={}, weights_hash=""
    )
    _check_scores(subject, moved)
    return fresh, moved.model


def _check_scores(before: RecBoleSubject, after: RecBoleSubject) -> None:
    place = {user: row for row, user in enumerate(before.entities.tolist())}
    items = {item: row for row, item in enumerate(before.items.tolist())}
    users = np.flatnonzero(after.n_samples())[:_COMPARED]
    theirs = np.array([place[u] for u in after.entities[users]])
    columns = np.array([items[i] for i in after.items])
    found = after.item_scores(after.model, users)
    wanted = before.item_scores(before.model, theirs)[:, torch.from_numpy(columns)]
    if not torch.allclose(found, wanted, rtol=1e-3, atol=1e-4):
        raise CheckpointError(
            f"{before.bundle.facts['model']} scores items differently without the numbers of deleted users, "
            "so it cannot be exported for RecBole. Train it again on the data as they are now."
        )


def _write_data(bundle: Bundle, name: str, folder: Path) -> None:
    """Atomic files from which RecBole makes the same data set."""
    tables: Tables = bundle.train.tables
    inter, types = tables.inter, dict(tables.types)
    if bundle.config["benchmark_filename"] is not None:
        pieces = {f"{name}.{p}.inter": inter[tables.split == k] for k, p in enumerate(PARTS)}
    else:
        pieces = {f"{name}.inter": _with_ranks(inter, tables)}
        types["timestamp"] = "float"
    for suffix, table in (("user", tables.user), ("item", tables.item)):
        if table is not None:
            pieces[f"{name}.{suffix}"] = table
    with atomic_folder(folder) as temporary:
        (temporary / name).mkdir()
        for file, table in pieces.items():
            _write(table, types, temporary / name / file)
        write_seal(temporary / name)


def _with_ranks(inter: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    if "timestamp" in inter or tables.time is None:
        return inter
    return inter.assign(timestamp=np.unique(tables.time, return_inverse=True)[1])


def _write(table: pd.DataFrame, types: Mapping[str, str], path: Path) -> None:
    headed = table.rename(columns={c: f"{c}:{types.get(c, 'token')}" for c in table.columns})
    headed.to_csv(path, sep="\t", index=False, float_format="%.17g")
    ids = [c for c in headed.columns if c in ("user_id:token", "item_id:token")]
    if pd.read_csv(path, sep="\t", usecols=ids, dtype=str)[ids].isna().any(axis=None):
        raise RecunlearnError(
            "An id such as NA would be read by RecBole as no id at all, so the data cannot be exported "
            "for it. Rename that id and import the data again."
        )
