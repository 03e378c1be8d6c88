"""From a user's log file to checked :class:`Interactions` and a report of everything that was found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import union_categoricals

from recunlearn.data.atomic import read_features
from recunlearn.data.build import Features, build_interactions
from recunlearn.data.checks import Problem, check_log, numbers, splits, times
from recunlearn.data.interactions import Interactions
from recunlearn.data.readers import RawLog, read_log
from recunlearn.data.splits import positives, take_rows
from recunlearn.data.summary import summarise
from recunlearn.foundation.errors import DataError, UsageError
from recunlearn.foundation.settings import Settings


class ImportSettings(Settings):
    """How a log file is read; stored with the data set."""

    user_col: str | None = None
    item_col: str | None = None
    rating_col: str | None = None
    time_col: str | None = None
    split_col: str | None = None
    """Columns; None: usual names are recognised. "none" leaves rating or time out."""
    min_rating: float | None = None
    """Ratings below are dropped at import; None: every rating is kept."""
    sep: str | None = None
    header: bool = True
    rating_scale: tuple[float, float] | None = None
    duplicates: Literal["first", "last", "all", "error"] = "first"
    """Which row of a repeated user-item pair is kept (file order)."""
    valid_file: str | None = None
    test_file: str | None = None


@dataclass(frozen=True)
class Report:
    """What a log holds and what keeps it from being imported.

    Args:
        facts: plain values: file, format, columns, counts, scale, time range, duplicates, few interactions.
        problems: empty where the log can be imported.
        notes: what was chosen or may surprise.
    """

    facts: dict[str, Any]
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = field(default=())


def import_log(name: str, file: Path, settings: ImportSettings) -> tuple[Interactions, Report]:
    """Read, check and number a log; rows with problems are left out of the result and listed in the report.

    Raises:
        UsageError, DataError: the file cannot be read at all, or no row is usable.
    """
    raws = _read_all(file, settings)
    problems: list[Problem] = []
    parts: list[pd.DataFrame] = []
    for raw, label in raws:
        found, good = check_log(raw, settings.rating_scale)
        problems += found
        parts.append(_parse(raw, label)[good])
    table = _concatenate(parts)
    if table.empty:
        raise DataError(problems[0].sentence)
    built = _build(name, file, table, settings)
    kept, repeated = _without_duplicates(built, settings.duplicates)
    if repeated and settings.duplicates == "error":
        problems.append(_duplicate_problem(file, repeated))
    chosen = positives(kept, settings.min_rating)
    notes = [n for raw, _ in raws for n in raw.notes] + _notes(chosen, repeated, settings)
    facts = _file_facts(raws) | summarise(chosen) | {"repeated_pairs": repeated}
    return chosen, Report(facts, tuple(problems), tuple(notes))


def require_importable(report: Report, file: Path) -> None:
    """Raise the first problem as one sentence; more are counted."""
    if report.problems:
        more = len(report.problems) - 1
        tail = f" {more} more kind{'s' * (more > 1)} of problem: see data check {file}" if more else ""
        raise DataError(report.problems[0].sentence + tail)


def _read_all(file: Path, settings: ImportSettings) -> list[tuple[RawLog, int | None]]:
    own = {1: settings.valid_file, 2: settings.test_file}
    if not any(own.values()):
        return [(_read(file, settings), None)]
    if settings.split_col is not None:
        raise UsageError("Give either --split-col or --valid-file and --test-file, not both.")
    if settings.test_file is None:
        raise UsageError("--valid-file was given without --test-file. Give both, or --test-file alone.")
    files = [(file, 0), *((Path(f), label) for label, f in own.items() if f)]
    raws: list[tuple[RawLog, int | None]] = [(_read(path, settings), label) for path, label in files]
    for raw, _ in raws[1:]:
        for role in ("rating", "time"):
            if (getattr(raw.columns, role) is None) != (getattr(raws[0][0].columns, role) is None):
                raise DataError(
                    f"{file} and {raw.path} must both have a {role} column or neither. "
                    f"Name it with --{role}-col, or leave it out with --{role}-col none."
                )
    return raws


def _read(path: Path, settings: ImportSettings) -> RawLog:
    columns = {r: getattr(settings, f"{r}_col") for r in ("user", "item", "rating", "time", "split")}
    return read_log(path, separator=settings.sep, header=settings.header, **columns)


def _parse(raw: RawLog, label: int | None) -> pd.DataFrame:
    """Ids as categories, the rest as numbers (NaN where a check has failed)."""
    table = raw.table[["user_id", "item_id"]].copy()
    parsers: dict[str, Callable[[pd.Index], NDArray[np.float64]]] = {
        "rating": numbers,
        "time": times,
        "split": splits,
    }
    for column, parse in parsers.items():
        if column in raw.table:
            text = raw.table[column].cat
            table[column] = parse(text.categories)[text.codes.to_numpy()]
    return table if label is None else table.assign(split=float(label))


def _concatenate(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    if len(parts) == 1:
        return parts[0].reset_index(drop=True)
    ids = {c: union_categoricals([p[c] for p in parts]) for c in ("user_id", "item_id")}
    rest = pd.concat([p.drop(columns=["user_id", "item_id"]) for p in parts], ignore_index=True)
    return rest.assign(**ids)


def _build(name: str, file: Path, table: pd.DataFrame, settings: ImportSettings) -> Interactions:
    arrays = {c: table[c].to_numpy() if c in table else None for c in ("rating", "time", "split")}
    card: dict[str, Any] = {"source": file.name}
    if settings.rating_scale is not None:
        card["rating_scale"] = list(settings.rating_scale)
    return build_interactions(
        name,
        table["user_id"],
        table["item_id"],
        **arrays,
        user_features=_features_beside(file, "user"),
        item_features=_features_beside(file, "item"),
        card=card,
    )


def _features_beside(file: Path, kind: str) -> Features | None:
    """``ml.user`` beside ``ml.inter`` or ``ml.train.inter``."""
    if file.suffix != ".inter":
        return None
    beside = file.with_name(f"{file.stem.removesuffix('.train')}.{kind}")
    return read_features(beside, f"{kind}_id") if beside.is_file() else None


def _without_duplicates(interactions: Interactions, keep: str) -> tuple[Interactions, int]:
    pair = pd.Series(interactions.user.astype(np.int64) * len(interactions.items) + interactions.item)
    again = pair.duplicated(keep="last" if keep == "last" else "first").to_numpy()
    repeated = int(again.sum())
    if not repeated or keep in ("all", "error"):
        return interactions, repeated
    kept = take_rows(interactions, np.flatnonzero(~again))
    return replace(kept, card={**kept.card, "repeated_pairs_dropped": repeated}), repeated


def _duplicate_problem(file: Path, repeated: int) -> Problem:
    return Problem(
        f"{file} repeats a user-item pair in {repeated} row{'s' * (repeated > 1)}. "
        "Remove them, or choose --duplicates first, last or all.",
        repeated,
        (),
    )


def _notes(chosen: Interactions, repeated: int, settings: ImportSettings) -> list[str]:
    notes = []
    if repeated and settings.duplicates in ("first", "last"):
        notes.append(
            f"{repeated} rows repeat a user-item pair; the {settings.duplicates} row of each pair in "
            "file order was kept (--duplicates first|last|all|error)."
        )
    notes += choice_notes(chosen, settings.min_rating)
    padded = sum(str(i) != str(i).strip() for ids in (chosen.users, chosen.items) for i in ids)
    if padded:
        notes.append(f"{padded} ids start or end with a space; they are kept as they are.")
    if chosen.split is not None:
        trained = np.bincount(chosen.user[chosen.split == 0], minlength=len(chosen.users)) > 0
        if not trained.all():
            notes.append(f"{int((~trained).sum())} users have no training interaction in your split.")
    return notes


def choice_notes(chosen: Interactions, min_rating: float | None) -> list[str]:
    """Say which ratings count as positives; nothing where there are no ratings."""
    if chosen.rating is None:
        return []
    if min_rating is None:
        return ["Every rating counts as a positive (--min-rating not given)."]
    dropped = chosen.card["dropped"]
    return [
        f"Ratings below {min_rating:g} were dropped (--min-rating): {dropped['interactions']} interactions, "
        f"{dropped['users']} users, {dropped['items']} items."
    ]


def _file_facts(raws: Sequence[tuple[RawLog, int | None]]) -> dict[str, Any]:
    first = raws[0][0]
    facts: dict[str, Any] = {"file": ", ".join(str(raw.path) for raw, _ in raws), **first.facts}
    facts["columns"] = {role: name for role, name in vars(first.columns).items() if name is not None}
    facts["columns_not_used"] = list(first.left_out)
    facts["rows"] = sum(len(raw.table) for raw, _ in raws)
    return facts
