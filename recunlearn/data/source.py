"""Bytes of a log file: what kind of file it is, its encoding, its separator and its header."""

import csv
import re
from dataclasses import dataclass, field
from pathlib import Path

from recunlearn.foundation.errors import DataError, UsageError, near_miss

SEPARATORS = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "double colon": "::", "space": " "}
_MAGIC = {
    b"PK\x03\x04": "a zip archive: unpack it first (ml-1m.zip: data add ml-1m --from ml-1m.zip)",
    b"\x1f\x8b": "a gzip archive: unpack it first",
    b"BZh": "a bzip2 archive: unpack it first",
    b"\xfd7zXZ": "an xz archive: unpack it first",
    b"\x80\x04\x95": "a pickle, which is never opened: export the log as CSV or parquet",
    b"\x93NUMPY": "a numpy array: export the log as CSV or parquet",
    b"\x89HDF": "an HDF5 file: export the log as CSV or parquet",
    b"SQLite format 3": "an SQLite database: export the log as CSV or parquet",
}
_SAMPLE = 50


@dataclass(frozen=True)
class Text:
    """A text file, ready to be parsed.

    Args:
        path: the file.
        data: its bytes from the header on, in ``encoding``.
        encoding: "utf-8" or "latin-1".
        separator: one of ``SEPARATORS`` or the user's own.
        header: fields of the first line that is not blank (without types where they are RecBole's).
        first_line: number of that line in the file, from 1.
        notes: what a user may want to know (byte order mark, fallback encoding).
    """

    path: Path
    data: bytes
    encoding: str
    separator: str
    header: tuple[str, ...]
    first_line: int
    notes: tuple[str, ...] = field(default=())


def read_bytes(path: Path) -> bytes:
    """Contents of a file that exists, is no folder and is not empty.

    Raises:
        UsageError: no such file, or a folder.
        DataError: an empty or forbidden file, or an archive.
    """
    if not path.exists():
        beside = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        raise UsageError(f"The file {path} does not exist.{near_miss(path.name, beside)} Check the path.")
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder, but a file is needed. Name the CSV, TSV, parquet or .inter file."
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). Check its permissions.") from None
    if not data.strip():
        raise _empty(path, data)
    for magic, what in _MAGIC.items():
        if data.startswith(magic):
            raise DataError(f"{path} is {what}.")
    return data


def read_text(path: Path, separator: str | None = None, raw: bytes | None = None) -> Text:
    """Decode a text file, find its separator and split its header.

    Args:
        path: the file.
        separator: the user's choice (a name in ``SEPARATORS``, ``\\t`` or the characters), None: found.
        raw: bytes read before.

    Raises:
        DataError: binary contents, or a header with a single column or the same name twice.
    """
    data, encoding, notes = _decode(path, read_bytes(path) if raw is None else raw)
    stripped = data.lstrip(b"\r\n")
    first_line = data[: len(data) - len(stripped)].count(b"\n") + 1
    if not stripped.strip():
        raise _empty(path, data)
    # Not str.splitlines: it also splits at characters that may be part of an id.
    sample = re.split(r"\r\n|\r|\n", stripped[: 1 << 16].decode(encoding, errors="ignore"))[:_SAMPLE]
    chosen = find_separator(sample) if separator is None else named_separator(separator)
    header = split_line(sample[0], chosen) if chosen else [sample[0]]
    if len(header) < 2 or chosen is None:
        raise _one_column(path, sample, separator)
    return Text(path, stripped, encoding, chosen, tuple(header), first_line, notes)


def named_separator(text: str) -> str:
    """Characters behind ``--sep``: a name in ``SEPARATORS``, ``\\t``, or the characters themselves.

    >>> named_separator("tab") == named_separator("\\\\t") == "\\t"
    True
    """
    if not text or "\n" in text or "\r" in text:
        raise UsageError(
            f"--sep takes {', '.join(SEPARATORS)} or the characters themselves, but got {text!r}."
        )
    return SEPARATORS.get(text.casefold(), "\t" if text == r"\t" else text)


def find_separator(lines: list[str]) -> str | None:
    """Find the separator that splits most sampled lines into as many fields as the header."""
    best, best_rank = None, (0.0, 0)
    for name, candidate in SEPARATORS.items():
        counts = [len(split_line(line, candidate)) for line in lines if line.strip()]
        if not counts or counts[0] < 2:
            continue
        share = sum(c == counts[0] for c in counts) / len(counts)
        if name == "space" and (share < 1 or best):
            continue
        if (share, counts[0]) > best_rank:
            best, best_rank = candidate, (share, counts[0])
    return best


def split_line(line: str, separator: str) -> list[str]:
    """Fields of one line; quotes count where the separator is one character."""
    if len(separator) > 1:
        return line.split(separator)
    return next(csv.reader([line], delimiter=separator), [])


def _decode(path: Path, data: bytes) -> tuple[bytes, str, tuple[str, ...]]:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return data.decode("utf-16").encode(), "utf-8", ("The file is UTF-16 with a byte order mark.",)
        except UnicodeDecodeError:
            raise _binary(path) from None
    if b"\x00" in data:
        raise _binary(path)
    notes: tuple[str, ...] = ()
    if data.startswith(b"\xef\xbb\xbf"):
        data, notes = data[3:], ("The file starts with a byte order mark, which was skipped.",)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        if _looks_binary(data):
            raise _binary(path) from None
        note = (
            f"The file is not UTF-8 (byte {data[error.start]:#04x} in line {line}) and was read as Latin-1."
        )
        return data, "latin-1", (*notes, note)
    return data, "utf-8", notes


def _empty(path: Path, data: bytes) -> DataError:
    return DataError(
        f"{path} is empty ({len(data)} bytes). It needs a header line and one line per interaction."
    )


def _looks_binary(data: bytes) -> bool:
    head = data[: 1 << 16]
    control = sum(head.count(bytes([b])) for b in range(32) if b not in (9, 10, 12, 13, 30, 31))
    return control > len(head) * 0.01


def _binary(path: Path) -> DataError:
    return DataError(
        f"{path} is a binary file, not text or parquet. Export the interactions as CSV, TSV or parquet."
    )


def _one_column(path: Path, lines: list[str], separator: str | None) -> DataError:
    works = [name for name, s in SEPARATORS.items() if len(split_line(lines[0], s)) > 1]
    tried = f" with --sep {separator!r}" if separator is not None else ""
    advice = (
        f"These separators would split the header: {', '.join(works)}. Choose one with --sep."
        if works
        else f"None of {', '.join(SEPARATORS)} occurs in it. A log needs a user and an item column."
    )
    return DataError(f"{path} has a single column{tried}: its header reads {lines[0][:80]!r}. {advice}")
