"""Folders of the stages of a language model's run; imports no torch."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

from recunlearn.foundation import paths
from recunlearn.foundation.errors import CheckpointError, RecunlearnError, UsageError
from recunlearn.foundation.store import content_hash
from recunlearn.studies.keys import Keys, stage_folders
from recunlearn.subjects.tofu.data import read_rows
from recunlearn.subjects.tofu.manifest import MANIFEST, check_weights, read_manifest
from recunlearn.subjects.tofu.settings import LanguageSettings

FORMAT = 2
"""Raised when the same settings would no longer make the same model."""
ONE_BATCH = 1
"""Of models whose steps have one batch each: 2 changed nothing but how several batches make a step."""
TRAINED = ("training", "text", "architecture", "tokenizer", "vocabulary", "seed")
"""Settings that a trained model depends on, beside the model that training begins with."""


def language_keys(
    settings: LanguageSettings,
    place: Path,
    *,
    checkpoint: Path | None = None,
    into: Path | None = None,
    online: bool = False,
) -> Keys:
    """Find the folders of a run.

    Args:
        settings: of the run.
        place: folder of the rows' files.
        checkpoint: folder of a model that was trained here; None: the one of these settings.
        into: folder that the model is trained into; None: one of RECUNLEARN_HOME/models.
        online: whether missing data and models may be fetched.

    Raises:
        RecunlearnError: rows that cannot be read, no checkpoint, altered weights, or no extra ``llm``.
        UsageError: ``into`` holds anything but this model.
    """
    rows = read_rows(settings.files, place, per_author=settings.rows_per_author, fetch=online)
    if checkpoint is None:
        identity: Any = _identity(rows.hash, settings)
        folder = paths.models() / f"tofu-{identity[:12]}" if into is None else Path(into)
        if into is not None:
            _check_free(folder, settings, rows.hash)
    else:
        folder = Path(checkpoint)
        manifest = read_manifest(folder)
        check_weights(folder, manifest)
        identity = [rows.hash, manifest["weights_hash"]]
    by = [identity, settings.entity, rows.authors if settings.entity == "author" else rows.ids]
    stages = stage_folders(settings, [*by, settings.text.model_dump()])
    return Keys(settings, folder, *stages, source="language", place=Path(place), online=online)


def entities_of(keys: Keys) -> list[str]:
    """Ids of the rows or authors of a run, in their order."""
    settings, place = keys.settings, keys.place or Path()
    rows = read_rows(settings.files, place, per_author=settings.rows_per_author, fetch=keys.online)
    found = rows.ids if settings.entity == "row" else rows.authors
    return list(dict.fromkeys(found.tolist()))


def _identity(rows: str, settings: LanguageSettings) -> str:
    """What a trained model depends on."""
    values = settings.model_dump(mode="json", include=set(TRAINED))
    try:
        packages = {p: version(p) for p in ("recunlearn", "torch", "transformers")}
    except ModuleNotFoundError:
        raise RecunlearnError(
            "Language models need the extra 'llm' (transformers is not installed). Install it: pip install "
            "recunlearn[llm]"
        ) from None
    form = ONE_BATCH if settings.training.accumulate == 1 else FORMAT
    return content_hash(form, rows, values, _start(settings.model), packages)


def _check_free(folder: Path, settings: LanguageSettings, rows: str) -> None:
    """Refuse a folder that holds anything but the model of these settings: it would be replaced."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        manifest = read_manifest(folder)
    except CheckpointError:
        raise UsageError(
            f"{folder} is not empty and holds no language model that was trained here. Name another folder "
            "with --out."
        ) from None
    names = ("model", *TRAINED)
    wanted = settings.model_dump(mode="json", include=set(names))
    other = [name for name in names if manifest["settings"].get(name) != wanted[name]]
    other += ["files"] * (manifest["data_hash"] != rows)
    if other:
        raise UsageError(
            f"{folder} holds a language model that was trained with other settings ({', '.join(other)}; see "
            f"{folder / MANIFEST}) and is not replaced. Name another folder with --out, or delete it."
        )


def _start(model: str | None) -> Any:
    """A model by its name, or by the sizes and times of its files: reading gigabytes takes long."""
    if model is None or not Path(model).exists():
        return model
    path = Path(model)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    stats = [(f.name, f.stat()) for f in files if f.is_file()]
    return [[name, s.st_size, s.st_mtime_ns] for name, s in stats]
