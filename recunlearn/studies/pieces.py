"""Pieces of a long study, each stored as it finishes, so that a killed run goes on where it stopped."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from recunlearn.foundation.store import atomic_file, content_hash

Arrays = Mapping[str, NDArray[Any]]


class Pieces:
    """Named groups of arrays in a folder; without a folder nothing is kept.

    A file that cannot be read is made again: it holds nothing that cannot be recomputed.
    """

    def __init__(self, folder: Path | None) -> None:
        """Use ``folder``, which belongs to one study with one set of settings."""
        self.folder = folder

    def get(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """Arrays stored under ``name``, or what ``make`` returns, stored first."""
        stored = self.read(name)
        if stored is not None:
            return stored
        arrays = {k: np.ascontiguousarray(v) for k, v in make().items()}
        if self.folder is not None:
            with atomic_file(self.folder / f"{name}.safetensors") as temporary:
                save_file(arrays, temporary, metadata={"hash": content_hash(arrays)})
        return arrays

    def read(self, name: str) -> Arrays | None:
        """Arrays stored under ``name``, or None."""
        path = None if self.folder is None else self.folder / f"{name}.safetensors"
        if path is None or not path.exists():
            return None
        try:
            arrays = load_file(path)
            with safe_open(path, "numpy") as file:
                written = (file.metadata() or {}).get("hash")
        except (SafetensorError, OSError):
            return None
        return arrays if written in (None, content_hash(arrays)) else None
