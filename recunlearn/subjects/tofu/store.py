"""Language models on disk: folders that transformers can load, with a manifest of how they came about."""

import copy
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from recunlearn.foundation.errors import CheckpointError
from recunlearn.foundation.store import (
    atomic_folder,
    refuse_unwritable,
    write_json,
)
from recunlearn.subjects.device import resolve_device
from recunlearn.subjects.tofu.data import Rows
from recunlearn.subjects.tofu.manifest import MANIFEST, check_weights, read_manifest, weights_hash
from recunlearn.subjects.tofu.model import (
    load_model,
    load_tokenizer,
    new_model,
    new_tokenizer,
    quiet_transformers,
    refuse_reading_ahead,
)
from recunlearn.subjects.tofu.settings import LanguageSettings
from recunlearn.subjects.tofu.subject import LanguageSubject
from recunlearn.subjects.tofu.training import STATE, fit

FORMAT = 1
PACKAGES = ("recunlearn", "torch", "transformers", "numpy", "lightning")


class Start:
    """``start(seed)``: the model that training begins with, read once; a new one depends on the seed."""

    def __init__(
        self, settings: LanguageSettings, tokenizer: Any, model: nn.Module | None, online: bool
    ) -> None:
        self.settings, self.tokenizer, self.online = settings, tokenizer, online
        self._kept = model

    def __call__(self, seed: int) -> nn.Module:
        """Return a model of one's own to change."""
        if self.settings.model is None:
            return new_model(self.settings.architecture, self.tokenizer, seed)
        if self._kept is None:
            self._kept, _ = load_model(self.settings.model, online=self.online)
        return copy.deepcopy(self._kept)


def untrained_subject(rows: Rows, settings: LanguageSettings, *, online: bool = False) -> LanguageSubject:
    """Subject with the model as it is before training, on the device of the settings.

    Raises:
        UsageError: the model is not causal.
    """
    device = resolve_device(settings.device)
    model = None
    if settings.model is None:
        tokenizer = _tokenizer(rows, settings, online)
    else:
        model, tokenizer = load_model(settings.model, online=online)
        if settings.tokenizer is not None:
            tokenizer = load_tokenizer(settings.tokenizer, online=online)
    start = Start(settings, tokenizer, model, online)
    begun = start(settings.seed).to(device)
    refuse_reading_ahead(begun)
    return LanguageSubject(rows, begun, tokenizer, settings, start)


def _tokenizer(rows: Rows, settings: LanguageSettings, online: bool) -> Any:
    if settings.tokenizer is not None:
        return load_tokenizer(settings.tokenizer, online=online)
    prompts = [settings.text.prompt.replace("{question}", q) for q in rows.question]
    return new_tokenizer([*prompts, *rows.answer], settings.vocabulary)


def train_subject(
    rows: Rows,
    settings: LanguageSettings,
    *,
    folder: Path,
    progress: bool = False,
    online: bool = False,
    subject: LanguageSubject | None = None,
) -> LanguageSubject:
    """Train the model of the settings and store it in ``folder``; a killed run goes on after its last epoch.

    Args:
        subject: the untrained one, where it is there already; its model is trained in place.
    """
    refuse_unwritable(folder)
    subject = subject or untrained_subject(rows, settings, online=online)
    work = folder.with_name(f"{folder.name}.part")
    every = subject.samples.rows(np.arange(len(subject.entities)))
    options: dict[str, Any] = {"seed": settings.seed, "work": work, "progress": progress}
    fitted = fit(subject.model, subject.samples, every, settings.training, **options)
    subject.model, subject.losses = fitted.model, fitted.losses
    save_subject(subject, folder)
    (work / STATE).unlink(missing_ok=True)
    if work.is_dir() and not any(work.iterdir()):
        work.rmdir()
    return subject


def save_subject(subject: LanguageSubject, folder: Path) -> None:
    """Write model, tokenizer and manifest, whole or not at all; sets ``subject.weights_hash``."""
    model: Any = subject.model
    with atomic_folder(folder) as temporary, quiet_transformers():
        model.save_pretrained(temporary, max_shard_size="100GB")
        subject.tokenizer.save_pretrained(temporary)
        subject.weights_hash = weights_hash(temporary)
        manifest = {
            "kind": "language",
            "format": FORMAT,
            "settings": subject.settings.model_dump(mode="json"),
            "data_hash": subject.rows.hash,
            "rows": len(subject.rows),
            "losses": list(subject.losses),
            "weights_hash": subject.weights_hash,
            "versions": {p: version(p) for p in PACKAGES},
        }
        write_json(temporary / MANIFEST, manifest)


def load_subject(
    folder: Path, rows: Rows, settings: LanguageSettings, *, online: bool = False
) -> LanguageSubject:
    """Load what :func:`save_subject` wrote.

    Args:
        settings: of the run; those of text must be the ones it was trained with.

    Raises:
        CheckpointError: no such folder, altered weights, or other rows than those of the training.
    """
    manifest = read_manifest(folder)
    if manifest["data_hash"] != rows.hash:
        raise CheckpointError(
            f"{folder} was trained on other rows ({manifest['rows']:,}) than these ({len(rows):,}). Name the "
            "files that it was trained on."
        )
    check_weights(folder, manifest)
    model, tokenizer = load_model(str(Path(folder).absolute()))
    model = model.to(resolve_device(settings.device))
    return LanguageSubject(
        rows,
        model,
        tokenizer,
        settings,
        Start(settings, tokenizer, None, online),
        weights_hash=manifest["weights_hash"],
        losses=tuple(manifest["losses"]),
    )


__all__ = ["load_subject", "save_subject", "train_subject", "untrained_subject"]
