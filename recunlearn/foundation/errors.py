"""One root class for a user's mistake or a broken input: one clear sentence, no traceback."""

import difflib
from collections.abc import Iterable


class RecunlearnError(Exception):
    """What went wrong, where, what was received, what is allowed and what to do, in one sentence."""

    exit_code = 1


class UsageError(RecunlearnError):
    """An argument, option, name or settings file that cannot be used (exit code 2)."""

    exit_code = 2


class DataError(RecunlearnError):
    """A data file that cannot be read as interactions, features or ids (exit code 1)."""


class CheckpointError(RecunlearnError):
    """A model file that is incomplete, altered, refused or made from other data (exit code 1)."""


class TraceError(RecunlearnError):
    """A model whose computation cannot be attributed to edges (exit code 1)."""


_SHORT = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "bad_alloc",
)


def is_memory_error(error: BaseException) -> bool:
    """Whether memory was short: torch says it by a class of its own on a GPU, by its text on the CPU.

    >>> is_memory_error(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 9 bytes."))
    True
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return any(sign in str(error).lower() for sign in _SHORT)


def near_miss(name: str, allowed: Iterable[str]) -> str:
    """Return ' Did you mean X?' for the closest allowed name, or an empty string.

    >>> near_miss("NeuMFF", ["BPR", "NeuMF"])
    ' Did you mean NeuMF?'
    """
    folded = {a.casefold(): a for a in allowed}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return f" Did you mean {folded[close[0]]}?" if close else ""
