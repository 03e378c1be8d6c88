"""MovieLens-1M from its official zip (or the unpacked folder): ratings, users and films, checked by count."""

import csv
import io
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

from recunlearn.data.build import build_interactions
from recunlearn.data.interactions import Interactions
from recunlearn.foundation.errors import DataError, UsageError, near_miss

URL = "https://files.grouplens.org/datasets/movielens/ml-1m.zip"
MD5 = "c4d9eecfca2ab87c1945afe126590906"
COUNTS = {"users": 6_040, "items": 3_706, "interactions": 1_000_209}
HISTOGRAM = {1: 56_174, 2: 107_557, 3: 261_197, 4: 348_971, 5: 226_310}
CITATION = (
    "F. Maxwell Harper and Joseph A. Konstan. 2015. The MovieLens Datasets: History and Context. "
    "ACM Transactions on Interactive Intelligent Systems 5, 4, Article 19."
)
_LARGEST = 200 << 20
"""Bytes that one unpacked member may have; the largest official one has 25 million."""
_COLUMNS = {
    "ratings.dat": ["user_id", "item_id", "rating", "time"],
    "users.dat": ["user_id", "gender", "age", "occupation", "zip_code"],
    "movies.dat": ["item_id", "movie_title", "genre"],
}


def read_ml_1m(source: Path) -> Interactions:
    """Read the official layout: ``::`` between fields, Latin-1, no header.

    Args:
        source: ``ml-1m.zip``, or a folder that holds ``ratings.dat``, ``users.dat`` and ``movies.dat``.

    Raises:
        UsageError: no such file.
        DataError: no zip, a damaged zip, a missing member, or other counts than the published ones.
    """
    ratings, users, movies = (_table(source, member) for member in _COLUMNS)
    rating = pd.to_numeric(ratings["rating"].astype(str), errors="coerce").to_numpy(np.float64)
    time = pd.to_numeric(ratings["time"].astype(str), errors="coerce").to_numpy(np.float64)
    _check_numbers(source, rating, time)
    built = build_interactions(
        "ml-1m",
        ratings["user_id"],
        ratings["item_id"],
        rating=rating,
        time=time,
        user_features=(users.astype(str), dict.fromkeys(users.columns, "token")),
        item_features=_films(movies.astype(str)),
        card={"source": "MovieLens 1M (GroupLens)", "rating_scale": [1, 5], "citation": CITATION},
    )
    _check_counts(source, built)
    return built


def _table(source: Path, member: str) -> pd.DataFrame:
    data = _member(source, member)
    if not data.strip():
        raise DataError(f"{member} in {source} is empty. Download ml-1m.zip again from {URL}")
    if b"\t" in data:
        raise DataError(
            f"{member} in {source} holds tabs, which MovieLens-1M does not. Use the official ml-1m.zip."
        )
    try:
        return pd.read_csv(
            io.BytesIO(data.replace(b"::", b"\t")),
            sep="\t",
            names=_COLUMNS[member],
            index_col=False,
            dtype="category",
            keep_default_na=False,
            quoting=csv.QUOTE_NONE,
            encoding="latin-1",
            low_memory=False,
        )
    except (ValueError, pd.errors.ParserWarning) as error:
        raise DataError(
            f"{member} in {source} has not the official layout {'::'.join(_COLUMNS[member])} "
            f"({' '.join(str(error).split())}). Use the official ml-1m.zip."
        ) from None


def _member(source: Path, member: str) -> bytes:
    if not source.exists():
        beside = [p.name for p in source.parent.iterdir()] if source.parent.is_dir() else []
        raise UsageError(f"The file {source} does not exist.{near_miss(source.name, beside)} Check --from.")
    if source.is_dir():
        file = next((f for f in (source / member, source / "ml-1m" / member) if f.is_file()), None)
        if file is None:
            raise _incomplete(source, member)
        return file.read_bytes()
    try:
        with zipfile.ZipFile(source) as archive:
            name = next((n for n in (f"ml-1m/{member}", member) if n in archive.namelist()), None)
            if name is None or archive.getinfo(name).file_size > _LARGEST:
                raise _incomplete(source, member)
            return archive.read(name)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise DataError(
            f"{source} is truncated, damaged or no zip archive ({error}). Download ml-1m.zip again from {URL}"
        ) from None


def _incomplete(source: Path, member: str) -> DataError:
    return DataError(
        f"{source} is not MovieLens-1M: it has no member ml-1m/{member} of the expected size. "
        f"The official file is {URL}"
    )


def _films(movies: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """Title without its year, year, and genres separated by one space: RecBole's column names."""
    parts = movies["movie_title"].str.extract(r"^(?P<title>.*?)\s*(?:\((?P<year>\d{4})\))?$")
    table = pd.DataFrame(
        {
            "item_id": movies["item_id"],
            "movie_title": parts["title"].str.split().str.join(" "),
            "release_year": parts["year"].fillna(""),
            "genre": movies["genre"].str.replace(" ", "_").str.replace("|", " "),
        }
    )
    types = {"item_id": "token", "movie_title": "token_seq", "release_year": "token", "genre": "token_seq"}
    return table, types


def _check_numbers(source: Path, *columns: np.ndarray) -> None:
    for column in columns:
        bad = np.flatnonzero(~np.isfinite(column))
        if len(bad):
            raise DataError(
                f"Line {bad[0] + 1} of ratings.dat in {source} has no number for rating and time. "
                f"Download ml-1m.zip again from {URL}"
            )


def _check_counts(source: Path, built: Interactions) -> None:
    found = {"users": len(built.users), "items": len(built.items), "interactions": len(built)}
    for what, expected in COUNTS.items():
        if found[what] != expected:
            raise DataError(
                f"{source} is not the official MovieLens-1M: it has {found[what]:,} {what}, not "
                f"{expected:,}. Import other data with: data add NAME --file F"
            )
    values, counts = np.unique(np.asarray(built.rating), return_counts=True)
    histogram = {float(v): int(c) for v, c in zip(values, counts, strict=True)}
    if histogram != HISTOGRAM:
        raise DataError(
            f"{source} is not the official MovieLens-1M: its ratings count {histogram}, expected {HISTOGRAM}."
        )
