"""Manifest of a trained language model; imports no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recunlearn.foundation.errors import CheckpointError
from recunlearn.foundation.store import read_json

MANIFEST = "manifest.json"
TYPES = {"settings": dict, "data_hash": str, "weights_hash": str, "rows": int, "losses": list}
"""Fields that are read from it."""


def read_manifest(folder: Path) -> Mapping[str, Any]:
    """Manifest of a language model that was trained here.

    Raises:
        CheckpointError: the folder holds none, or one that was changed by hand.
    """
    path = Path(folder) / MANIFEST
    manifest = read_json(path) if path.is_file() else {}
    if not isinstance(manifest, dict) or manifest.get("kind") != "language":
        raise CheckpointError(f"{folder} is no language model that was trained here. Train one: tofu train")
    wrong = [name for name, kind in TYPES.items() if not isinstance(manifest.get(name), kind)]
    if wrong:
        raise CheckpointError(
            f"{path} does not describe a trained language model: {', '.join(wrong)} is missing or of another "
            "kind. Train it again: tofu train"
        )
    return manifest
