"""What a score is related to, as a printed table and as a file."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from recunlearn.difficulty.relations import Relation, relations
from recunlearn.foundation.store import atomic_file
from recunlearn.report.grid import NONE, Grid, number

NAMES = {"answer_tokens": "answer length", "shared_ngrams": "shared wording", "loss": "loss"}
"""Columns of a language model's score table, and what they are called."""
FILE = "relations.csv"


def of_table(table: pd.DataFrame) -> list[Relation]:
    """Relation of CUD with each of :data:`NAMES`."""
    facts = {name: table[name].to_numpy(dtype="float64") for name in NAMES}
    return relations(table["cud"].to_numpy(dtype="float64"), facts)


def grid(found: Sequence[Relation]) -> Grid:
    """One row a fact."""
    rows = [
        (
            NAMES[r.name],
            number(r.rho),
            NONE if r.rho != r.rho else f"{number(r.low)} to {number(r.high)}",
            number(r.p, 3),
            number(r.p_holm, 3),
            str(r.n),
        )
        for r in found
    ]
    return Grid("CUD against trivial scores", ("", "Spearman", "95 %", "p", "Holm", "n"), tuple(rows))


def write(found: Sequence[Relation], folder: Path) -> Path:
    """Write ``relations.csv``, whole or not at all."""
    with atomic_file(folder / FILE) as temporary:
        pd.DataFrame([vars(r) for r in found]).to_csv(temporary, index=False)
    return folder / FILE
