"""Everything a benchmark writes beside its cells: tables, figures and the HTML report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from recunlearn.foundation.store import atomic_file
from recunlearn.report.benchmark_figures import figures
from recunlearn.report.benchmark_html import html
from recunlearn.report.benchmark_table import Told, page
from recunlearn.studies.benchmark.budget import Budget
from recunlearn.studies.benchmark.collection import export, tidy
from recunlearn.studies.benchmark.locks import read_plain
from recunlearn.studies.benchmark.plan import Plan
from recunlearn.studies.benchmark.table import contrasts, own_kinds, summary, unable

TOLD = ("forget_quality/unlearned", "model_utility", "membership")
"""Figures whose absence is told; that of others stands in the cells."""
TABLE, REPORT, FIGURES = "table.md", "report.html", "figures"


def told_of(plan: Plan, results: Sequence[Mapping[str, Any]], command: str) -> tuple[Told, pd.DataFrame]:
    """What the report tells, and the tidy table that it is read from."""
    frame = tidy(results, plan.settings.dataset, plan.words.entities)
    facts = {"command": command, **_facts(plan, results)}
    told = Told(
        summary(frame, own_kinds(results)),
        contrasts(frame, plan.settings.seed),
        budgets_of(plan),
        unable(results),
        _flags(results),
        facts,
        {name: why for r in results for name, why in r.get("reasons", {}).items() if name in TOLD},
    )
    return told, frame


def write(told: Told, frame: pd.DataFrame, folder: Path) -> Path:
    """Write ``results.csv``, ``results.parquet``, ``table.md``, ``figures/*.png`` and ``report.html``.

    Returns:
        The HTML report.
    """
    images = figures(told.summary)
    texts = {TABLE: page(told), REPORT: html(told, images)}
    export(frame, folder)
    with ExitStack() as stack:
        for name, png in images.items():
            stack.enter_context(atomic_file(folder / FIGURES / f"{name}.png")).write_bytes(png)
        for name, text in texts.items():
            stack.enter_context(atomic_file(folder / name)).write_text(text, encoding="utf-8")
    return folder / REPORT


def budgets_of(plan: Plan) -> dict[tuple[str, str], Budget]:
    """Tuned budgets that are stored."""
    found = {}
    for model in plan.models:
        for method in dict.fromkeys(c.method for c in plan.of(model)):
            plain = read_plain(plan.budget_path(model, method))
            if isinstance(plain, dict) and "budget" in plain:
                found[model, method] = Budget.from_plain(plain["budget"])
    return found


def _facts(plan: Plan, results: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    settings = plan.settings
    seeds = sorted({cell.seed for cell in plan.cells})
    users = {int(r["figures"]["forget_users"]) for r in results if "figures" in r}
    seconds = sum(r["seconds"] for r in results)
    matched = "matched" if settings.matched else "unmatched"
    attacked = f"; {settings.membership} for membership" if settings.membership else ""
    return {
        "data set": settings.dataset,
        "models": ", ".join(plan.models),
        "forget sets": f"{settings.fraction:.1%} of the {plan.words.entities} "
        f"({', '.join(map(str, sorted(users)))}), {plan.words.amount} {matched}",
        "seeds": ", ".join(map(str, seeds)),
        "references": f"{settings.references} retrained models a set{attacked}",
        "cells": f"{len(results)}, {seconds / 60:.1f} minutes in all without references and budgets",
        "versions": ", ".join(f"{name} {version(name)}" for name in plan.packages),
        "identity": plan.identity,
    }


def _flags(results: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, int]]:
    counts: dict[tuple[str, str], Counter[str]] = {}
    for result in results:
        if result.get("flags"):
            pair = (result["cell"]["model"], result["cell"]["method"])
            counts.setdefault(pair, Counter()).update(result["flags"])
    return {pair: dict(found) for pair, found in counts.items()}
