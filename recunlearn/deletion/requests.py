"""Deletion requests from a CSV, JSON lines or the command line: all of them are right, or none is taken."""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from recunlearn.data.checks import times
from recunlearn.data.source import find_separator
from recunlearn.deletion.request import AUTOMATIC, Request
from recunlearn.deletion.signing import KeyRing
from recunlearn.foundation.errors import DataError, UsageError, near_miss

COLUMNS = ("user_id", "requested_at", "reference", "item_id", "from", "to")
REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""A reference is also the name of a file: no slash, no leading dot."""
MOST_BYTES = 256 << 20
LONGEST_ID = 1000
_SHOWN = 5
_DATE, _MONTH, _DAY = re.compile(r"\d{4}-\d{2}-\d{2}"), re.compile(r"\d{4}-\d{2}"), 86400.0


def read_requests(file: Path, keys: KeyRing, dataset: str) -> list[Request]:
    """Read a file of requests; ids stay text exactly as written, repeated lines count once.

    Args:
        file: CSV (any usual separator) with a header, or JSON lines (``.jsonl``, ``.ndjson``, ``.json``).
        keys: requests without a reference get one from their keyed hash, the same each time.
        dataset: that the ids belong to.

    Raises:
        UsageError: no such file.
        DataError: one sentence with file, lines, the value and what to do; nothing was taken.
    """
    text = _text(file)
    table = _json_lines(file, text) if _is_json(file, text) else _csv(file, text)
    return _requests(table, str(file), keys, dataset)


def named_requests(users: Sequence[str], keys: KeyRing, dataset: str) -> list[Request]:
    """Requests for users that were named on the command line.

    Raises:
        DataError: an id that cannot be one.
    """
    table = _frame([{"user_id": user} for user in users], range(1, len(users) + 1))
    return _requests(table, "the command line", keys, dataset)


def _text(file: Path) -> str:
    file = Path(file)
    if not file.exists():
        beside = [p.name for p in file.parent.iterdir()] if file.parent.is_dir() else []
        raise UsageError(f"The file {file} does not exist.{near_miss(file.name, beside)} Check --requests.")
    if not file.is_file():
        raise UsageError(f"{file} is no file. Name a CSV or JSON lines file with --requests.")
    try:
        if file.stat().st_size > MOST_BYTES:
            raise DataError(f"{file} has more than {MOST_BYTES >> 20} MiB. Split it into several files.")
        data = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file} cannot be read ({error.strerror}). Check its permissions.") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DataError(
            f"{file}, line {line}: not UTF-8 text (byte {data[error.start]:#04x}). Save it as UTF-8; ids in "
            "another encoding would name others."
        ) from None
    if "\0" in text:
        raise DataError(f"{file} is a binary file. Requests are a CSV or JSON lines.")
    if not text.strip():
        raise DataError(f"{file} is empty. Write a header with user_id, and one request a line.")
    return text


def _is_json(file: Path, text: str) -> bool:
    return Path(file).suffix.lower() in (".jsonl", ".ndjson", ".json") or text.lstrip()[:1] == "{"


def _json_lines(file: Path, text: str) -> pd.DataFrame:
    rows, lines = [], []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(
                line, parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=_object
            )
        except (ValueError, RecursionError) as error:
            raise DataError(f"{file}, line {number}: no JSON ({error}). Write one object a line.") from None
        rows.append(_plain_row(row, f"{file}, line {number}"))
        lines.append(number)
    _check_columns(dict.fromkeys(c for row in rows for c in row), str(file))
    return _frame(rows, lines)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Object of a line; of a key that stands twice, one value would be lost without a word."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _plain_row(row: Any, where: str) -> dict[str, str]:
    if not isinstance(row, dict):
        raise DataError(f'{where}: no JSON object. Write lines such as {{"user_id": "42"}}.')
    for name, value in row.items():
        if not isinstance(value, str | None):
            raise DataError(f"{where}: {name!r} is {json.dumps(value)[:40]}, but text or a number is needed.")
    return {name: value for name, value in row.items() if value is not None}


def _csv(file: Path, text: str) -> pd.DataFrame:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    sample = [line for line in lines if line.strip()][:50]
    try:
        separator = find_separator(sample) or ","
        reader = csv.reader(io.StringIO("\n".join(lines)), delimiter=separator, strict=True)
        found = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise DataError(f"{file}: {error}. Correct the quotes.") from None
    filled = [(n, row) for n, row in found if any(cell.strip() for cell in row)]
    header = [cell.strip() for cell in filled[0][1]] if filled else []
    _check_columns(header, str(file))
    for number, row in filled[1:]:
        if len(row) != len(header):
            raise DataError(
                f"{file}, line {number}: {len(row)} fields under a header of {len(header)}. Correct it."
            )
    rows = [dict(zip(header, row, strict=True)) for _, row in filled[1:]]
    return _frame(rows, [number for number, _ in filled[1:]])


def _check_columns(header: Sequence[str] | Mapping[str, None], where: str) -> None:
    names = list(header)
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise DataError(f"{where} has the column {twice[0]!r} more than once. Rename or remove one.")
    for name in names:
        if name not in COLUMNS and (hint := near_miss(name, COLUMNS)):
            raise DataError(f"{where} has a column {name!r}.{hint} Allowed: {', '.join(COLUMNS)}.")
    if "user_id" not in names and "item_id" not in names:
        shown = ", ".join(repr(n[:40]) for n in names[:10]) or "nothing"
        raise DataError(
            f"{where} has no column user_id: its header reads {shown}. Add the column, or item_id where all "
            "ratings of an item go."
        )


def _frame(rows: Sequence[Mapping[str, str]], lines: Sequence[int] | range) -> pd.DataFrame:
    columns = {c: [row.get(c) or "" for row in rows] for c in COLUMNS}
    return pd.DataFrame(columns, index=pd.Index(list(lines), dtype="int64"), dtype=object)


def _requests(table: pd.DataFrame, where: str, keys: KeyRing, dataset: str) -> list[Request]:
    if table.empty:
        raise DataError(f"{where} holds no request. Write one a line below the header.")
    table[["requested_at", "reference", "from", "to"]] = table[
        ["requested_at", "reference", "from", "to"]
    ].map(str.strip)
    _check_rows(table, where)
    found: dict[str, Request] = {}
    since, until = _periods(table)
    for place, (line, row) in enumerate(zip(table.index, table.to_dict("records"), strict=True)):
        what = (row["user_id"] or None, row["item_id"] or None, since[place], until[place])
        request = Request(row["reference"], *what, requested_at=row["requested_at"])
        if not request.reference:
            name = keys.keyed_hash("reference", dataset, *request.identity)[:16]
            request = Request(f"{AUTOMATIC}{name}", *what, requested_at=row["requested_at"])
        before = found.setdefault(request.reference, request)
        if before.identity != request.identity:
            raise DataError(
                f"{where}, line {line}: the reference {request.reference} was used above for another "
                "deletion. Give each its own."
            )
    return list(found.values())


def _periods(table: pd.DataFrame) -> tuple[list[float | None], list[float | None]]:
    """First and last times of the rows, both included; None: open."""
    since = [_seconds(text) if text else None for text in table["from"]]
    until = [_seconds(text, end=True) if text else None for text in table["to"]]
    return since, until


def _seconds(text: str, *, end: bool = False) -> float:
    """A number as it is, a date as seconds since 1970, its last moment with ``end``; NaN for neither."""
    if _MONTH.fullmatch(text):  # a month would be taken for its first day
        return np.nan
    start = float(times(pd.Index([text], dtype=object))[0])
    return float(np.nextafter(start + _DAY, -np.inf)) if end and _DATE.fullmatch(text) else start


def _check_rows(table: pd.DataFrame, where: str) -> None:
    """Check all rows by a pandera schema; the first kind of problem is told, with its lines."""
    import pandera.pandas as pa

    rules = _rules()
    checks = [pa.Check(test, name=name, error=name) for name, (_, _, test) in rules.items()]
    try:
        pa.DataFrameSchema(checks=checks).validate(table, lazy=True)
    except pa.errors.SchemaErrors as errors:
        cases = errors.failure_cases
        name = next(n for n in rules if (cases["check"] == n).any())
        column, advice, _ = rules[name]
        lines = sorted({int(i) for i in cases["index"][cases["check"] == name]})
        value = str(table.loc[lines[0], column])[:60]
        shown = ", ".join(map(str, lines[:_SHOWN])) + (", ..." if len(lines) > _SHOWN else "")
        raise DataError(
            f"{where}, line {shown}: {name}, but {column} is {value!r} ({len(lines)} in all). {advice}"
        ) from None


Rule = tuple[str, str, Callable[[pd.DataFrame], "pd.Series[bool]"]]


def _rules() -> dict[str, Rule]:
    """Sentence -> column that is shown, advice, and test of every row."""

    def each(column: str, test: Callable[[str], bool]) -> Callable[[pd.DataFrame], "pd.Series[bool]"]:
        return lambda t: t[column].map(test).astype(bool)

    plain = "Write the id as it stands in the data."
    time = "Write a number in the unit of the data, or a date such as 2026-03-31."
    return {
        "a request names a user or an item": ("user_id", "Fill in the id, or delete the line.", _is_named),
        "an id is one line of printable text": ("user_id", plain, each("user_id", _is_printable)),
        "an item's id is one line of printable text": ("item_id", plain, each("item_id", _is_printable)),
        "a reference has 1 to 100 letters, digits, '.', '_' or '-' and starts with a letter or digit": (
            "reference",
            "It becomes the name of the receipt's file: no slashes or blanks.",
            each("reference", lambda r: not r or bool(REFERENCE.fullmatch(r))),
        ),
        "requested_at is a date": ("requested_at", "Write it as 2026-03-31.", each("requested_at", _is_date)),
        "'from' is a time": ("from", time, each("from", _is_time)),
        "'to' is a time": ("to", time, each("to", _is_time)),
        "'from' is not after 'to'": ("from", "Exchange them.", _in_order),
    }


def _is_named(table: pd.DataFrame) -> "pd.Series[bool]":
    return (table["user_id"].str.strip() != "") | (table["item_id"].str.strip() != "")


def _is_printable(text: str) -> bool:
    """No control character, and no half of a surrogate pair, which JSON can spell but no file can hold."""
    hidden = any(ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in text)
    return len(text) <= LONGEST_ID and not hidden


def _is_date(text: str) -> bool:
    if not text:
        return True
    found = pd.to_datetime(text, format="ISO8601", utc=True, errors="coerce")
    return len(text) <= 40 and found is not pd.NaT and not pd.isna(found)


def _is_time(text: str) -> bool:
    return not text or bool(np.isfinite(_seconds(text)))


def _in_order(table: pd.DataFrame) -> "pd.Series[bool]":
    pairs = zip(*_periods(table), strict=True)
    ordered = [low is None or high is None or not low > high for low, high in pairs]
    return pd.Series(ordered, index=table.index)


__all__ = ["COLUMNS", "named_requests", "read_requests"]
