"""Every kind of file that this program stores under its home, and what a deletion of users does to it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from recunlearn.data.catalogue import EMBEDDED
from recunlearn.foundation import paths
from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.store import read_json

Treatment = Literal["rewrite", "remove", "keep"]


@dataclass(frozen=True)
class Kind:
    """One kind of stored thing.

    Args:
        name: what a person calls it.
        place: glob under the home, or under the folder of the data set where it says ``{dataset}``; the thing
            is whatever matches, a file or a folder with all that is in it.
        treatment: ``rewrite``: users are rows that can go; ``remove``: it was made with them and can be made
            again; ``keep``: it holds no user, or looks after its users itself.
        owner: data set that a thing belongs to, None where nobody knows.
        why: for the guide.
    """

    name: str
    place: str
    treatment: Treatment
    owner: Callable[[Path], str | None]
    why: str


@dataclass(frozen=True)
class Stored:
    """A stored thing of a known kind."""

    path: Path
    kind: Kind

    @property
    def owner(self) -> str | None:
        """Data set that it belongs to, None where nobody knows."""
        return self.kind.owner(self.path)


def _plain(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
    except RecunlearnError:
        return {}
    return found if isinstance(found, dict) else {}


def _name(path: Path) -> str | None:
    return path.name.removesuffix(".json")


def _of_model(path: Path) -> str | None:
    owner = _plain(path / "manifest.json").get("data")
    return owner if isinstance(owner, str) else None


def _of_work(path: Path) -> str | None:
    """Owner of a work folder: of the model that it is named after, else unknown."""
    name = path.name.removesuffix(".work")
    models = [p for p in path.parent.iterdir() if name.startswith(p.name) and (p / "manifest.json").is_file()]
    return _of_model(max(models, key=lambda p: len(p.name))) if models else _by_name(path)


def _by_name(path: Path) -> str | None:
    """Data set that the name begins with; the longest where there are several."""
    known = [EMBEDDED, *(p.name for p in paths.data_sets().glob("*"))]
    return max((d for d in known if path.name.startswith(f"{d}-")), key=len, default=None)


def _of_record(path: Path) -> str | None:
    settings = _plain(path / "manifest.json").get("settings")
    owner = settings.get("dataset") if isinstance(settings, dict) else None
    return owner if isinstance(owner, str) else None


def _of_parts(path: Path) -> str | None:
    return _of_record(path.with_name(path.name.removesuffix(".parts")))


def _of_table(path: Path) -> str | None:
    owner = _plain(path / "summary.json").get("dataset")
    return owner if isinstance(owner, str) else None


def _nobody(path: Path) -> None:
    return None


KINDS = (
    Kind("data set", "data/*", "rewrite", _name, "rows, features and the id leave; rewritten whole"),
    Kind("deletions", "deletions/*", "keep", _nobody, "keyed hashes and numbers of rows only"),
    Kind("work folder", "models/*.work", "remove", _of_work, "shards, journals and logs of trainings"),
    Kind("model", "models/*", "remove", _of_model, "weights and id map; those to keep are named"),
    Kind("probe parts", "cache/probe/*.parts", "remove", _of_parts, "losses of the pool, by place"),
    Kind("anchors", "cache/probe/*", "rewrite", _of_record, "one row a user of the pool"),
    Kind("circuits", "cache/circuits/*", "rewrite", _of_record, "one row a user"),
    Kind("score table", "cache/scores/*", "rewrite", _of_table, "one row a user"),
    Kind(
        "models of a benchmark", "cache/benchmark/models/*", "remove", _nobody, "weights trained with users"
    ),
    Kind("originals of a benchmark", "cache/benchmark/own/*", "remove", _nobody, "weights of shards"),
    Kind("membership references", "cache/benchmark/membership/*", "remove", _nobody, "losses by user"),
    Kind("parts of a validity study", "cache/validity/*", "remove", _nobody, "losses and models by user"),
    Kind("hash of the packaged data", "cache/ml-100k-hash.json", "keep", _nobody, "a hash"),
    Kind("exported tables", "results/*", "rewrite", _of_table, "scores.csv, .parquet and .json; pictures go"),
    Kind("exports for RecBole", "exports/*", "remove", _by_name, "weights, and the data beside them"),
    Kind("scores that stand", "ledger/jobs/*-scores.parquet", "rewrite", _by_name, "one row a user"),
    Kind("ledger", "ledger/*", "keep", _nobody, "drops the id itself when a request is closed"),
    Kind("keys", "keys/*", "keep", _nobody, "no user"),
    Kind("receipts", "receipts/*", "keep", _nobody, "keyed hashes only"),
)
"""Earlier kinds win where a path matches two."""
LEFTOVER = (".tmp", ".old")
"""Endings of the hidden names that a killed write leaves behind."""
_LOCK = ".lock"


def stored() -> Iterator[Stored]:
    """Everything under the home that a kind matches, once each."""
    seen: set[Path] = set()
    for kind in KINDS:
        for path in sorted(paths.home().glob(kind.place)):
            if path not in seen and not path.name.startswith("."):
                seen.add(path)
                yield Stored(path, kind)


def leftovers() -> list[Path]:
    """Hidden files and folders of writes that were killed, wherever they lie under the home."""
    found = [p for p in paths.home().rglob(".*") if p.suffix in LEFTOVER]
    return sorted(p for p in found if not any(parent in found for parent in p.parents))


def unknown() -> list[Path]:
    """Files under the home that no kind covers: nobody can say whether they hold a user."""
    home = paths.home()
    known, left = [s.path for s in stored()], leftovers()
    files = [p for p in home.rglob("*") if p.is_file() and p.suffix != _LOCK]
    return [p for p in files if not any(k == p or k in p.parents for k in (*known, *left))]
