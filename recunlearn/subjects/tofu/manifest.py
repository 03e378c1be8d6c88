"""Manifest of a trained language model; imports no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recunlearn.foundation.errors import CheckpointError
from recunlearn.foundation.store import read_json

MANIFEST = "manifest.json"


def read_manifest(folder: Path) -> Mapping[str, Any]:
    """Manifest of a language model that was trained here.

    Raises:
        CheckpointError: the folder holds none.
    """
    path = Path(folder) / MANIFEST
    manifest = read_json(path) if path.is_file() else {}
    if not isinstance(manifest, dict) or manifest.get("kind") != "language":
        raise CheckpointError(f"{folder} is no language model that was trained here. Train one: tofu train")
    return manifest
