"""Stored results without the rows of deleted users: each function returns what is to be done."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.records import (
    RECORDS,
    Anchors,
    Circuits,
    ForgetSet,
    Outcomes,
    load_record,
    save_record,
)
from recunlearn.foundation.store import atomic_file, atomic_folder, read_json, to_json, write_json, write_seal

PICTURES = "circuit-rank-*"
"""Pictures of one user's circuit, named by rank."""
USER = "user_id"


Action = Callable[[], None]


class MustGoError(Exception):
    """What is stored cannot be rewritten and has to be removed."""


def record_actions(folder: Path, users: set[str]) -> list[Action]:
    """How to drop the users' rows of a stored record; nothing where it has none.

    Raises:
        MustGoError: damaged, of a kind whose rows depend on each other, or an anchor was deleted.
    """
    try:
        kind = RECORDS[read_json(folder / "manifest.json")["record"]]
        record = load_record(kind, folder)
        keep = ~np.isin(record.entities, list(users))
    except (RecunlearnError, AttributeError, KeyError, TypeError) as error:
        raise MustGoError from error
    if keep.all():
        return []
    left = _without(record, keep)
    return [lambda: save_record(left, folder)]


def _without(record: Any, keep: NDArray[np.bool_]) -> Any:
    rows = np.flatnonzero(keep)
    if isinstance(record, Circuits):
        return record.take(rows)
    if isinstance(record, Outcomes):
        losses = {n: getattr(record, n)[..., rows] for n in vars(record) if n.startswith("loss_")}
        return replace(record, entities=record.entities[rows], **losses)
    if isinstance(record, ForgetSet):
        return replace(record, entities=record.entities[rows], n_interactions=record.n_interactions[rows])
    if isinstance(record, Anchors) and keep[record.easy].all() and keep[record.hard].all():
        place = np.cumsum(keep) - 1
        columns: dict[str, Any] = {
            n: getattr(record, n)[rows] for n in ("entities", "hardness", "measurable")
        }
        return replace(record, easy=place[record.easy], hard=place[record.hard], **columns)
    raise MustGoError


def table_actions(folder: Path, users: set[str]) -> list[Action]:
    """How to drop the users' rows of a stored score table; nothing where it has none.

    Raises:
        MustGoError: it cannot be read.
    """
    try:
        table = pd.read_parquet(folder / "scores.parquet")
        summary = read_json(folder / "summary.json")
        keep = ~table[USER].isin(users)
    except (RecunlearnError, OSError, ValueError, KeyError) as error:
        raise MustGoError from error

    def write() -> None:
        with atomic_folder(folder) as temporary:
            table[keep].to_parquet(temporary / "scores.parquet", index=False)
            write_json(temporary / "summary.json", summary)
            write_seal(temporary)

    return [] if keep.all() else [write]


def export_actions(folder: Path, users: set[str]) -> list[Action]:
    """How to drop the users' rows of exported tables, and all pictures of single users' circuits.

    Raises:
        MustGoError: a table cannot be read.
    """
    actions: list[Action] = [picture.unlink for picture in sorted(folder.glob(PICTURES))]
    for name, (read, write) in _TABLES.items():
        file = folder / name
        if file.is_file():
            try:
                table = read(file)
                keep = ~table[USER].isin(users)
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise MustGoError from error
            if not keep.all():
                actions.append(partial(_write, write, file, table[keep]))
    return actions


def parquet_actions(file: Path, users: set[str]) -> list[Action]:
    """How to drop the users' rows of a single table; nothing where it has none.

    Raises:
        MustGoError: it cannot be read.
    """
    try:
        table = pd.read_parquet(file)
        keep = ~table[USER].isin(users)
    except (OSError, ValueError, KeyError) as error:
        raise MustGoError from error
    return [] if keep.all() else [partial(_write, _to_parquet, file, table[keep])]


def _to_parquet(table: pd.DataFrame, file: Path) -> None:
    table.to_parquet(file, index=False)


def _write(write: Callable[[pd.DataFrame, Path], Any], file: Path, table: pd.DataFrame) -> None:
    with atomic_file(file) as temporary:
        write(table, temporary)


def _read_json_rows(file: Path) -> pd.DataFrame:
    rows = json.loads(file.read_text(encoding="utf-8"))
    return pd.DataFrame({USER: [row[USER] for row in rows], "row": rows}, dtype=object)


_TABLES: dict[str, tuple[Callable[[Path], pd.DataFrame], Callable[[pd.DataFrame, Path], Any]]] = {
    "scores.csv": (
        lambda file: pd.read_csv(file, dtype=str, keep_default_na=False),
        lambda table, file: table.to_csv(file, index=False),
    ),
    "scores.parquet": (pd.read_parquet, _to_parquet),
    "scores.json": (
        _read_json_rows,
        lambda table, file: file.write_text(to_json(table["row"].tolist()), encoding="utf-8"),
    ),
}
