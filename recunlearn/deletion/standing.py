"""Which model and which scores stand for a data set, after all deletions so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from recunlearn.deletion import states
from recunlearn.deletion.ledger import Ledger
from recunlearn.deletion.policy import DriftSettings
from recunlearn.deletion.signing import default_folder, read_keys
from recunlearn.foundation import paths
from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.settings import ScoreSettings
from recunlearn.foundation.store import atomic_file
from recunlearn.studies.keys import Keys, keys_for, read_checkpoint
from recunlearn.studies.scoring import Listener, is_stored, scored_users

KEPT = ("user_id", "cud", "band", "predicted_residual")


@dataclass(frozen=True)
class UserScore:
    """Difficulty of one user.

    Args:
        cud: 0 easy to 1 hard.
        band: "easy", "medium" or "hard".
        residual: ``predicted_residual``, the share that a cheap method is expected to leave; None: unknown.
    """

    cud: float
    band: str
    residual: float | None


def jobs_folder() -> Path:
    """Folder of jobs under way, and of scores that are reused."""
    return paths.home() / "ledger" / "jobs"


@dataclass(frozen=True)
class Standing:
    """Model that deletions start from.

    Args:
        keys: run of the model.
        checkpoint: folder where it was named or made by a job; None: the model of the run's settings.
    """

    keys: Keys
    checkpoint: Path | None


def standing_model(ledger: Ledger, settings: ScoreSettings, named: Path | None) -> Standing:
    """Find the model that deletions start from: the named one, the last job's, or the one that was scored.

    Raises:
        UsageError: there is none.
        CheckpointError: it does not belong to the data as they are now.
    """
    folder = named or _of_last_job(ledger, settings.dataset, settings.model)
    keys = keys_for(settings, folder)
    if folder is None and not (keys.model / "manifest.json").is_file():
        folder = _of_last_job(ledger, settings.dataset, None)
        keys = keys_for(settings, folder)
    if not (keys.model / "manifest.json").is_file():
        raise UsageError(
            f"There is no trained {settings.model} of '{settings.dataset}' to delete from. Run first: "
            f"score-users --dataset {settings.dataset} --model {settings.model}, or name a --checkpoint."
        )
    return Standing(keys, folder)


def served_model(settings: ScoreSettings, named: Path | None, keys: Path | None = None) -> Keys:
    """Run whose model is served: the named one, that of the settings, or what the last deletion made of it.

    ``keys``: folder of the keys that the ledger needs; where there are none, there was no deletion.
    """
    run = keys_for(settings, named)
    if named is not None or (run.model / "manifest.json").is_file() or not Ledger.default_path().is_file():
        return run
    if keys is None and not default_folder().is_dir():
        return run
    with Ledger(Ledger.default_path(), read_keys(keys)) as ledger:
        folder = _of_last_job(ledger, settings.dataset, settings.model)
    return run if folder is None else keys_for(settings, folder)


def _of_last_job(ledger: Ledger, dataset: str, model: str | None) -> Path | None:
    """What the last job made of a model (None: of any), while it is there."""
    for job in reversed(ledger.jobs(dataset)):
        after = job.facts.get("after", {})
        if job.state == states.CLOSED and model in (None, after["model"]):
            folder = paths.placed(after["folder"])
            return folder if (folder / "manifest.json").is_file() else None
    return None


def scores_for(
    model: Standing,
    users: Sequence[str],
    drift: Mapping[str, float],
    policy: DriftSettings,
    listener: Listener,
    *,
    needed: bool,
) -> tuple[dict[str, UserScore], str]:
    """Scores of users, and where they come from: "reused", "stored", "computed" or "none".

    Scores made before earlier deletions are reused until the drift since then passes ``rescore``.

    Args:
        model: as it is now.
        users: external ids.
        drift: of the model.
        policy: limits.
        listener: told about progress.
        needed: make scores where there are none.
    """
    settings, checkpoint = model.keys.settings, model.checkpoint
    file = scores_file(settings.dataset, settings.model)
    if drift["since_scores"] > 0 and drift["since_scores"] <= policy.rescore and file.is_file():
        table, source = pd.read_parquet(file), "reused"
    elif needed or is_stored(settings, checkpoint):
        source = "stored" if is_stored(settings, checkpoint) else "computed"
        try:
            table = scored_users(settings, checkpoint=checkpoint, listener=listener).table
        except UsageError as error:
            listener.say(f"Warning: there are no scores to plan by. {error}")
            return {}, "none"
    else:
        return {}, "none"
    _keep(table, file)
    chosen = table[table["user_id"].isin(set(users))]
    rows: list[dict[str, Any]] = [dict(r) for r in chosen.to_dict("records")]  # type: ignore[arg-type]
    return {row["user_id"]: _score(row) for row in rows}, source


def scores_file(dataset: str, model: str) -> Path:
    """Scores that stand for a model over several deletions."""
    return jobs_folder() / f"{dataset}-{model}-scores.parquet"


def drop_scores_of(dataset: str, model: str, users: Sequence[str]) -> None:
    """Take deleted users out of the scores that are kept."""
    file = scores_file(dataset, model)
    if file.is_file():
        table = pd.read_parquet(file)
        _keep(table[~table["user_id"].isin(set(users))], file)


def _keep(table: pd.DataFrame, file: Path) -> None:
    with atomic_file(file) as temporary:
        table[[c for c in KEPT if c in table]].to_parquet(temporary, index=False)


def _score(row: Mapping[str, Any]) -> UserScore:
    residual = float(row.get("predicted_residual", np.nan))
    known = None if np.isnan(residual) else residual
    return UserScore(float(row["cud"]), str(row["band"] or ""), known)


def model_facts(folder: Path) -> dict[str, str]:
    """What identifies a checkpoint: name, hashes, folder (read it by ``paths.placed``).

    Raises:
        CheckpointError: it is none.
    """
    manifest = read_checkpoint(folder)
    return {
        "model": manifest["model"],
        "weights_hash": manifest["weights_hash"],
        "data_hash": manifest["data_hash"],
        "folder": paths.portable(folder),
    }
