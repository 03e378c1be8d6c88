"""A model belongs to its manifest and its data: checked before heavy imports, and again on load."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recunlearn.foundation.errors import CheckpointError
from recunlearn.foundation.store import file_hash

WEIGHTS, MANIFEST = "weights.safetensors", "manifest.json"


def check_same_data(folder: Path, manifest: Mapping[str, Any], dataset: str, data_hash: str) -> None:
    """Refuse a model whose manifest names other contents than the data set ``dataset`` has.

    Raises:
        CheckpointError: the hashes differ.
    """
    if manifest["data_hash"] != data_hash:
        raise CheckpointError(
            f"The model in {folder} was trained on the data set '{manifest['data']}' with other contents "
            f"than '{dataset}' has now. Name the data it was trained on with --dataset, or train again."
        )


def check_weights(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse weights other than those that the manifest was written with.

    Raises:
        CheckpointError: they are missing or were altered.
    """
    if not (folder / WEIGHTS).is_file():
        raise CheckpointError(f"{folder} is not a complete model: {WEIGHTS} is missing. {again(folder)}")
    if file_hash(folder / WEIGHTS) != manifest["weights_hash"]:
        raise CheckpointError(
            f"{folder / WEIGHTS} is truncated or was altered: its hash is not the one in {MANIFEST}. "
            f"{again(folder)}"
        )


def again(folder: Path) -> str:
    """What to do about a damaged model."""
    return f"Delete the folder {folder} and run the command that made it again."
