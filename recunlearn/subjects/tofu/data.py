"""Question-answer rows from TOFU's files, and from JSON, JSON lines and CSV files of the same shape."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recunlearn.foundation.errors import DataError, UsageError, near_miss
from recunlearn.foundation.store import content_hash
from recunlearn.subjects.tofu.published import NAMES, ROWS_PER_AUTHOR, published_file

SUFFIXES = (".json", ".jsonl", ".csv")
NEEDED = ("question", "answer")


@dataclass(frozen=True)
class Rows:
    """Question-answer rows in a fixed order.

    Args:
        ids: ``[n]`` external id of every row: ``file:number``, or its own field ``id``.
        authors: ``[n]`` whom the row is about: its field ``author``, or ``file:author-k`` for every run of
            20 rows, as TOFU has them.
        question, answer: ``[n]`` texts.
        more: ``[n]`` further fields (paraphrased and perturbed answers).
    """

    ids: NDArray[np.str_]
    authors: NDArray[np.str_]
    question: tuple[str, ...]
    answer: tuple[str, ...]
    more: tuple[Mapping[str, Any], ...]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.question)

    @cached_property
    def hash(self) -> str:
        """Content hash of ids and texts."""
        return content_hash(self.ids, list(self.question), list(self.answer))

    def first(self, count: int) -> "Rows":
        """Only the first rows."""
        parts = (self.ids, self.authors, self.question, self.answer, self.more)
        return Rows(*(part[:count] for part in parts))  # type: ignore[arg-type]


def read_rows(
    files: Sequence[str], folder: Path, *, per_author: int = ROWS_PER_AUTHOR, fetch: bool = False
) -> Rows:
    """Read and join files of rows.

    Args:
        files: TOFU's names (``forget10``), checked against the published checksums, or files (``own.csv``),
            in ``folder`` unless they have a path of their own; ``name[:200]`` takes the first 200 rows.
        folder: where the files lie.
        per_author: rows of an author, where rows do not name theirs.
        fetch: download missing files of TOFU.

    Raises:
        UsageError: unknown name.
        DataError: a missing, altered or unreadable file, a missing or empty field, cells without a name, or a
            row twice.
    """
    if not files:
        raise UsageError("No file of question-answer rows was named. Give files, such as ['forget10'].")
    found = [_read(name, Path(folder), per_author, fetch) for name in files]
    rows = Rows(
        np.concatenate([r.ids for r in found]),
        np.concatenate([r.authors for r in found]),
        tuple(q for r in found for q in r.question),
        tuple(a for r in found for a in r.answer),
        tuple(m for r in found for m in r.more),
    )
    _refuse_twice(rows)
    return rows


def _read(name: str, folder: Path, per_author: int, fetch: bool) -> Rows:
    name, most = _cut(name)
    path = _path(name, folder, fetch)
    records = _records(path)
    if not records:
        raise DataError(f"{path} holds no rows. Give a file with the fields question and answer.")
    where = [f"{path}, row {n}" for n in range(1, len(records) + 1)]
    texts = [_texts(record, place) for record, place in zip(records, where, strict=True)]
    ids = [_name(r, "id", f"{path.stem}:{n}", where[n]) for n, r in enumerate(records)]
    stem = f"{path.stem}:author"
    authors = [_name(r, "author", f"{stem}-{n // per_author}", where[n]) for n, r in enumerate(records)]
    more = [{k: v for k, v in r.items() if k not in NEEDED} for r in records]
    rows = Rows(
        np.array(ids), np.array(authors), tuple(q for q, _ in texts), tuple(a for _, a in texts), tuple(more)
    )
    return rows if most is None else rows.first(most)


def _cut(name: str) -> tuple[str, int | None]:
    """Name and number of its first rows; None: all of them."""
    found = re.fullmatch(r"([^\[\]]*)\[:([0-9]{1,9})\]", name)
    if found is not None and int(found[2]) > 0:
        return found[1], int(found[2])
    if re.search(r"\[[^\]]*:[^\]]*\]?$", name):
        raise UsageError(f"A cut of a file is written as NAME[:200], but got '{name}'.")
    return name, None


def _path(name: str, folder: Path, fetch: bool) -> Path:
    if name in NAMES:
        return published_file(name, folder, fetch=fetch)
    if Path(name).suffix not in SUFFIXES:
        raise UsageError(
            f"Unknown file of rows '{name}'.{near_miss(name, NAMES)} Give a file that ends in "
            f"{', '.join(SUFFIXES)}, or one of TOFU's: {', '.join(NAMES)}."
        )
    path = Path(folder) / name  # an absolute name stays what it is
    if path.stem in NAMES and path.suffix == ".json" and path.parent == Path(folder):
        return published_file(path.stem, folder, fetch=fetch)
    if not path.is_file():
        raise DataError(f"{path} does not exist. Correct the name, or the folder given with --data.")
    return path


def _records(path: Path) -> list[Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".csv":
            return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
        found = json.loads(text) if text.lstrip().startswith("[") else _lines(text)
        json.dumps(found, ensure_ascii=False).encode()  # half a character (\ud800) is no text
        return list(found)
    except (ValueError, OSError, csv.Error, RecursionError) as error:
        raise DataError(
            f"{path} cannot be read as {path.suffix[1:].upper()} rows ({error}). A row needs the fields "
            "question and answer: JSON lines, a JSON list, or CSV with a header, in UTF-8."
        ) from None


def _lines(text: str) -> list[Any]:
    """JSON lines; a text in them may hold further characters that end lines elsewhere."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    return found


def _texts(record: Any, where: str) -> tuple[str, str]:
    if not isinstance(record, Mapping):
        raise DataError(f"{where} is no record of fields. A row needs the fields question and answer.")
    if None in record:
        raise DataError(f"{where} has more cells than the header. Put texts with commas into quotes.")
    for name in NEEDED:
        if name not in record:
            fields = ", ".join(map(str, record)) or "no fields"
            apart = len(record) == 1 and any(c in fields for c in ";\t|")
            way = "Separate columns by commas." if apart else f"Name it '{name}'."
            raise DataError(f"{where} has no field '{name}', only: {fields}. {way}")
        value = record[name]
        if not isinstance(value, str) or not value.strip():
            what = "is empty" if value is None or isinstance(value, str) else "is no text"
            raise DataError(f"{where}: the {name} {what}. Fill it in, or delete the row.")
    return str(record["question"]), str(record["answer"])


def _name(record: Mapping[str, Any], field: str, default: str, where: str) -> str:
    """Id or author of a row: a text or a whole number."""
    value = record.get(field, default)
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise DataError(
            f"{where}: the {field} is no text and no whole number, but {value!r}. Fill it in, or leave the "
            "field out of the file."
        )
    return str(value)


def _refuse_twice(rows: Rows) -> None:
    seen: dict[tuple[str, str], int] = {}
    for n, text in enumerate(zip(rows.question, rows.answer, strict=True)):
        if text in seen:
            raise DataError(
                f"The row {rows.ids[n]} has the question and answer of {rows.ids[seen[text]]}. Each row can "
                "stand once: leave one of the files out, or delete the row."
            )
        seen[text] = n
    values, counts = np.unique(rows.ids, return_counts=True)
    if (counts > 1).any():
        raise DataError(
            f"The id '{values[counts.argmax()]}' stands on {counts.max()} rows. Ids must be unique."
        )


__all__ = ["Rows", "read_rows"]
