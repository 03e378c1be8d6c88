"""RecBole's atomic files: tab-separated text whose header reads ``name:type``."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd

from recunlearn.data.build import Features
from recunlearn.foundation.errors import DataError

TYPES = ("token", "token_seq", "float", "float_seq")


def split_header(columns: list[str]) -> dict[str, str]:
    """Column name -> RecBole type; columns without a known type are left out.

    >>> split_header(["user_id:token", "age"])
    {'user_id': 'token'}
    """
    pairs = (c.rsplit(":", 1) for c in columns if ":" in c)
    return {name: kind for name, kind in pairs if kind in TYPES}


def read_features(path: Path, id_column: str) -> Features:
    """Read a ``.user`` or ``.item`` file: the id first, tokens as text, floats as numbers (empty: NaN).

    Raises:
        DataError: no id column, a column without type, or a float column with other text.
    """
    try:
        table = pd.read_csv(
            path, sep="\t", dtype=str, keep_default_na=False, quoting=csv.QUOTE_NONE, encoding="utf-8-sig"
        )
    except (ValueError, OSError) as error:
        raise DataError(f"{path} cannot be read as a RecBole feature file: {str(error).strip()}.") from None
    types = split_header(list(table.columns))
    if len(types) != table.shape[1] or types.get(id_column) != "token":
        raise DataError(
            f"The header of {path} must name '{id_column}:token' and give every column a type "
            f"({', '.join(TYPES)}), but it reads {', '.join(map(repr, table.columns))}."
        )
    table.columns = pd.Index(list(types))
    for name, kind in types.items():
        if kind == "float":
            table[name] = _floats(table[name], path)
    order = [id_column, *(c for c in types if c != id_column)]
    return table[order], {c: types[c] for c in order}


def _floats(text: pd.Series, path: Path) -> "pd.Series[float]":
    numbers = pd.to_numeric(text.where(text != "", None), errors="coerce").astype(np.float64)
    bad = np.flatnonzero(numbers.isna().to_numpy() & (text != "").to_numpy())
    if len(bad):
        raise DataError(
            f"Column '{text.name}' of {path} has the type float, but line {bad[0] + 2} holds "
            f"{text.iloc[bad[0]]!r}. Correct the line or give the column the type token."
        )
    return numbers
