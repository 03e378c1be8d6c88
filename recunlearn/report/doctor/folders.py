"""Where data sets, models and caches lie, and which data sets are there."""

import importlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

from recunlearn.foundation import paths
from recunlearn.report.doctor.finding import Finding
from recunlearn.report.doctor.packages import install_command

LEAST_FREE_GB = 2.0


def folder_findings(home: Path) -> list[Finding]:
    """Whether RECUNLEARN_HOME can be written and how much space is left; creates nothing that stays."""
    place = next((p for p in (home, *home.absolute().parents) if p.exists()), Path("/"))
    change = "Set RECUNLEARN_HOME to a folder that you own"
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        return [Finding("folder", "RECUNLEARN_HOME", f"{home}: {error.strerror}", "missing", change)]
    free = shutil.disk_usage(place).free / 1e9
    space = Finding("folder", "free disk", f"{free:.1f} GB")
    if free < LEAST_FREE_GB:
        space = Finding("folder", "free disk", f"{free:.1f} GB", "note", f"Free space, or: {change}")
    return [Finding("folder", "RECUNLEARN_HOME", f"{home} (writable)"), space, _contents(home)]


def _contents(home: Path) -> Finding:
    found = {"model": paths.models().glob("*"), "cached result": paths.cache().glob("*/*")}
    sums = {name: sum(f.suffix not in (".parts", ".work") for f in files) for name, files in found.items()}
    counts = [f"{n} {name}{'' if n == 1 else 's'}" for name, n in sums.items()]
    return Finding("folder", "stored", ", ".join(counts))


def data_findings() -> list[Finding]:
    """Data sets by name; ml-100k comes with recbole, ml-1m is imported."""
    try:
        catalogue = importlib.import_module("recunlearn.data.catalogue")
        movielens = importlib.import_module("recunlearn.data.movielens")
        movielens.ml_100k_files()
        stored = catalogue.list_data_sets()
    except Exception as error:
        text = f"cannot be read ({type(error).__name__}: {str(error).splitlines()[0]})"
        return [Finding("data set", "ml-100k", text, "missing", install_command())]
    found = [_data_set(info) for info in stored]
    if all(info.name != "ml-1m" for info in stored):
        fix = "python cli.py data add ml-1m --download (or --from ml-1m.zip)"
        found.append(Finding("data set", "ml-1m", "not imported", "note", fix))
    return found


def _data_set(info: Any) -> Finding:
    if info.problem is not None:
        fix = f"python cli.py data remove {info.name}, then add it again"
        return Finding("data set", info.name, info.problem, "note", fix)
    value = f"{info.users:,} users, {info.items:,} items, {info.interactions:,} interactions"
    return Finding("data set", info.name, value)
