"""Purge: every file of this program that holds deleted users is rewritten without them or removed.

Each step leaves a whole file or none, so that a killed purge is completed by the same call. What is intended
is written down before it is done, so that the report is complete, too.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recunlearn.data import movielens
from recunlearn.data.catalogue import EMBEDDED, check_known, data_hash
from recunlearn.data.storage import read_manifest
from recunlearn.data.tombstones import Erasure, erase
from recunlearn.deletion.inventory import Stored, leftovers, stored, unknown
from recunlearn.deletion.rewriting import (
    Action,
    MustGoError,
    export_actions,
    parquet_actions,
    record_actions,
    table_actions,
)
from recunlearn.foundation import paths
from recunlearn.foundation.errors import CheckpointError, RecunlearnError
from recunlearn.foundation.store import content_hash, explain_os_errors, read_json, write_json
from recunlearn.studies.keys import read_checkpoint

ELSEWHERE = (
    "folders that were named with --out: score tables, forget sets, benchmarks, pictures, models",
    "exports of embeddings and for RecBole, and every index or service that was built from them",
    "backups and snapshots of the disk, and copies on other machines",
)
_REWRITE = {
    "anchors": record_actions,
    "circuits": record_actions,
    "score table": table_actions,
    "exported tables": export_actions,
    "scores that stand": parquet_actions,
}


@dataclass(frozen=True)
class PurgeReport:
    """What a purge did; places are given relative to the home, and no id stands in them.

    Args:
        rewritten: stored without the users.
        removed: gone.
        outside: what the program cannot reach, for a person to handle.
    """

    rewritten: tuple[str, ...]
    removed: tuple[str, ...]
    outside: tuple[str, ...]

    def to_plain(self) -> dict[str, list[str]]:
        """Plain lists for JSON."""
        return {name: list(value) for name, value in vars(self).items()}


def purge(
    dataset: str,
    users: Sequence[str],
    *,
    keep: Sequence[Path] = (),
    key: Callable[[str], str],
    erasures: Sequence[Erasure] = (),
) -> PurgeReport:
    """Delete users from a data set and from everything that was made from it under the home.

    No other command may be writing under the same home meanwhile.

    Args:
        dataset: a name that ``data list`` shows.
        users: external ids of whole users; those deleted before are looked for all the same.
        keep: folders of models made without the users, which stay.
        key: keyed hash of an id; only hashes are kept.
        erasures: single interactions besides; whatever was made from the data with them is removed.

    Raises:
        UsageError: an unknown data set, or users that neither are nor were in it.
        CheckpointError: a model to keep still holds one of the users.
    """
    check_known(dataset)
    _check_kept(keep, set(users))
    erase(dataset, [*(Erasure(user) for user in users), *erasures], key)
    intentions = _Intentions(dataset, users, erasures, key)
    if dataset != EMBEDDED:
        intentions.add("rewritten", paths.data_sets() / dataset)
    kept = {Path(folder).resolve() for folder in keep}
    data_now = data_hash(dataset) if any(not e.whole_user for e in erasures) else None
    for thing in [s for s in stored() if s.path.resolve() not in kept]:
        _treat(thing, _treatment(thing, dataset, set(users), data_now), set(users), intentions)
    for path in leftovers():
        intentions.add("removed", path)
        _remove(path)
    removed = intentions.found["removed"]
    rewritten = [p for p in intentions.found["rewritten"] if p not in set(removed)]
    return PurgeReport(tuple(rewritten), tuple(removed), outside(dataset))


def outside(dataset: str) -> tuple[str, ...]:
    """What may still hold the users and lies beyond this program."""
    found = [f"unknown file under the home: {_shown(path)}" for path in unknown()]
    if dataset == EMBEDDED:
        files = movielens.ml_100k_files()
        found.append(f"the installed recbole package: {files['inter']}, {files['user']}")
    else:
        settings = read_manifest(paths.data_sets() / dataset).get("settings") or {}
        sources = [settings.get(k) for k in ("file", "valid_file", "test_file")]
        found += [f"the imported file: {name}" for name in dict.fromkeys(filter(None, sources))]
    return (*found, *ELSEWHERE)


def _check_kept(keep: Sequence[Path], users: set[str]) -> None:
    for folder in keep:
        read_checkpoint(Path(folder))
        if _in_id_map(Path(folder), users):
            raise CheckpointError(
                f"The model in {folder} still has a user to purge in its id map, so it cannot be kept. "
                "Make it by delete-users, or do not name it."
            )


def _in_id_map(folder: Path, users: set[str]) -> bool:
    """Whether a model knows one of the users; a model that cannot be read may."""
    try:
        return not users.isdisjoint(read_json(folder / "idmap.json")["users"])
    except (RecunlearnError, KeyError, TypeError):
        return True


def _treatment(thing: Stored, dataset: str, users: set[str], data_now: str | None) -> str:
    """``rewrite``, ``remove`` or ``keep``; ``data_now`` is given where single interactions were erased."""
    treatment, owner = thing.kind.treatment, thing.owner
    if treatment == "keep" or thing.kind.name == "data set" or owner not in (None, dataset):
        return "keep"
    if thing.kind.name == "model":
        stale = data_now is not None and _data_of(thing.path) != data_now
        return "remove" if stale or _in_id_map(thing.path, users) else "keep"
    if treatment == "remove" or data_now is not None:
        return "remove"
    return "rewrite" if owner is not None else _unknown_owner(thing, users)


def _data_of(folder: Path) -> str | None:
    try:
        return str(read_json(folder / "manifest.json")["data_hash"])
    except (RecunlearnError, KeyError, TypeError):
        return None


def _unknown_owner(thing: Stored, users: set[str]) -> str:
    """A table of nobody knows whose users goes if it has one of that name."""
    try:
        entities = read_json(thing.path / "manifest.json")["entities"]
    except (RecunlearnError, KeyError, TypeError):
        return "remove"
    return "keep" if users.isdisjoint(entities) else "remove"


def _treat(thing: Stored, treatment: str, users: set[str], intentions: "_Intentions") -> None:
    """Do what is to be done about one thing, after writing it down."""
    actions: list[Action] = []
    if treatment == "rewrite":
        try:
            actions = _REWRITE[thing.kind.name](thing.path, users)
        except MustGoError:
            treatment = "remove"
    if treatment == "remove":
        intentions.add("removed", thing.path)
        _remove(thing.path)
    elif actions:
        intentions.add("rewritten", thing.path)
        with explain_os_errors(thing.path):
            for act in actions:
                act()


def _remove(path: Path) -> None:
    """Take a file or folder away; a kill in between leaves a hidden leftover that the next purge removes."""
    with explain_os_errors(path):
        if path.suffix in (".tmp", ".old") and path.name.startswith("."):
            aside = path
        else:
            aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=".purged.", suffix=".tmp"))
            os.replace(path, aside / "it")
        if aside.is_dir():
            shutil.rmtree(aside)
        else:
            aside.unlink(missing_ok=True)


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(paths.home()))
    except ValueError:
        return str(path)


class _Intentions:
    """What a purge means to do, on disk before it is done; named by keyed hashes, it holds no id."""

    def __init__(
        self, dataset: str, users: Sequence[str], erasures: Sequence[Erasure], key: Callable[[str], str]
    ) -> None:
        parts = [key("\t".join(map(str, vars(e).values()))) for e in erasures]
        name = content_hash(dataset, sorted(map(key, users)), sorted(parts))
        self.file = paths.deletions() / "purges" / f"{name}.json"
        self.found: dict[str, list[str]] = {"rewritten": [], "removed": []}
        # Users who came back by a new import and go once more are another purge: the data are others.
        self.data = data_hash(dataset)
        before: Any = read_json(self.file) if self.file.is_file() else {}
        if before.get("data") == self.data:
            self.found = {k: list(before.get(k, [])) for k in self.found}

    def add(self, what: str, place: Path) -> None:
        """Write down one more."""
        shown = _shown(place)
        if shown not in self.found[what]:
            self.found[what].append(shown)
            write_json(self.file, {"data": self.data, **self.found})
