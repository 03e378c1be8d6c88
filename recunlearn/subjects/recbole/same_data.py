"""A model belongs to the data it was trained on: checked before heavy imports, and again on load."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recunlearn.foundation.errors import CheckpointError


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
