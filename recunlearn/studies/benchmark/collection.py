"""One tidy long table of all cells."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd

from recunlearn.foundation.store import atomic_file

COLUMNS = ("model", "dataset", "method", "set", "draw", "seed", "metric", "value", "unit")
PERCENT = ("ue", "ue_clipped")
NATS = ("loss", "noise")
COUNTS = ("forget_users", "not_measurable", "cold_items")
COSTS = {
    "cost/seconds": "s",
    "cost/retraining_seconds": "s",
    "cost/of_retraining": "share",
    "cost/steps": "steps",
    "cost/parameters": "parameters",
    "cost/peak_memory": "bytes",
    "cost/shards": "shards",
}


def unit_of(metric: str, entities: str = "users") -> str:
    """Unit of a figure of :mod:`recunlearn.studies.evaluation`, or of a cost; ``entities``: who is forgotten.

    >>> unit_of("ue"), unit_of("loss/original"), unit_of("ndcg@10/retain/unlearned"), unit_of("cost/seconds")
    ('points of 100', 'nats', 'share', 's')
    """
    if metric in COSTS:
        return COSTS[metric]
    head = metric.removeprefix("retrained/").split("/")[0]
    if head in PERCENT:
        return "points of 100"
    if head in NATS or (head in ("distance", "logloss") and "l2" not in metric and "top10" not in metric):
        return "nats"
    if head in COUNTS:
        return "items" if head == "cold_items" else entities
    if head == "rank":
        return "rank"
    return "length" if head == "norm" else "ratio" if head == "residual" else "share"


def tidy(results: Sequence[Mapping[str, Any]], dataset: str, entities: str = "users") -> pd.DataFrame:
    """One row a figure: columns :data:`COLUMNS`; a cell that a method was unable for has none."""
    rows = [
        (
            *(c["model"], dataset, c["method"], c["set"], c["draw"], c["seed"]),
            metric,
            value,
            unit_of(metric, entities),
        )
        for result in results
        if "figures" in result
        for c in [result["cell"]]
        for metric, value in result["figures"].items()
    ]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype({"draw": "int64", "seed": "int64", "value": "float64"})


def export(frame: pd.DataFrame, folder: Path) -> list[Path]:
    """Write ``results.csv`` and ``results.parquet``, both or none."""
    files = {
        "results.csv": lambda p: frame.to_csv(p, index=False),
        "results.parquet": lambda p: frame.to_parquet(p, index=False),
    }
    with ExitStack() as stack:
        temporary = {name: stack.enter_context(atomic_file(folder / name)) for name in files}
        for name, write in files.items():
            write(temporary[name])
    return [folder / name for name in files]
