"""``score-users``: from a data set's name to a difficulty score per user; stored results are read back."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from recunlearn.foundation import paths
from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.settings import ScoreSettings
from recunlearn.foundation.store import (
    atomic_file,
    atomic_folder,
    read_json,
    seal_holds,
    to_json,
    write_json,
    write_seal,
)
from recunlearn.studies.keys import Keys, keys_for

RESIDUAL = ("predicted_residual", "residual_low", "residual_high")
COLUMNS = (
    "user_id",
    "n_interactions",
    "cud",
    "percentile",
    "band",
    "cud_low",
    "cud_high",
    "s_easy",
    "s_hard",
    "is_anchor",
    "completeness_gap",
    "mean_item_popularity",
    "loss",
    "personalisation_gap",
    *RESIDUAL,
)
"""Columns of every table; those of each method's predicted residual follow."""


@dataclass(frozen=True)
class Listener:
    """Who is told about progress.

    Args:
        say: told sentences (expected times, warnings).
        stage: ``stage(title, total)`` begins a bar and returns ``advance(n)``; total None: unknown.
        bars: whether training shows its own bar.
    """

    say: Callable[[str], None] = lambda sentence: None
    stage: Callable[[str, int | None], Callable[[int], None]] = lambda title, total: lambda n: None
    bars: bool = False


@dataclass(frozen=True)
class UserScores:
    """Scores of every user of a data set, and what to know about them.

    Args:
        table: one row per user, hardest first: :data:`COLUMNS`, then ``predicted_residual_METHOD``; users
            without a training interaction have no score (NaN).
        summary: plain facts: model, metrics, anchor agreement, rank correlations, warnings, seconds.
        folder: where the table was stored.
        fresh: False when it was read from the store.
    """

    table: pd.DataFrame
    summary: Mapping[str, Any]
    folder: Path
    fresh: bool = field(default=True)


def scored_users(
    settings: ScoreSettings, *, checkpoint: Path | None = None, listener: Listener | None = None
) -> UserScores:
    """Score every user of ``settings.dataset``; a second call with the same settings reads the stored table.

    Args:
        settings: data set, model, seed and the settings of every stage.
        checkpoint: folder of a trained model; None: the model of these settings, trained if need be.
        listener: told about progress.

    Raises:
        RecunlearnError: in one sentence, what to do.
    """
    return scored(keys_for(settings, checkpoint), listener)


def scored(keys: Keys, listener: Listener | None = None) -> UserScores:
    """Read the score table of a run, or make it, whatever kind of model is scored."""
    known = _stored(keys.scores)
    if known is not None:
        return known
    from recunlearn.studies.score_stages import compute
    from recunlearn.studies.sources.contract import source_of

    began = time.perf_counter()
    table, summary = compute(keys, listener or Listener())
    summary["seconds"]["total"] = round(time.perf_counter() - began, 1)
    table = table.sort_values("cud", ascending=False, kind="stable", na_position="last")
    table = table[[*COLUMNS, *residual_names(keys.settings.anchors.methods)[len(RESIDUAL) :]]]
    table = source_of(keys).columns(keys).own(table)
    with atomic_folder(keys.scores) as temporary:
        table.to_parquet(temporary / "scores.parquet", index=False)
        write_json(temporary / "summary.json", summary)
        write_seal(temporary)
    return UserScores(table.reset_index(drop=True), summary, keys.scores)


def residual_names(methods: Sequence[str]) -> list[str]:
    """Columns of the predicted residual: mean over methods, its interval, and each method's own."""
    return [*RESIDUAL, *(f"{RESIDUAL[0]}_{method}" for method in methods)]


def score_users(
    dataset: str = "ml-100k",
    model: str = "NeuMF",
    *,
    checkpoint: str | Path | None = None,
    seed: int = 0,
    **settings: Any,
) -> pd.DataFrame:
    """Score every user: a DataFrame with the columns of ``scores.csv``, hardest first.

    Args:
        dataset: a name that ``data list`` shows.
        model: a RecBole general, context-aware or sequential model.
        checkpoint: folder of a trained model to score instead.
        seed: of the split, the training, the probe and the bootstrap.
        settings: further tables of :class:`~recunlearn.foundation.settings.ScoreSettings`, such as
            ``circuits={"steps": 32}`` or ``min_rating=4``.

    >>> table = score_users("ml-100k", "BPR")  # doctest: +SKIP
    """
    from recunlearn.foundation.settings import make_settings

    values = {"dataset": dataset, "model": model, "seed": seed, **settings}
    run = make_settings(ScoreSettings, values, "the arguments of score_users")
    return scored_users(run, checkpoint=Path(checkpoint) if checkpoint else None).table


def export(scores: UserScores, folder: Path) -> list[Path]:
    """Write ``scores.csv``, ``.parquet``, ``.json`` and ``summary.json`` into ``folder``, all or none."""
    folder = Path(folder)
    check_folder(folder)
    files = {
        "scores.csv": lambda p: scores.table.to_csv(p, index=False),
        "scores.parquet": lambda p: scores.table.to_parquet(p, index=False),
        "scores.json": lambda p: scores.table.to_json(p, orient="records", indent=1, force_ascii=False),
        "summary.json": lambda p: p.write_text(to_json(dict(scores.summary)), encoding="utf-8"),
    }
    with ExitStack() as stack:  # all are written before the first takes its place
        temporary = {name: stack.enter_context(atomic_file(folder / name)) for name in files}
        for name, write in files.items():
            write(temporary[name])
    return [folder / name for name in files]


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written, before hours are spent on what goes there."""
    there = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not there.is_dir():
        raise RecunlearnError(f"{there} is a file, but --out needs a folder. Name another one.")
    if not os.access(there, os.W_OK):
        raise RecunlearnError(f"The folder {there} cannot be written. Name another one with --out.")


def default_folder(scores: UserScores, checkpoint: Path | None = None) -> Path:
    """Where results go without ``--out``: by data set and model, or by the checkpoint's folder."""
    name = scores.summary["model"] if checkpoint is None else Path(checkpoint).resolve().name
    return paths.home() / "results" / f"{scores.summary['dataset']}-{name}"


def is_stored(settings: ScoreSettings, checkpoint: Path | None = None) -> bool:
    """Tell whether a run would only read."""
    return _stored(keys_for(settings, checkpoint).scores) is not None


def _stored(folder: Path) -> UserScores | None:
    if not (folder / "summary.json").is_file() or not seal_holds(folder):
        return None
    try:
        table = pd.read_parquet(folder / "scores.parquet")
        return UserScores(table, read_json(folder / "summary.json"), folder, fresh=False)
    except (OSError, ValueError, RecunlearnError):
        return None  # damaged: computed anew and replaced
