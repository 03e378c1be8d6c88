"""Folders of the stages of a language model's run; imports no torch."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

from recunlearn.foundation import paths
from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.store import content_hash
from recunlearn.studies.keys import Keys, stage_folders
from recunlearn.subjects.tofu.data import read_rows
from recunlearn.subjects.tofu.manifest import read_manifest
from recunlearn.subjects.tofu.settings import LanguageSettings

FORMAT = 2
"""Raised when the same settings would no longer make the same model."""
ONE_BATCH = 1
"""Of models whose steps have one batch each: 2 changed nothing but how several batches make a step."""


def language_keys(
    settings: LanguageSettings, place: Path, *, checkpoint: Path | None = None, online: bool = False
) -> Keys:
    """Find the folders of a run.

    Args:
        settings: of the run.
        place: folder of the rows' files.
        checkpoint: folder of a model that was trained here; None: the one of these settings.
        online: whether missing data and models may be fetched.

    Raises:
        RecunlearnError: rows that cannot be read, no checkpoint, or no extra ``llm``.
    """
    rows = read_rows(settings.files, place, per_author=settings.rows_per_author, fetch=online)
    if checkpoint is None:
        identity: Any = _identity(rows.hash, settings)
        folder = paths.models() / f"tofu-{identity[:12]}"
    else:
        folder = Path(checkpoint)
        identity = [rows.hash, read_manifest(folder)["weights_hash"]]
    by = [identity, settings.entity, rows.authors if settings.entity == "author" else rows.ids]
    stages = stage_folders(settings, [*by, settings.text.model_dump()])
    return Keys(settings, folder, *stages, source="language", place=Path(place), online=online)


def _identity(rows: str, settings: LanguageSettings) -> str:
    """What a trained model depends on."""
    names = ("training", "text", "architecture", "tokenizer", "vocabulary", "seed")
    values = settings.model_dump(mode="json", include=set(names))
    try:
        packages = {p: version(p) for p in ("recunlearn", "torch", "transformers")}
    except ModuleNotFoundError:
        raise RecunlearnError(
            "Language models need the extra 'llm' (transformers is not installed). Install it: pip install "
            "recunlearn[llm]"
        ) from None
    form = ONE_BATCH if settings.training.accumulate == 1 else FORMAT
    return content_hash(form, rows, values, _start(settings.model), packages)


def _start(model: str | None) -> Any:
    """A model by its name, or by the sizes and times of its files: reading gigabytes takes long."""
    if model is None or not Path(model).exists():
        return model
    path = Path(model)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    stats = [(f.name, f.stat()) for f in files if f.is_file()]
    return [[name, s.st_size, s.st_mtime_ns] for name, s in stats]
