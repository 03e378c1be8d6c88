"""Signatures: which edges separate hard from easy users, or rows, of a scored run."""

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from recunlearn.difficulty.cud import anchor_rows
from recunlearn.difficulty.separation import Association, Comparison, associations, compare
from recunlearn.difficulty.signatures import graph_of
from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.store import atomic_file, to_json
from recunlearn.foundation.words import words_in
from recunlearn.studies.columns import columns_in
from recunlearn.studies.stored import ScoredRun

CONTROLS = ("n_interactions", "mean_item_popularity", "loss")
"""Columns of the score table that are held fixed, by their names for users."""
PARTS = 5
"""The lowest and the highest fifth of CUD are compared."""
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class SignatureReport:
    """Signatures of a run.

    Args:
        facts: data set, model, edges, depth of the graph, users, seed, versions; ``words``: what one of them,
            several and their samples are called; ``controls``: what is held fixed.
        comparisons: easy against hard anchors; lowest against highest fifth of CUD among the others.
        associations: of every user's signatures with CUD (users who are no anchors) and with the measured
            hardness (probed users), plain and with :data:`CONTROLS` held fixed.
    """

    facts: Mapping[str, Any]
    comparisons: tuple[Comparison, ...]
    associations: tuple[Association, ...]


def circuit_signatures(run: ScoredRun) -> SignatureReport:
    """Compare the circuits of easy and hard users of a run.

    Raises:
        UsageError: neither comparison has enough users.
        RecunlearnError: in one sentence, what to do.
    """
    seed = run.keys.settings.seed
    table = columns_in(run.scores.table).plain(run.scores.table)
    table = table.set_index("user_id").loc[run.circuits.entities.tolist()]
    sides = anchor_rows(run.anchors, run.circuits)
    cud, controls = table["cud"].to_numpy(), {c: table[c].to_numpy() for c in CONTROLS}
    others = np.flatnonzero(~table["is_anchor"].to_numpy(dtype=bool) & ~np.isnan(cud))
    low, high = _ends(others, cud)
    comparisons = (
        compare("Easy against hard anchors", run.circuits, sides["easy"], sides["hard"], seed=seed),
        compare("Lowest against highest fifth of CUD, anchors left out", run.circuits, low, high, seed=seed),
    )
    if all(c.reason for c in comparisons):
        said = "; ".join(f"{c.title}: {c.reason}" for c in comparisons)
        raise UsageError(f"Nothing can be compared. {said}. Raise count of [anchors].")
    held = {k: v[others] for k, v in controls.items()}
    found = associations(run.circuits, others, cud[others], "CUD", held)
    probed, hardness = _measured(run)
    held = {k: v[probed] for k, v in controls.items()}
    found += associations(run.circuits, probed, hardness, "measured hardness", held)
    return SignatureReport(_facts(run), comparisons, found)


def _ends(rows: Rows, cud: NDArray[np.floating[Any]]) -> tuple[Rows, Rows]:
    """Rows of the lowest and of the highest fifth."""
    ordered = rows[np.argsort(cud[rows], kind="stable")]
    size = len(ordered) // PARTS
    return ordered[:size], ordered[len(ordered) - size :]


def _measured(run: ScoredRun) -> tuple[Rows, NDArray[np.floating[Any]]]:
    """Rows of the probed users whose hardness was measured, and that hardness."""
    place = {entity: row for row, entity in enumerate(run.circuits.entities.tolist())}
    rows = np.array([place[e] for e in run.anchors.entities.tolist()], dtype=np.int64)
    known = ~np.isnan(run.anchors.hardness)
    return rows[known], run.anchors.hardness[known]


def _facts(run: ScoredRun) -> dict[str, Any]:
    summary, circuits = run.scores.summary, run.circuits
    return {
        "dataset": summary["dataset"],
        "model": summary["model"],
        "seed": run.keys.settings.seed,
        "edges": len(circuits.edges),
        "depth": graph_of(circuits).depths[-1],
        "users": int(np.isfinite(circuits.values).all(1).sum()),
        "words": dict(words_in(summary)),
        "controls": [columns_in(run.scores.table).name(c) for c in CONTROLS],
        "anchors_agreement": run.anchors.agreement.get("kendall_w_methods"),
        "settings": run.keys.settings.model_dump(mode="json"),
        "versions": {p: version(p) for p in ("recunlearn", "recbole", "torch", "numpy", "scipy")},
    }


def plain(report: SignatureReport) -> dict[str, Any]:
    """Dicts, lists and numbers for JSON; what has no number is None."""
    return {
        "facts": dict(report.facts),
        "comparisons": [_plain(asdict(c)) for c in report.comparisons],
        "associations": [_plain(asdict(a)) for a in report.associations],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def tables(report: SignatureReport) -> dict[str, pd.DataFrame]:
    """One row per signature, single edge, overlap and association: tables by name."""
    parts = {
        name: pd.DataFrame(
            [{"comparison": c.title, **asdict(row)} for c in report.comparisons for row in getattr(c, name)]
        )
        for name in ("signatures", "edges", "overlaps")
    }
    return parts | {"associations": pd.DataFrame([asdict(a) for a in report.associations])}


def export_signatures(report: SignatureReport, folder: Path) -> list[Path]:
    """Write ``signatures.json`` and a CSV for each of :func:`tables` into ``folder``, all or none."""
    texts = {"signatures.json": to_json(plain(report))}
    texts |= {f"{name}.csv": table.to_csv(index=False) for name, table in tables(report).items()}
    with ExitStack() as stack:  # all are written before the first takes its place
        files = {name: stack.enter_context(atomic_file(folder / name)) for name in texts}
        for name, text in texts.items():
            files[name].write_text(text, encoding="utf-8")
    return [folder / name for name in texts]
