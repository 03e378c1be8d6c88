"""Checks of a log at the file boundary: every problem with line numbers, and the parsed columns."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from recunlearn.data.readers import RawLog

MISSING = frozenset({"", "nan", "<na>", "nat", "null", "none"})
SPLITS = {
    0: ("0", "train", "training"),
    1: ("1", "valid", "validation", "val", "dev", "eval"),
    2: ("2", "test", "testing"),
}
_SHOWN = 5
Scale = tuple[float, float]
Test = Callable[[pd.Index], NDArray[np.bool_]]


@dataclass(frozen=True)
class Problem:
    """Why some rows cannot be imported.

    Args:
        sentence: what, where, the first value, what to do.
        rows: how many rows have it.
        lines: the first of their numbers.
    """

    sentence: str
    rows: int
    lines: tuple[int, ...]


@dataclass(frozen=True)
class _Rule:
    column: str
    holds: Test
    says: str
    do: str


def check_log(raw: RawLog, scale: Scale | None = None) -> tuple[list[Problem], NDArray[np.bool_]]:
    """Check every row by a pandera schema; nothing is dropped or repaired.

    Args:
        raw: the log as text.
        scale: allowed lowest and highest rating, or None.

    Returns:
        Problems, and ``[n]`` bool: rows that can be imported.
    """
    import pandera.pandas as pa

    rules = _rules(raw, scale)
    named = {f"{i}": rule for i, rule in enumerate(rules)}
    columns: dict[str, list[pa.Check]] = {}
    for key, rule in named.items():
        columns.setdefault(rule.column, []).append(pa.Check(_by_category(rule.holds), name=key, error=key))
    schema = pa.DataFrameSchema({c: pa.Column(checks=checks) for c, checks in columns.items()})
    good = np.ones(len(raw.table), dtype=bool)
    try:
        schema.validate(raw.table, lazy=True)
    except pa.errors.SchemaErrors as errors:
        cases = errors.failure_cases
        good[np.isin(raw.table.index.to_numpy(), cases["index"].to_numpy().astype(np.int64))] = False
        order = cases.groupby("check", sort=False)
        found = {str(key): group for key, group in order}
        return [_problem(raw, named[k], found[k]) for k in named if k in found], good
    return [], good


def numbers(texts: pd.Index) -> NDArray[np.float64]:
    """Numbers behind texts, NaN where a text is none."""
    return np.asarray(pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce"), dtype=np.float64)


def times(texts: pd.Index) -> NDArray[np.float64]:
    """Times behind texts: numbers as they are, ISO 8601 dates as seconds since 1970 (UTC); NaN for neither.

    A column is taken for dates where more texts are dates than numbers.
    """
    as_numbers = numbers(texts)
    if not len(texts) or np.isfinite(as_numbers).mean() >= 0.5:
        return as_numbers
    dates = pd.to_datetime(pd.Series(texts, dtype=object), format="ISO8601", utc=True, errors="coerce")
    seconds = np.asarray((dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=1), dtype=np.float64)
    return seconds if np.isfinite(seconds).sum() > np.isfinite(as_numbers).sum() else as_numbers


def splits(texts: pd.Index) -> NDArray[np.float64]:
    """0 train, 1 valid, 2 test behind the usual words; NaN for other texts."""
    known = {word: float(label) for label, words in SPLITS.items() for word in words}
    return np.array([known.get(str(t).strip().casefold(), np.nan) for t in texts], dtype=np.float64)


def _rules(raw: RawLog, scale: Scale | None) -> list[_Rule]:
    rules = []
    for role in ("user", "item"):
        column, name = f"{role}_id", getattr(raw.columns, role)
        rules.append(
            _Rule(column, _is_named, f"no {role} id in column '{name}'", "Remove these rows or name them.")
        )
        rules.append(
            _Rule(column, _is_one_line, f"{role} id with a tab or line break", "Write such ids without it.")
        )
    if raw.columns.rating is not None:
        name = raw.columns.rating
        rules.append(
            _Rule(
                "rating",
                _is_number,
                f"no number in the rating column '{name}'",
                "Correct or remove these rows.",
            )
        )
        if scale is not None:
            low, high = scale
            says = f"rating outside the scale {low:g} to {high:g} in column '{name}'"
            rules.append(_Rule("rating", _within(low, high), says, "Correct these rows or --rating-scale."))
    if raw.columns.time is not None:
        says = f"neither a number nor an ISO date in the time column '{raw.columns.time}'"
        rules.append(
            _Rule("time", lambda t: np.isfinite(times(t)), says, "Correct these rows or --time-col none.")
        )
    if raw.columns.split is not None:
        says = f"no split in column '{raw.columns.split}'"
        rules.append(
            _Rule("split", lambda t: np.isfinite(splits(t)), says, "Allowed: train, valid, test (0, 1, 2).")
        )
    return rules


def _by_category(test: Test) -> Callable[["pd.Series[str]"], "pd.Series[bool]"]:
    """Run ``test`` once per distinct text: a million rows have few of them."""

    def check(column: "pd.Series[str]") -> "pd.Series[bool]":
        return pd.Series(test(column.cat.categories)[column.cat.codes.to_numpy()], index=column.index)

    return check


def _problem(raw: RawLog, rule: _Rule, cases: pd.DataFrame) -> Problem:
    lines = sorted(int(i) for i in cases["index"])
    first = raw.table.loc[lines[0], rule.column]
    shown = ", ".join(map(str, lines[:_SHOWN])) + (", ..." if len(lines) > _SHOWN else "")
    plural = raw.unit if len(lines) == 1 else f"{raw.unit}s"
    return Problem(
        f"{raw.path}, {plural} {shown}: {rule.says}, but got {str(first)!r} ({len(lines)} in all). {rule.do}",
        len(lines),
        tuple(lines[:_SHOWN]),
    )


def _is_named(texts: pd.Index) -> NDArray[np.bool_]:
    return np.array([str(t).strip().casefold() not in MISSING for t in texts], dtype=bool)


def _is_one_line(texts: pd.Index) -> NDArray[np.bool_]:
    return np.array([not any(c in str(t) for c in "\t\n\r\x00") for t in texts], dtype=bool)


def _is_number(texts: pd.Index) -> NDArray[np.bool_]:
    """Ratings are kept as float32: what is infinite there is no number."""
    return np.abs(numbers(texts)) <= np.finfo(np.float32).max


def _within(low: float, high: float) -> Test:
    def test(texts: pd.Index) -> NDArray[np.bool_]:
        values = numbers(texts)
        return ~np.isfinite(values) | ((values >= low) & (values <= high))

    return test
