"""Looking into files for users: tables, JSON, archives, databases, and anything else as bytes."""

import gzip
import io
import json
import sqlite3
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from recunlearn.data.source import find_separator
from recunlearn.deletion.wanted import USER_NAMES, RowTally, Wanted, plain_name

CHUNK = 1 << 20
MOST_JSON = 256 << 20
"""Bytes of a JSON file that is read as such; larger ones are searched as text only."""
MOST_ROWS = 200_000
DEEPEST = 2
"""Archives within archives."""

Hit = tuple[str, list[int]]
"""Where in a file, and places of users, one a hit."""


class UnreadableError(Exception):
    """A file that cannot be looked into; the text says why."""


def look_into(path: Path, wanted: Wanted) -> Iterator[Hit]:
    """Yield hits in a file, whatever it is called: the format is told by its first bytes.

    Raises:
        UnreadableError: damaged, encrypted or compressed in a way that is not read here.
        OSError: it may not be read.
    """
    with path.open("rb") as file:
        yield from _look(file, path.name, wanted, 0, path)


def _look(file: IO[bytes], name: str, wanted: Wanted, depth: int, path: Path | None) -> Iterator[Hit]:
    head = file.read(1 << 16)
    file.seek(0)
    try:
        if head.startswith(b"PK\x03\x04") and depth < DEEPEST:
            yield from _zip(file, wanted, depth)
        elif head.startswith(b"\x1f\x8b") and depth < DEEPEST:
            with gzip.open(file) as inner:
                yield from _look(_seekable(inner), name.removesuffix(".gz"), wanted, depth + 1, None)
        elif head.startswith((b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf", b"Rar!", b"BZh", b"\xfd7zXZ")):
            raise UnreadableError("compressed in a way that is not read here: unpack it first")
        elif head.startswith(b"PAR1"):
            yield from _parquet(file, wanted)
            yield from _bytes(file, wanted, text=False)
        elif head.startswith(b"SQLite format 3\x00"):
            yield from _bytes(file, wanted, text=False)
            if path is not None:
                yield from _sqlite(path, wanted)
        elif head.startswith(b"\x93NUMPY"):
            yield from _array(file, name, wanted)
        elif b"\x00" in head:
            yield from _bytes(file, wanted, text=False)
            yield from _safetensors(head, wanted)
        else:
            yield from _text(file, name, head, wanted)
    except (zipfile.BadZipFile, gzip.BadGzipFile, EOFError, RuntimeError) as error:
        raise UnreadableError(f"damaged or encrypted ({type(error).__name__})") from error


def _seekable(file: Any) -> IO[bytes]:
    return file if file.seekable() else io.BytesIO(file.read())


def _bytes(file: IO[bytes], wanted: Wanted, *, text: bool) -> Iterator[Hit]:
    """Distinct ids in the raw bytes, chunk by chunk."""
    file.seek(0)
    hits: list[int] = []
    overlap, tail = max(wanted.longest, 1), b""
    while chunk := file.read(CHUNK):
        data = tail + chunk
        # Hits that lie in the tail alone were counted with the chunk before.
        old = wanted.in_bytes(tail, text=text)
        hits += wanted.in_bytes(data, text=text)[len(old) :]
        tail = data[-overlap:]
    if hits:
        yield "text" if text else "bytes", hits


def _zip(file: IO[bytes], wanted: Wanted, depth: int) -> Iterator[Hit]:
    with zipfile.ZipFile(file) as archive:
        for member in archive.namelist():
            named = wanted.in_bytes(member.encode(), text=True)
            if named:
                yield "name of a member", named
            with archive.open(member) as inner:
                for where, hits in _look(_seekable(inner), member, wanted, depth + 1, None):
                    yield f"member {member}: {where}", hits


def _parquet(file: IO[bytes], wanted: Wanted) -> Iterator[Hit]:
    try:
        reader = pq.ParquetFile(file)
        tables = (batch.to_pandas() for batch in reader.iter_batches(batch_size=MOST_ROWS))
        yield from _tables(tables, wanted)
    except (OSError, ValueError) as error:
        raise UnreadableError(f"damaged parquet ({str(error).splitlines()[0]})") from error


def _tables(tables: Iterable[pd.DataFrame], wanted: Wanted) -> Iterator[Hit]:
    """Ids and repeated rows in one table that comes in parts."""
    tally = RowTally(wanted)
    for table in tables:
        yield from wanted.in_table(table)
        tally.add(table)
    if hits := tally.hits():
        yield "rows", hits


def _sqlite(path: Path, wanted: Wanted) -> Iterator[Hit]:
    """Rows of every table, read without a lock and without touching the write-ahead log."""
    address = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as base:
            names = [n for (n,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for name in names:
                quoted = '"' + name.replace('"', '""') + '"'
                tables = pd.read_sql_query(f"SELECT * FROM {quoted}", base, chunksize=MOST_ROWS)
                for where, hits in _tables(tables, wanted):
                    yield f"table {name}: {where}", hits
    except (sqlite3.Error, pd.errors.DatabaseError) as error:
        raise UnreadableError(f"damaged database ({error})") from error


def _array(file: IO[bytes], name: str, wanted: Wanted) -> Iterator[Hit]:
    try:
        values = np.load(file, allow_pickle=False)
    except ValueError:
        yield from _bytes(file, wanted, text=False)
        return
    of_users = plain_name(Path(name).stem) in USER_NAMES
    if values.dtype.kind in "US" or (of_users and values.dtype.kind in "iu"):
        hits = wanted.in_values(values.ravel().tolist(), of_users=of_users or values.dtype.kind in "US")
        if hits:
            yield "array", hits


def _safetensors(head: bytes, wanted: Wanted) -> Iterator[Hit]:
    """Metadata of a safetensors file, for short ids; distinct ones are found in the bytes."""
    size = int.from_bytes(head[:8], "little")
    if head[8:9] == b"{" and size <= len(head) - 8:
        try:
            plain = json.loads(head[8 : 8 + size])
        except ValueError:
            return
        yield from _walked(plain, wanted)


def _text(file: IO[bytes], name: str, head: bytes, wanted: Wanted) -> Iterator[Hit]:
    if head.lstrip()[:1] in (b"{", b"["):
        plain = _json(file)
        if plain is not None:
            yield from _walked(plain, wanted)
            return
    lines = head.decode("utf-8", "replace").splitlines()[:50]
    separator = find_separator(lines) if lines else None
    named = [plain_name(cell) for cell in lines[0].split(separator)] if separator else []
    if separator and (wanted.rows or USER_NAMES.intersection(named)):
        try:
            yield from _table(file, separator, head.splitlines()[0], wanted)
            return
        except (ValueError, pd.errors.ParserError):
            pass
    yield from _bytes(file, wanted, text=True)
    if not separator:
        yield from _lines(file, wanted)


def _table(file: IO[bytes], separator: str, head: bytes, wanted: Wanted) -> Iterator[Hit]:
    file.seek(0)
    options: dict[str, Any] = {"engine": "python"} if len(separator) > 1 else {}
    tables = pd.read_csv(
        file,
        sep=separator,
        dtype=str,
        keep_default_na=False,
        chunksize=MOST_ROWS,
        encoding_errors="replace",
        **options,
    )
    yield from _tables(tables, wanted)
    if named := wanted.in_bytes(head, text=True):
        yield "header", named


def _lines(file: IO[bytes], wanted: Wanted) -> Iterator[Hit]:
    """Lists with one id a line: lines that are a short id and nothing else."""
    file.seek(0)
    short = {u.encode(): p for u, p in wanted.places.items() if not wanted.in_bytes(u.encode(), text=True)}
    hits = [short[line] for line in map(bytes.strip, file) if line in short]
    if hits:
        yield "lines", hits


def _json(file: IO[bytes]) -> Any:
    """Value of a JSON file, or the list of those of its lines; None where it is neither, or too large."""
    file.seek(0, io.SEEK_END)
    if file.tell() > MOST_JSON:
        return None
    file.seek(0)
    data = file.read()
    try:
        return json.loads(data)
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in data.splitlines() if line.strip()]
    except ValueError:
        return None


def _walked(plain: Any, wanted: Wanted) -> Iterator[Hit]:
    """Values and keys of a JSON value; short ids below keys that name users."""
    found: dict[str, list[int]] = {}
    level: list[tuple[str, bool, Any]] = [("", False, plain)]
    while level:
        key, of_users, value = level.pop()
        if isinstance(value, dict):
            hits = wanted.in_values(value, of_users=of_users)
            level += [(str(k), plain_name(k) in USER_NAMES, v) for k, v in value.items()]
        elif isinstance(value, list):
            hits = []
            level += [(key, of_users, v) for v in value]
        else:
            hits = wanted.in_values([value], of_users=of_users)
        if hits:
            found.setdefault(f"key {key}" if key else "value", []).extend(hits)
    for where, hits in found.items():
        # A key may be the id itself: it is not told.
        yield ("a key" if wanted.in_values([where.removeprefix("key ")], of_users=True) else where), hits
    if wanted.rows and isinstance(plain, list) and plain and all(isinstance(row, dict) for row in plain):
        yield from (hit for hit in _tables([pd.DataFrame(plain)], wanted) if hit[0] == "rows")
