"""Log files as columns of text: CSV, TSV, parquet and RecBole's ``.inter``."""

import csv
import io
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from recunlearn.data.atomic import split_header
from recunlearn.data.columns import Columns, pick_columns
from recunlearn.data.source import SEPARATORS, Text, read_bytes, read_text
from recunlearn.foundation.errors import DataError

ROLES = {"user": "user_id", "item": "item_id", "rating": "rating", "time": "time", "split": "split"}


@dataclass(frozen=True)
class RawLog:
    """A log as text, before any check.

    Args:
        path: the file.
        table: columns among ``user_id, item_id, rating, time, split``, each a category of text (missing: "");
            the index holds the line number in a text file, the row number (from 1) in parquet.
        columns: names in the file.
        unit: "line" or "row".
        left_out: columns of the file that are not used.
        facts: separator, encoding, size.
        notes: what a user may want to know.
    """

    path: Path
    table: pd.DataFrame
    columns: Columns
    unit: str
    left_out: tuple[str, ...] = ()
    facts: Mapping[str, str | int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_log(
    path: Path, *, separator: str | None = None, header: bool = True, **columns: str | None
) -> RawLog:
    """Read a log; ids stay text exactly as in the file (parquet integers: their decimal text).

    Args:
        path: CSV, TSV, other separated text, parquet or ``.inter``; told apart by contents.
        separator: None: found from the first lines.
        header: False: the file has no header line and columns are called "1", "2", ...
        columns: ``user, item, rating, time, split`` as in :func:`recunlearn.data.columns.pick_columns`.

    Raises:
        UsageError, DataError: one sentence with file, line and value.
    """
    raw = read_bytes(path)
    if raw[:4] == b"PAR1":
        return _read_parquet(path, columns)
    text = read_text(path, separator, raw)
    table, names = _parse(text, header)
    picked = pick_columns(names, str(path), **columns)
    chosen = _select(table, picked)
    if chosen.empty:
        raise DataError(f"{path} has a header but no interactions.")
    facts = {"format": _format(text), "separator": _spoken(text.separator), "encoding": text.encoding}
    return RawLog(path, chosen, picked, "line", _rest(names, picked), facts, text.notes)


def _parse(text: Text, header: bool) -> tuple[pd.DataFrame, list[str]]:
    types = split_header(list(text.header))
    names = [h.rsplit(":", 1)[0] if h.rsplit(":", 1)[0] in types else h for h in text.header]
    if header:
        _check_header(text.path, names)
    else:
        names = [str(i + 1) for i in range(len(names))]
    data, separator = text.data, text.separator
    if len(separator) > 1:
        data, separator = data.replace(separator.encode(text.encoding), b"\x1f"), "\x1f"
    # A quote sign in tab- or '::'-separated logs is nearly always a plain character of a title.
    quoted = text.separator not in ("\t", "::") or data.lstrip(b"\xef\xbb\xbf").startswith(b'"')
    table = _read_csv(text, data, separator, csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE, header)
    if table.shape[1] != len(names):
        raise DataError(
            f"{text.path}: line {text.first_line} reads as {len(names)} columns alone and as "
            f"{table.shape[1]} together with the lines below. Correct the quotes in it."
        )
    table.columns = pd.Index(names)
    table.index = pd.RangeIndex(text.first_line + header, text.first_line + header + len(table))
    return table, names


def _read_csv(text: Text, data: bytes, separator: str, quoting: Literal[0, 3], header: bool) -> pd.DataFrame:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table: pd.DataFrame = pd.read_csv(
                io.BytesIO(data),
                sep=separator,
                header=0 if header else None,
                dtype="category",
                keep_default_na=False,
                skip_blank_lines=False,
                index_col=False,
                quoting=quoting,
                encoding=text.encoding,
                low_memory=False,
            )
            return table
    except pd.errors.ParserWarning:
        raise DataError(
            f"{text.path} has {len(text.header)} columns in line {text.first_line}, but more fields in the "
            "lines below. Correct the header, or choose the separator with --sep."
        ) from None
    except pd.errors.ParserError as error:
        raise DataError(_parser_sentence(text, str(error))) from None


def _parser_sentence(text: Text, message: str) -> str:
    if found := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", message):
        line = int(found[2]) + text.first_line - 1
        return (
            f"{text.path} has {found[1]} columns, but {found[3]} fields in line {line} "
            f"(separator: {_spoken(text.separator)}). Correct the line or choose the separator with --sep."
        )
    if found := re.search(r"EOF inside string starting at row (\d+)", message):
        line = int(found[1]) + text.first_line
        return f"{text.path}: the quote that opens in line {line} is never closed. Correct that line."
    return f"{text.path} cannot be parsed: {' '.join(message.split())}."


def _check_header(path: Path, names: Sequence[str]) -> None:
    twice = sorted({n for n in names if list(names).count(n) > 1})
    if twice:
        raise DataError(f"{path} has the column {twice[0]!r} more than once. Rename one in the header line.")
    if all(re.fullmatch(r"-?\d+(\.\d+)?", n.strip()) for n in names):
        raise DataError(
            f"{path} seems to have no header: its first line reads {', '.join(names)}. Add a line of column "
            "names, or give --no-header and number the columns: --user-col 1 --item-col 2."
        )


def _select(table: pd.DataFrame, picked: Columns) -> pd.DataFrame:
    used = {role: name for role, name in vars(picked).items() if name is not None}
    chosen = pd.DataFrame({ROLES[role]: table[name] for role, name in used.items()})
    blank = np.ones(len(chosen), dtype=bool)
    for name in table.columns:
        codes, empty = table[name].cat.codes.to_numpy(), table[name].cat.categories == ""
        blank &= empty[codes] if len(empty) else True
        if not blank.any():
            break
    return chosen[~blank]


def _rest(names: Sequence[str], picked: Columns) -> tuple[str, ...]:
    return tuple(n for n in names if n not in vars(picked).values())


def _format(text: Text) -> str:
    atomic = len(split_header(list(text.header))) > 0
    return "RecBole .inter" if text.path.suffix == ".inter" or atomic else "text"


def _spoken(separator: str) -> str:
    return next((name for name, s in SEPARATORS.items() if s == separator), repr(separator))


def _read_parquet(path: Path, columns: Mapping[str, str | None]) -> RawLog:
    try:
        names = pq.read_schema(path).names
        picked = pick_columns(names, str(path), **columns)
        used = {role: name for role, name in vars(picked).items() if name is not None}
        arrow = pq.read_table(path, columns=list(used.values()))
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path} is no readable parquet file ({str(error).splitlines()[0]}). Write or download it again."
        ) from None
    parts = {ROLES[r]: _as_text(arrow.column(n), f"column '{n}' of {path}") for r, n in used.items()}
    table = pd.DataFrame(parts)
    if table.empty:
        raise DataError(f"{path} has columns but no interactions.")
    table.index = pd.RangeIndex(1, len(table) + 1)
    return RawLog(path, table, picked, "row", _rest(names, picked), {"format": "parquet"})


def _as_text(column: "pa.ChunkedArray", where: str) -> pd.Series:
    """Categories of text: integers in decimal, whole floats without '.0', times in ISO, null as ''."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_nested(kind) or pa.types.is_boolean(kind):
        raise DataError(f"The {where} has the type {kind}, but text, numbers or times are needed.")
    encoded = column.cast(kind).combine_chunks().dictionary_encode()
    names = [_text_of(v) for v in encoded.dictionary.to_pylist()]
    codes = encoded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)
    merged, unique = pd.factorize(np.array([*names, ""], dtype=object))
    return pd.Series(pd.Categorical.from_codes(merged[codes], pd.Index(unique)))


def _text_of(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
