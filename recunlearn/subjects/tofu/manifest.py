"""Manifest of a trained language model; imports no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recunlearn.foundation.errors import CheckpointError
from recunlearn.foundation.store import content_hash, file_hash, read_json

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


def weights_hash(folder: Path) -> str:
    """Content hash of a model's weights."""
    return content_hash({p.name: file_hash(p) for p in sorted(folder.glob("*.safetensors"))})


def check_weights(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse weights other than those that the manifest was written with.

    Raises:
        CheckpointError: they were altered.
    """
    if weights_hash(Path(folder)) != manifest["weights_hash"]:
        raise CheckpointError(f"The weights in {folder} were altered after training. Train it again.")
