"""Artifact store: content hashes, and files that are written whole or not at all."""

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from recunlearn.foundation.errors import RecunlearnError

_SEAL = "hashes.json"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_REFUSED = (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)


def content_hash(*parts: Any) -> str:
    """SHA-256 (32 hex digits) of plain values, arrays, bytes and nested containers of them.

    Mappings and sets are hashed independently of their order; arrays with dtype and shape.

    >>> content_hash({"a": 1, "b": 2}) == content_hash({"b": 2, "a": 1})
    True
    """
    digest = hashlib.sha256()
    for part in parts:
        _feed(digest, part)
    return digest.hexdigest()[:32]


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            value = value.astype(str)
        digest.update(f"array:{value.dtype.str}:{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, bytes):
        digest.update(f"bytes:{len(value)}:".encode() + value)
    elif isinstance(value, Mapping):
        digest.update(b"{")
        for key in sorted(value, key=str):
            _feed(digest, str(key))
            _feed(digest, value[key])
        digest.update(b"}")
    elif isinstance(value, Set):
        _feed(digest, sorted(value, key=repr))
    elif isinstance(value, np.generic):
        _feed(digest, value.item())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        digest.update(b"[")
        for item in value:
            _feed(digest, item)
        digest.update(b"]")
    else:
        digest.update(json.dumps(value, default=str).encode() + b";")


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it is flushed to disk and renamed onto ``path``."""
    path = Path(path)
    with explain_os_errors(path):
        temporary = _temporary_beside(path)
        try:
            yield temporary
            _sync(temporary)
            temporary.chmod(0o644)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def refuse_unwritable(path: Path) -> None:
    """Say before long work, and not after it, that ``path`` cannot be written."""
    path = Path(path)
    with explain_os_errors(path):
        _temporary_beside(path).unlink()


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; on success it takes the place of ``path``."""
    path = Path(path)
    with explain_os_errors(path):
        _make_folder(path.parent)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"))
        try:
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    _sync(file)
            temporary.chmod(0o755)
            if path.exists():
                old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".old"))
                os.replace(path, old / path.name)
                try:
                    os.replace(temporary, path)
                except BaseException:
                    os.replace(old / path.name, path)
                    raise
                finally:
                    shutil.rmtree(old, ignore_errors=True)
            else:
                os.replace(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, whole or not at all."""
    with atomic_file(path) as temporary:
        temporary.write_text(to_json(value), encoding="utf-8")


def to_json(value: Any) -> str:
    """Text of a JSON file, with a line break at its end."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def read_json(path: Path) -> Any:
    """Read a JSON file; a broken or missing one is named in the error."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecunlearnError(f"{path} does not exist. Run the command that writes it again.") from None
    except (ValueError, OSError) as error:
        raise RecunlearnError(
            f"{path} cannot be read as JSON ({error}). Delete it and run the command again."
        ) from None


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes (64 hex digits)."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_seal(folder: Path) -> None:
    """Write the hashes of the files in ``folder`` beside them, for :func:`seal_holds`."""
    write_json(folder / _SEAL, {p.name: file_hash(p) for p in sorted(folder.iterdir()) if p.is_file()})


def seal_holds(folder: Path) -> bool:
    """Tell whether the files are as :func:`write_seal` found them; True where there is no seal."""
    if not (folder / _SEAL).is_file():
        return True
    try:
        sealed = read_json(folder / _SEAL)
        return isinstance(sealed, dict) and all(file_hash(folder / k) == v for k, v in sealed.items())
    except (RecunlearnError, OSError):
        return False


def is_only_sealed(folder: Path) -> bool:
    """Tell whether ``folder`` holds the files that :func:`write_seal` found, unchanged, and nothing else."""
    there = sorted(p.name for p in folder.iterdir() if p.name != _SEAL)
    return (folder / _SEAL).is_file() and seal_holds(folder) and there == sorted(read_json(folder / _SEAL))


@contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turn a full disk or a forbidden folder into one sentence."""
    try:
        yield
    except Exception as error:
        number = _os_error_number(error)
        if number in _FULL:
            raise RecunlearnError(
                f"The disk is full: {path} could not be written. Nothing was changed. "
                "Free space, or set RECUNLEARN_HOME (or --out) to another disk, and run the command again."
            ) from None
        if number in _REFUSED:
            raise RecunlearnError(
                f"{path} cannot be written ({os.strerror(number)}). "
                "Set RECUNLEARN_HOME or --out to a folder you own."
            ) from None
        raise


def _temporary_beside(path: Path) -> Path:
    _make_folder(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    return Path(name)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in _FULL:
            raise
        raise RecunlearnError(
            f"The folder {folder} cannot be made ({os.strerror(error.errno or 0)}). "
            "Set RECUNLEARN_HOME or --out to a folder you own."
        ) from None


def _os_error_number(error: Exception) -> int | None:
    if isinstance(error, OSError):
        return error.errno
    # Libraries written in Rust (safetensors) put the number into the text of an exception of their own.
    found = re.search(r"\(os error (\d+)\)", str(error))
    return int(found[1]) if found else None


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
