"""Pieces that several processes need: made by one of them, while the others wait."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.store import explain_os_errors, read_json, write_json

T = TypeVar("T")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process makes ``path``; the lock of a killed process is free again."""
    lock = path.with_name(f".{path.name}.lock")
    with explain_os_errors(path):
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def once(path: Path, read: Callable[[Path], T | None], make: Callable[[], None]) -> T:
    """What ``read`` finds at ``path``, made first by one process where it finds None."""
    found = read(path)
    if found is None:
        with locked(path):
            found = read(path)
            if found is None:
                make()
                found = read(path)
    if found is None:
        raise RecunlearnError(f"{path} was removed while it was needed. Run the command again.")
    return found


def json_once(path: Path, make: Callable[[], Any]) -> Any:
    """JSON value stored at ``path``, made first where it is missing or damaged."""
    return once(path, read_plain, lambda: write_json(path, make()))


def read_plain(path: Path) -> Any:
    """JSON value at ``path``; None where there is none that can be read."""
    try:
        return read_json(path)
    except RecunlearnError:
        return None
