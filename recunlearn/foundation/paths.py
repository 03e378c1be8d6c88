"""Where data sets, models and caches live on disk."""

import os
from pathlib import Path

import platformdirs


def home() -> Path:
    """Folder of data sets, models and caches: ``RECUNLEARN_HOME`` or the platform's user data folder."""
    named = os.environ.get("RECUNLEARN_HOME")
    return Path(named).expanduser() if named else Path(platformdirs.user_data_dir("recunlearn"))


def portable(path: Path) -> str:
    """Path relative to the home where it lies below it, else absolute; :func:`placed` reads it.

    A copy of the home then means its own files, never those of the home that it was copied from.
    """
    path, below = path.absolute(), home().absolute()
    return str(path.relative_to(below) if path.is_relative_to(below) else path)


def placed(text: str) -> Path:
    """Path that :func:`portable` wrote."""
    return home() / text


def data_sets() -> Path:
    """Folder of imported data sets, one sub-folder each."""
    return home() / "data"


def models() -> Path:
    """Folder of trained models, one sub-folder each."""
    return home() / "models"


def cache() -> Path:
    """Folder of stage results stored by content hash."""
    return home() / "cache"


def deletions() -> Path:
    """Folder that remembers what was deleted from each data set, by keyed hashes only."""
    return home() / "deletions"
