"""Data sets by name: the embedded ml-100k and everything that was imported."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from recunlearn.data import movielens
from recunlearn.data.interactions import Interactions
from recunlearn.data.left_out import read_left_out, without_rows_of
from recunlearn.data.storage import read_data_set, read_manifest
from recunlearn.foundation import paths
from recunlearn.foundation.errors import RecunlearnError, UsageError, near_miss
from recunlearn.foundation.store import content_hash, explain_os_errors, read_json, write_json

EMBEDDED = "ml-100k"
_READER = 1
"""Raised when the embedded set is read differently, so that stored hashes are not reused."""


@dataclass(frozen=True)
class DataSetInfo:
    """One line of ``data list``; counts are None where the stored set is damaged (``problem`` says how)."""

    name: str
    users: int | None
    items: int | None
    interactions: int | None
    source: str
    problem: str | None = None


def load_interactions(name: str) -> Interactions:
    """Load a data set by name.

    Raises:
        UsageError: no such data set; the sentence lists the valid ones.
        DataError: the stored files are damaged.
    """
    return _embedded() if name == EMBEDDED else read_data_set(_stored(name))


def check_known(name: str) -> None:
    """Refuse a data set that cannot be named, without reading it.

    Raises:
        UsageError: no such data set.
    """
    if name != EMBEDDED:
        _stored(name)


def data_hash(name: str) -> str:
    """Content hash of a data set, equal to ``load_interactions(name).hash`` but without loading it."""
    return _embedded_hash() if name == EMBEDDED else str(read_manifest(_stored(name))["hash"])


def list_data_sets() -> list[DataSetInfo]:
    """Every data set that can be named, the embedded one first, then by name."""
    size = movielens.ML_100K
    if read_left_out(EMBEDDED).rows:
        left = _embedded()
        size = {"users": len(left.users), "items": len(left.items), "interactions": len(left)}
    source = "recbole package (MovieLens 100K)"
    first = DataSetInfo(EMBEDDED, size["users"], size["items"], size["interactions"], source)
    return [first, *(_info(paths.data_sets() / name) for name in _stored_names())]


def remove_data_set(name: str) -> None:
    """Delete an imported data set."""
    if name == EMBEDDED:
        raise UsageError(f"{EMBEDDED} comes with the recbole package and cannot be removed.")
    folder = _stored(name)
    with explain_os_errors(folder):
        shutil.rmtree(folder)


def check_new_name(name: str, *, force: bool = False) -> Path:
    """Folder for a new data set; refuses paths, the embedded name and (without ``force``) an existing one."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", name):
        raise UsageError(
            f"A data set's name has 1 to 100 letters, digits, '.', '_' or '-' and starts with none of the "
            f"last two or '.', but got {name!r}."
        )
    if name == EMBEDDED:
        raise UsageError(f"{EMBEDDED} comes with the recbole package. Choose another name for your own data.")
    folder = paths.data_sets() / name
    if folder.exists() and not force:
        raise UsageError(
            f"The data set '{name}' exists already in {folder}. Choose another name or add --force."
        )
    return folder


def _stored_names() -> list[str]:
    root = paths.data_sets()
    if not root.is_dir():
        return []
    return sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))


def _stored(name: str) -> Path:
    names = _stored_names()
    if name not in names:
        valid = [EMBEDDED, *names]
        if name == "ml-1m":
            raise UsageError(
                "The data set 'ml-1m' is not imported yet. Add it with: data add ml-1m --download "
                "(or --from ml-1m.zip)"
            )
        raise UsageError(
            f"Unknown data set '{name}'.{near_miss(name, valid)} Valid names: {', '.join(valid)}. "
            "Import your own with: data add NAME --file F"
        )
    return paths.data_sets() / name


def _info(folder: Path) -> DataSetInfo:
    try:
        manifest = read_manifest(folder)
    except RecunlearnError as error:
        return DataSetInfo(folder.name, None, None, None, "", str(error))
    counts = manifest["counts"]
    return DataSetInfo(
        folder.name,
        counts["users"],
        counts["items"],
        counts["interactions"],
        str(manifest["card"].get("source", "")),
    )


def _embedded() -> Interactions:
    return without_rows_of(movielens.read_ml_100k(), read_left_out(EMBEDDED))


def _embedded_hash() -> str:
    stats = [f.stat() for f in movielens.ml_100k_files().values()]
    gone = read_left_out(EMBEDDED).rows
    key = content_hash(_READER, [[s.st_size, s.st_mtime_ns] for s in stats], *([list(gone)] if gone else []))
    memo = paths.cache() / "ml-100k-hash.json"
    try:
        known = read_json(memo)
        if known["key"] == key:
            return str(known["hash"])
    except (RecunlearnError, KeyError, TypeError):
        pass
    value = _embedded().hash
    write_json(memo, {"key": key, "hash": value})
    return value


__all__ = [
    "EMBEDDED",
    "DataSetInfo",
    "check_known",
    "check_new_name",
    "data_hash",
    "list_data_sets",
    "load_interactions",
    "remove_data_set",
]
