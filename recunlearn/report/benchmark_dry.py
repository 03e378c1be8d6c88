"""What a dry run tells: cells, expected time, budgets."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recunlearn.report.benchmark_live import spoken
from recunlearn.studies.benchmark.estimate import Estimate


def as_data(found: Estimate) -> dict[str, Any]:
    """Plain values."""
    return {
        "cells": len(found.plan.cells),
        "jobs": found.jobs,
        "expected_seconds": found.seconds,
        "methods": [dict(vars(cost)) for cost in found.costs],
        "trainings": found.trainings,
        "epochs": found.epochs,
        "seconds_of_a_training": found.training,
        "seconds_of_a_measurement": found.measuring,
    }


def draw(console: Console, found: Estimate) -> None:
    """Print the cells of each method, what it states about its cost, and the time of everything."""
    console.print(Text(f"{len(found.plan.cells)} cells, nothing run", style="bold cyan"))
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name, side in (("model", "left"), ("method", "left"), ("cells", "right"), ("seconds", "right")):
        table.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("budget", overflow="fold")
    for cost in found.costs:
        cells = f"{cost.cells} ({cost.done} done)" if cost.done else str(cost.cells)
        seconds = "unable" if cost.seconds is None else f"{cost.seconds:.1f}"
        what = cost.sentence if cost.seconds is None else cost.budget
        table.add_row(*map(Text, (cost.model, cost.method, cells, seconds, what)))
    console.print(table)
    console.print()
    for sentence in sentences(found):
        console.print(Text(sentence))


def sentences(found: Estimate) -> list[str]:
    """Cells by dimension, trainings, and the expected time."""
    plan = found.plan
    lines = []
    for model in plan.models:
        cells = plan.of(model)
        sets, seeds = ({getattr(c, name) for c in cells} for name in ("set_name", "seed"))
        strata = ", ".join(dict.fromkeys(c.stratum for c in cells))
        lines.append(
            f"{model}: {len(cells)} cells on {counted(len(sets), 'set')} ({strata}) with "
            f"{counted(len(seeds), 'seed')}; {found.trainings[model]:g} trainings of "
            f"{counted(found.epochs[model], 'epoch')}, about {spoken(found.training[model])} each."
        )
    apart = f"scoring of {plan.words.entities}"
    apart += " and aggregators of RecEraser" if "RecEraser" in plan.methods else ""
    return [
        *lines,
        f"Expected: about {spoken(found.seconds)} with {counted(found.jobs, 'process')}, {apart} not "
        "counted; seconds of a cell are at most.",
    ]


def counted(count: int, what: str) -> str:
    """Number with its noun.

    >>> counted(1, "seed"), counted(3, "process")
    ('1 seed', '3 processes')
    """
    plural = f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{count} {what if count == 1 else plural}"
