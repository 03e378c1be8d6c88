"""The tables of a benchmark as data, as Markdown and in the terminal."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from recunlearn.report.grid import GAP, NONE, Grid, markdown, number
from recunlearn.report.grid import draw as draw_grid
from recunlearn.studies.benchmark.budget import Budget
from recunlearn.studies.benchmark.table import BASELINES, LANGUAGE, MAIN, PAPER, Contrast

DIGITS = {"UE": 1, "clip": 1, "set": 2, "n.m.": 1, "resid.": 2, "over": 2, "s": 2}
DEFAULT_DIGITS = 3
MEANINGS = {
    "UE": "100 · mean max(0, 1 − |share left|) over measurable users: 100 as forgotten as by retraining",
    "clip": "the same with over-forgetting not counted, as in the paper",
    "set": "share left of the set's mean losses, measurable where single users are not: 1 nothing forgotten, "
    "0 as by retraining",
    "resid.": "residual ratio: distance (Jensen-Shannon) to the retrained models over that of the original: "
    "0 retrained, 1 nothing done, above 1 harm",
    "over": "over-forgotten: share of measurable users below 0; about half by chance",
    "n.m.": "not measurable: users left out of UE, mean number a set",
    "NDCG@10": "test part of the users that stay",
    "AUC": "test part of the users that stay",
    "MIA": "AUC of membership inference on the forgotten; the aim is the retrained reference's value",
    "quality": "forget quality: p of a KS test between truth ratios of this and of the retrained models; "
    "high: not told apart",
    "utility": "model utility: harmonic mean of probability, ROUGE-L and truth on kept rows, real authors "
    "and world facts",
    "kept": "probability of the answers of kept rows, a token",
    "extract": "extraction strength: share of a forgotten answer that follows from the rest of it",
    "exact": "exact memorisation: share of the forgotten answers' tokens that are the likeliest ones",
    "min-k": "AUC of membership inference by min-k against rows that no model saw; the aim is the retrained "
    "reference's value",
    "s": "seconds of unlearning",
    "cost": "those seconds over those of retraining the model without the set",
}


@dataclass(frozen=True)
class Told:
    """Everything that a report tells.

    Args:
        summary: of :func:`~recunlearn.studies.benchmark.table.summary`.
        contrasts: hard and easy against random.
        budgets: (model, method) -> tuned budget.
        unable: model, method, reason.
        flags: (model, method) -> flag -> number of cells with it.
        facts: name -> text about the run: command, versions, seeds, time.
        missing: figure that could not be computed -> why.
    """

    summary: pd.DataFrame
    contrasts: Sequence[Contrast]
    budgets: Mapping[tuple[str, str], Budget]
    unable: Sequence[tuple[str, str, str]]
    flags: Mapping[tuple[str, str], Mapping[str, int]] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


def grids(told: Told) -> list[Grid]:
    """UE by set, the main table of each set, the contrasts, the budgets, and what could not be done."""
    found = []
    for model in told.summary["model"].unique():
        rows = told.summary[told.summary["model"] == model]
        found.append(_by_set(model, rows))
        found += _contrasts(model, told.contrasts)
        found += [grid for stratum in _strata(rows) for grid in _main(model, stratum, rows)]
    return [*found, *_budgets(told), *_unable(told), *_missing(told), *_flags(told)]


def _by_set(model: str, rows: pd.DataFrame) -> Grid:
    strata = _strata(rows)
    ue = rows[rows["column"] == "UE"].set_index(["method", "set"])
    body = [(m, *(_cell(ue, (m, s), "UE") for s in strata)) for m in _methods(rows) if m in ue.index]
    return Grid(f"{model}: UE by forget set", ("method", *strata), tuple(body))


def _main(model: str, stratum: str, rows: pd.DataFrame) -> Iterator[Grid]:
    """The main table of a set, and apart what only language models have: both fit into a terminal."""
    here = rows[rows["set"] == stratum]
    there = set(here["column"])
    yield _figures(model, f"{stratum} sets", here, [c for c in MAIN if c in there and c not in LANGUAGE])
    if answers := [c for c in LANGUAGE if c in there]:
        yield _figures(model, f"answers on {stratum} sets", here, answers)


def _figures(model: str, title: str, here: pd.DataFrame, columns: Sequence[str]) -> Grid:
    by = here.set_index(["method", "column"])
    n = int(here["n"].max()) if len(here) else 0
    body = [(m, *(_cell(by, (m, c), c) for c in columns)) for m in _methods(here)]
    sized = f", mean ± sd over up to {n} cells" if n > 1 else ""
    return Grid(f"{model}, {title}{sized}", ("method", *columns), tuple(body))


def _contrasts(model: str, found: Sequence[Contrast]) -> Iterator[Grid]:
    rows = [
        (
            c.method,
            c.stratum,
            signed(c.difference),
            NONE if math.isnan(c.low) else f"{signed(c.low)} to {signed(c.high)}",
            number(c.p, 3),
            number(c.p_holm, 3),
            str(c.pairs),
            signed(c.clipped),
            signed(PAPER[c.stratum]),
            number(c.median, 2),
            number(c.median_random, 2),
        )
        for c in found
        if c.model == model
    ]
    if rows:
        head = ("method", "sets", "Δ UE", "95 %", "p", "Holm", "pairs", "Δ clip", "paper", "left", "rnd")
        yield Grid(f"{model}: UE on hard and easy sets minus random ones", head, tuple(rows), 2)


def _budgets(told: Told) -> Iterator[Grid]:
    rows = [
        (
            model,
            method,
            f"{b.learning_rate:.2g}",
            NONE if b.gamma is None else f"{b.gamma:.3g}",
            str(b.steps),
            NONE if b.reached is None else "yes" if b.reached else "no",
            str(len(b.trials)),
            f"{b.seconds:.0f}",
        )
        for (model, method), b in told.budgets.items()
        if b.learning_rate is not None
    ]
    if rows:
        head = ("model", "method", "learning rate", "γ", "steps", "reached", "trials", "seconds")
        yield Grid("Budgets, tuned once on a random set of their own", head, tuple(rows), 2)


def _unable(told: Told) -> Iterator[Grid]:
    if told.unable:
        yield Grid("Not done", ("model", "method", "why"), tuple(told.unable), 3)


def _missing(told: Told) -> Iterator[Grid]:
    if told.missing:
        yield Grid("Cannot be computed", ("figure", "why"), tuple(told.missing.items()), 2)


def _flags(told: Told) -> Iterator[Grid]:
    rows = [
        (model, method, flag, str(count))
        for (model, method), counts in told.flags.items()
        for flag, count in counts.items()
    ]
    if rows:
        yield Grid("Flags", ("model", "method", "flag", "cells"), tuple(rows), 3)


def page(told: Told) -> str:
    """Whole Markdown page: facts, tables and what the columns mean."""
    facts = "\n".join(f"- {name}: {text}" for name, text in told.facts.items())
    shown = [c for c in MAIN if c in set(told.summary["column"])]
    meanings = "\n".join(f"- **{name}**: {MEANINGS[name]}" for name in shown)
    tables = "\n".join(markdown(grid) for grid in grids(told))
    return f"# Benchmark\n{facts}\n\n{tables}\n## Columns\n{meanings}\n{notes()}\n"


def notes() -> str:
    """What to know about the rows, as a list in Markdown."""
    return (
        "- **retrained reference**: retrained models measured against each other, the best that can be "
        "reached; **nothing done**: the original model\n"
        "- **Δ clip**: the difference with over-forgetting not counted, as in the **paper** (arXiv "
        "2601.09624)\n"
        "- **left**: uncapped median share left on these sets, **rnd** on random ones: 1 nothing forgotten, "
        "0 as by retraining, below 0 beyond it\n"
        "- differences are paired by draw and seed: bootstrap interval, paired permutation p, Holm over the "
        "rows of a model; pairs of one draw share their users\n"
        "- a method with an original of its own (SISA, RecEraser) is measured against its own retraining"
    )


def draw(console: Console, told: Told, saved: str) -> None:
    """Print the tables; where one is too wide for the terminal, without deviations."""
    for grid in map(partial(fitted, width=console.width), grids(told)):
        draw_grid(console, grid)
    console.print(Text(f"Saved in {saved}"))


def fitted(grid: Grid, width: int) -> Grid:
    """The table as it is where it fits into ``width`` characters, else means alone."""
    columns = zip(grid.head, *grid.rows, strict=True)
    if sum(max(map(len, cells)) + GAP for cells in columns) - GAP <= width:
        return grid
    rows = tuple(tuple(cell.split(" ± ")[0] for cell in row) for row in grid.rows)
    return replace(grid, title=grid.title.replace("mean ± sd", "mean"), rows=rows)


def signed(value: float) -> str:
    """With its sign and one digit.

    >>> signed(-14.1), signed(3.3), signed(0.0)
    ('−14.1', '+3.3', '0.0')
    """
    if math.isnan(value):
        return NONE
    text = f"{abs(value):.1f}"
    return text if float(text) == 0 else f"{'−' if value < 0 else '+'}{text}"


def _cell(table: pd.DataFrame, key: Any, column: str) -> str:
    if key not in table.index:
        return NONE
    row, digits = table.loc[key], DIGITS.get(column, DEFAULT_DIGITS)
    mean = number(row["mean"], digits)
    return mean if math.isnan(row["sd"]) else f"{mean} ± {number(row['sd'], digits)}"


def _strata(rows: pd.DataFrame) -> list[str]:
    return list(rows["set"].unique())


def _methods(rows: pd.DataFrame) -> list[str]:
    return sorted(
        rows["method"].unique(),
        key=lambda m: (m in BASELINES, list(BASELINES).index(m) if m in BASELINES else 0),
    )
