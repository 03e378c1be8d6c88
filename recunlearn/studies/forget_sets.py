"""Forget sets from a score table, and the files that hold them; imports no torch."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from recunlearn.difficulty.forget_sets import TOLERANCE, Candidates
from recunlearn.foundation.errors import DataError, RecunlearnError, UsageError
from recunlearn.foundation.records import ForgetSet
from recunlearn.foundation.settings import ScoreSettings, make_settings
from recunlearn.foundation.store import atomic_file, content_hash, read_json, to_json
from recunlearn.foundation.words import USERS as CALLED
from recunlearn.foundation.words import Words
from recunlearn.studies.columns import OF_ENTITY, USERS, Columns, columns_in
from recunlearn.studies.keys import Keys, keys_for
from recunlearn.studies.scoring import UserScores, check_folder

NEEDED = ("user_id", "n_interactions", "cud", "is_anchor", "mean_item_popularity")
IDS: dict[Any, Any] = {c.entity: str for c in OF_ENTITY.values()}
"""Types of the columns of ids: text."""
MANIFEST = "manifest.json"
SETTINGS = ("matched", "definition", "mean_cud", "mean_item_popularity", "anchors", "outside", "probed")


def read_scores(path: Path) -> tuple[pd.DataFrame, dict[str, Any] | None]:
    """Score table of ``score-users --out`` (its folder, or a CSV, Parquet or JSON file), and its summary.

    The table has the default names of columns, whatever was scored.

    Raises:
        DataError: no such file, or no score table.
    """
    path = Path(path)
    file = next((f for n in ("parquet", "csv") if (f := path / f"scores.{n}").is_file()), path)
    if not file.is_file():
        raise DataError(
            f"{path} holds no score table. Give a file that score-users wrote, such as scores.csv, "
            "or its folder."
        )
    readers: dict[str, Any] = {".parquet": pd.read_parquet, ".json": _read_json, ".csv": _read_csv}
    if file.suffix not in readers:
        raise DataError(
            f"{file} is no score table: .csv, .parquet or .json is expected, as score-users wrote."
        )
    try:
        table = readers[file.suffix](file)
    except (ValueError, OSError, UnicodeDecodeError, pd.errors.ParserError) as error:
        raise DataError(f"{file} cannot be read as a score table ({error}).") from None
    table = columns_in(table).plain(table)
    missing = [c for c in NEEDED if c not in table]
    if missing:
        raise DataError(
            f"{file} is no score table: the column{'s' * (len(missing) > 1)} {', '.join(missing)} "
            f"{'are' if len(missing) > 1 else 'is'} missing. Give a file that score-users wrote."
        )
    _check_columns(table, file)
    summary = file.parent / "summary.json"
    return table, read_json(summary) if summary.is_file() else None


def _check_columns(table: pd.DataFrame, file: Path) -> None:
    """Refuse a table that was changed by hand into something that no score table is."""
    twice = table["user_id"].astype(str).duplicated()
    if twice.any():
        raise DataError(f"{file} is no score table: {int(twice.sum())} of its rows repeat a user.")
    if not len(table):
        raise DataError(f"{file} is a score table without users. Run score-users again.")
    for column in ("n_interactions", "cud", "mean_item_popularity"):
        values = pd.to_numeric(table[column], errors="coerce")
        wrong = values.isna() & table[column].notna() & (table[column].astype(str) != "")
        if column == "n_interactions":
            wrong |= ~(values >= 0) | (values % 1 != 0)
        if wrong.any() or np.isinf(values).any():
            row = int(np.flatnonzero(wrong | np.isinf(values))[0])
            kind = "count" if column == "n_interactions" else "number"
            raise DataError(
                f"{file} is no score table: {column} is '{table[column].iloc[row]}' in row {row + 1}, but a "
                f"{kind} is expected. Run score-users again."
            )


def _read_csv(file: Path) -> pd.DataFrame:
    return pd.read_csv(file, dtype=IDS, keep_default_na=False, na_values={"cud": [""]})


def _read_json(file: Path) -> pd.DataFrame:
    return pd.read_json(file, dtype=IDS)


def candidates_of(table: pd.DataFrame, keys: Keys | None, words: Words = CALLED) -> Candidates:
    """Columns that sets are drawn by; who was probed is read from the run's store, where it still is."""
    ordered = table.sort_values("user_id", kind="stable")
    entities = ordered["user_id"].astype(str).to_numpy(dtype=str)
    return Candidates(
        entities,
        ordered["n_interactions"].to_numpy(dtype=np.int64),
        pd.to_numeric(ordered["cud"]).to_numpy(dtype=np.float64),
        pd.to_numeric(ordered["mean_item_popularity"]).to_numpy(dtype=np.float64),
        ordered["is_anchor"].astype(str).str.lower().eq("true").to_numpy(),
        None if keys is None else _probed(keys, entities),
        words,
    )


def keys_of(summary: Mapping[str, Any] | None) -> Keys | None:
    """Stored stages of the run that a summary describes; None where they are not known here."""
    if summary is None:
        return None
    try:
        settings = make_settings(ScoreSettings, dict(summary["settings"]), "summary.json")
        keys = keys_for(settings)
        if str(keys.model) != summary["model_folder"]:
            keys = keys_for(settings, Path(summary["model_folder"]))
    except (RecunlearnError, KeyError, TypeError, ValueError):
        return None
    return keys


def _probed(keys: Keys, entities: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Users in the probe's pool: ``[n]`` bool."""
    try:
        pool = read_json(keys.probe / MANIFEST)["entities"]
    except (RecunlearnError, KeyError, TypeError):
        return None
    return np.isin(entities, np.asarray(pool, dtype=str))


def check_listed(asked: Sequence[str], candidates: Candidates, file: Path) -> None:
    """Refuse users of an own list that the score table does not have."""
    unknown = sorted(set(asked) - set(candidates.entities.tolist()))
    if unknown:
        raise UsageError(
            f"{len(unknown)} of the {len(asked)} users in {file} are not in the score table, such as "
            f"{unknown[0]!r}. Correct the file."
        )


def export_sets(
    sets: Sequence[ForgetSet],
    folder: Path,
    facts: Mapping[str, Any],
    fraction: float | None,
    columns: Columns = USERS,
) -> Path:
    """Write one CSV a set (``user_id``, ``n_interactions``) and ``manifest.json``, all or none.

    Args:
        sets: to write.
        folder: where to; other files in it stay.
        facts: what the scores were made from.
        fraction: of the users; None for an own list.
        columns: names of the columns.
    """
    check_folder(folder)
    manifest = {
        "scores": dict(facts),
        "fraction": fraction,
        "tolerance": TOLERANCE if all(s.settings["matched"] for s in sets) else None,
        "sets": [_entry(s) for s in sets],
    }
    with ExitStack() as stack:  # all are written before the first takes its place, the manifest last
        place = stack.enter_context(atomic_file(folder / MANIFEST))
        place.write_text(to_json(manifest), encoding="utf-8")
        for one in sets:
            temporary = stack.enter_context(atomic_file(folder / f"{one.name}.csv"))
            rows = pd.DataFrame({"user_id": one.entities, "n_interactions": one.n_interactions})
            columns.own(rows).to_csv(temporary, index=False)
    return folder / MANIFEST


def _entry(one: ForgetSet) -> dict[str, Any]:
    return {
        "name": one.name,
        "stratum": one.stratum,
        "draw": one.draw,
        "seed": one.seed,
        "users": len(one.entities),
        "interactions": int(one.n_interactions.sum()),
        **one.settings,
        "hash": one.hash,
        "file": f"{one.name}.csv",
    }


def load_sets(folder: Path) -> list[ForgetSet]:
    """Read what :func:`export_sets` wrote.

    Raises:
        RecunlearnError: a file is missing, or its users are no longer those of the manifest.
    """
    manifest = read_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("sets"), list):
        raise DataError(f"{folder / MANIFEST} describes no forget sets. Run forget-sets again.")
    return [_load(folder, entry) for entry in manifest["sets"]]


def _load(folder: Path, entry: Mapping[str, Any]) -> ForgetSet:
    try:
        file = folder / Path(entry["file"]).name
        table = pd.read_csv(file, dtype=IDS, keep_default_na=False)
        table = columns_in(table).plain(table)
        entities = table["user_id"].to_numpy(dtype=str)
        counts = table["n_interactions"].to_numpy(dtype=np.int64)
        settings = {k: entry.get(k) for k in SETTINGS}
        found = ForgetSet(entities, counts, entry["stratum"], entry["draw"], entry["seed"], settings)
        intact = found.hash == entry["hash"]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"A forget set of {folder / MANIFEST} cannot be read ({error}). Run forget-sets again."
        ) from None
    if not intact:
        raise DataError(
            f"{file} was changed after it was drawn. Run forget-sets again, or use it with --users."
        )
    return found


def scores_facts(
    table: pd.DataFrame, summary: Mapping[str, Any] | None, scored: UserScores | None = None
) -> dict[str, Any]:
    """What identifies the scores that sets were drawn by."""
    known = scored.summary if scored is not None else summary or {}
    by_user = table.sort_values("user_id", kind="stable")
    digest = content_hash(by_user["user_id"].to_numpy(dtype=str), by_user["cud"].to_numpy(dtype=np.float64))
    return {
        "dataset": known.get("dataset"),
        "model": known.get("model"),
        "seed": (known.get("settings") or {}).get("seed"),
        "hash": digest,
        "users": len(table),
    }
