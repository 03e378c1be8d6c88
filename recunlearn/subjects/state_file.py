"""One file that holds the state of a run which may be killed: tensors and plain values, no pickled code."""

import io
from pathlib import Path
from typing import Any

import torch

from recunlearn.foundation.store import atomic_file


def write_state(path: Path, identity: str, state: dict[str, Any]) -> None:
    """Replace the file, whole or not at all; ``identity`` is a hash of everything that the run depends on."""
    # In memory first: where the disk is full, torch's own writer fails without saying so.
    buffer = io.BytesIO()
    torch.save({"identity": identity, **state}, buffer)
    with atomic_file(path) as temporary:
        temporary.write_bytes(buffer.getbuffer())


def read_state(path: Path, identity: str) -> dict[str, Any] | None:
    """State of the run with that identity; None for any other, and for anything unreadable."""
    if not path.is_file():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        return None
    fits = isinstance(state, dict) and state.get("identity") == identity
    return state if fits else None
