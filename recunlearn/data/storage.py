"""Imported data sets on disk: interactions, feature tables and a manifest in one folder."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from recunlearn.data.build import build_interactions
from recunlearn.data.interactions import Interactions
from recunlearn.foundation.errors import DataError, RecunlearnError
from recunlearn.foundation.store import atomic_folder, read_json, write_json

FORMAT = 1
_COLUMNS = ("rating", "time", "split")
_COUNTS = ("users", "items", "interactions")


def write_data_set(interactions: Interactions, folder: Path, settings: dict[str, Any] | None = None) -> None:
    """Write ``folder`` whole or not at all; an existing one is replaced.

    Args:
        interactions: what to store.
        folder: target folder; its last part is the data set's name.
        settings: how it was imported (file name, columns, choices), kept in the manifest.
    """
    with atomic_folder(folder) as temporary:
        pq.write_table(_arrow(interactions), temporary / "interactions.parquet")
        for kind in ("user", "item"):
            table = getattr(interactions, f"{kind}_features")
            if table is not None:
                table.to_parquet(temporary / f"{kind}_features.parquet", index=False)
        write_json(temporary / "manifest.json", _manifest(interactions, folder.name, settings or {}))


def read_data_set(folder: Path) -> Interactions:
    """Read back what :func:`write_data_set` wrote; the content hash must be the stored one."""
    manifest = read_manifest(folder)
    try:
        log = pq.read_table(
            folder / "interactions.parquet", read_dictionary=["user_id", "item_id"]
        ).to_pandas()
        tables = {k: _features(folder, k, manifest) for k in ("user", "item")}
        arrays = {c: log[c].to_numpy() if c in log else None for c in _COLUMNS}
        built = build_interactions(
            manifest["name"],
            log["user_id"],
            log["item_id"],
            **arrays,
            user_features=tables["user"],
            item_features=tables["item"],
            card=manifest["card"],
        )
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise damaged(folder, str(error).splitlines()[0]) from None
    if built.hash != manifest["hash"]:
        raise damaged(folder, "its content hash differs from the manifest")
    return built


def read_manifest(folder: Path) -> dict[str, Any]:
    """Manifest of a stored data set: name, hash, counts, settings, card."""
    try:
        manifest: dict[str, Any] = read_json(folder / "manifest.json")
    except RecunlearnError as error:
        raise damaged(folder, f"manifest.json: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__
        raise damaged(folder, f"manifest.json: format {found!r} instead of {FORMAT}")
    kinds = {"hash": str, "name": str, "counts": dict, "card": dict, "feature_types": dict}
    wrong = [k for k, kind in kinds.items() if not isinstance(manifest.get(k), kind)]
    if not wrong and any(type(manifest["counts"].get(k)) is not int for k in _COUNTS):
        wrong = ["counts"]
    if wrong:
        raise damaged(folder, f"manifest.json: no usable {' and '.join(wrong)}")
    return manifest


def damaged(folder: Path, why: str) -> DataError:
    """Error that says how to get rid of a stored set that cannot be read."""
    return DataError(
        f"The stored data set {folder} is damaged ({why}). "
        f"Import it again with: data add {folder.name} ... --force, or run: data remove {folder.name}"
    )


def _manifest(interactions: Interactions, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "name": name,
        "hash": interactions.hash,
        "counts": {
            "users": len(interactions.users),
            "items": len(interactions.items),
            "interactions": len(interactions),
        },
        "feature_types": dict(interactions.feature_types),
        "settings": settings,
        "card": dict(interactions.card),
    }


def _arrow(interactions: Interactions) -> pa.Table:
    columns: dict[str, Any] = {
        "user_id": _dictionary(interactions.user, interactions.users),
        "item_id": _dictionary(interactions.item, interactions.items),
    }
    columns |= {c: pa.array(v) for c in _COLUMNS if (v := getattr(interactions, c)) is not None}
    return pa.table(columns)


def _dictionary(codes: Any, names: Iterable[Any]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([str(n) for n in names], pa.string()))


def _features(
    folder: Path, kind: str, manifest: dict[str, Any]
) -> tuple[pd.DataFrame, dict[str, str]] | None:
    path = folder / f"{kind}_features.parquet"
    if not path.exists():
        return None
    table = pd.read_parquet(path)
    types: dict[str, str] = {c: manifest["feature_types"][c] for c in table.columns}
    for column, kind_of in types.items():
        if kind_of == "float":
            table[column] = table[column].astype(np.float64)
    return table, types
