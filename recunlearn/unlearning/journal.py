"""The journal of an unlearning run, from which a killed run goes on as if it had not been killed."""

import time
from pathlib import Path
from typing import Any

from recunlearn.subjects.state_file import read_state, write_state

SECONDS_APART = 10.0
"""Between two entries; what a kill costs at most. Entries change nothing in the run."""
_FILE = "unlearning.ckpt"


class Journal:
    """Newest state of one run in a folder; without a folder nothing is kept.

    Args:
        folder: of the run.
        identity: hash of everything that the run depends on; an entry of another run is not read.
    """

    def __init__(self, folder: Path | None, identity: str) -> None:
        self.path = None if folder is None else Path(folder) / _FILE
        self.identity = identity
        self._written = time.monotonic()

    def due(self) -> bool:
        """Tell whether the next entry should be written now."""
        return self.path is not None and time.monotonic() - self._written >= SECONDS_APART

    def write(self, state: dict[str, Any]) -> None:
        """Replace the entry, whole or not at all."""
        if self.path is None:
            return
        write_state(self.path, self.identity, state)
        self._written = time.monotonic()

    def read(self) -> dict[str, Any] | None:
        """Entry of a killed run with the same identity; anything unreadable is ignored."""
        return None if self.path is None else read_state(self.path, self.identity)

    def discard(self) -> None:
        """Delete the entry of a finished run."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
