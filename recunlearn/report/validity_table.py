"""A validity study as tables: data first, then drawn on a terminal or as Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from recunlearn.difficulty.validity import Correlation
from recunlearn.report.grid import NONE, Grid, number
from recunlearn.report.grid import draw as draw_grid
from recunlearn.report.grid import markdown as grid_markdown
from recunlearn.studies.validity.results import (
    BOTH,
    CIRCUITS,
    CUD,
    RESIDUAL,
    RESIDUALS,
    TRIVIAL,
    ModelStudy,
    Pair,
    Study,
)

OWN = (CUD, RESIDUAL, RESIDUALS, CIRCUITS, BOTH, TRIVIAL)
SHORT = {
    "share-left": "share left",
    CIRCUITS: "regression on circuits",
    TRIVIAL: "regression on trivial",
    BOTH: "regression on both",
    RESIDUAL: "predicted residual",
    RESIDUALS: "predicted residual of the method",
    CUD: "CUD",
}
LEGEND = (
    "Spearman correlations with how hard each user was (high = hard), users held out, ranked within folds; "
    "mean over methods, median over trainings, 95 % by redrawn users. partial: with all trivial scores "
    "(* in the list) held fixed. increase: of the loss, small = hard; share left: of the loss, against "
    "retrained models; divergence: of the item distribution; fold-in: share left under vectors fitted anew. "
    "Regressions predict each outcome from the other folds' users."
)


def grids(study: ModelStudy) -> Iterator[Grid]:
    """Every table of one model's study, in order."""
    yield _main(study)
    yield _by_method(study)
    yield _transfer(study)
    if study.variants:
        yield _variants(study)
    yield _relations(study)
    yield _groups(study)
    if study.calibration:
        yield _calibration(study.calibration)


def _main(study: ModelStudy) -> Grid:
    outcomes = list(study.agreement)
    head = ["score"]
    for outcome in outcomes:
        head += [_short(outcome), "95 %", "partial", "95 %"]
    rows = []
    for name in (*(n for n in OWN if n in study.results), *_ordered(study)):
        row = [_short(name) + ("*" if name in study.facts["controls"] else "")]
        for outcome in outcomes:
            row += _cells(study.results[name].get(outcome))
        rows.append(tuple(row))
    absent = "; ".join(f"{name}: {why}" for name, why in study.facts["absent"].items())
    return Grid(f"{study.model}: scores against outcomes", tuple(head), tuple(rows), 1, absent)


def _ordered(study: ModelStudy) -> list[str]:
    """Competitors, the best against the increase first; those without a number last."""
    names = [n for n in study.results if n not in OWN]
    found = {n: study.results[n]["increase"].raw.mean for n in names}
    return sorted(names, key=lambda n: -found[n] if found[n] == found[n] else np.inf)


def _cells(pair: Pair | None) -> list[str]:
    if pair is None:
        return [NONE] * 4
    return [text for c in (pair.raw, pair.partial) for text in (number(c.mean), _interval(c))]


def _interval(found: Correlation) -> str:
    return NONE if np.isnan(found.low) else f"{number(found.low)} to {number(found.high)}"


def _by_method(study: ModelStudy) -> Grid:
    rows = []
    for outcome in study.agreement:
        for name in (n for n in (CUD, CIRCUITS) if n in study.results):
            pair = study.results[name][outcome]
            for kind, found in (("raw", pair.raw), ("partial", pair.partial)):
                rows.append((_short(outcome), _short(name), kind, *_each(found, study.methods)))
    agreed = "; ".join(
        f"{_short(o)} {number(float(np.median(v)))}" for o, v in study.agreement.items() if len(v)
    )
    note = f"Agreement of the methods (mean Spearman of pairs): {agreed}."
    return Grid(f"{study.model}: by method", ("outcome", "score", "", *study.methods), tuple(rows), 3, note)


def _each(found: Correlation, methods: Sequence[str]) -> tuple[str, ...]:
    return tuple(number(found.by_method.get(m)) for m in methods)


def _transfer(study: ModelStudy) -> Grid:
    rows = tuple(
        (
            method,
            *(number(pair.raw.by_method.get(m, float("nan"))) for m in study.methods),
            number(pair.partial.mean),
        )
        for method, pair in study.transfer.items()
    )
    head = ("anchors from", *study.methods, "partial, mean")
    return Grid(f"{study.model}: CUD by the anchors of one method against the increase by each", head, rows)


def _variants(study: ModelStudy) -> Grid:
    rows = []
    for v in study.variants:
        row = [v.axis, v.name, number(v.agreement)]
        for outcome in ("increase", "share-left"):
            pair = v.outcomes.get(outcome)
            row += [NONE, NONE] if pair is None else [number(pair.raw.mean), number(pair.partial.mean)]
        rows.append(tuple(row))
    why = "; ".join(dict.fromkeys(v.reason for v in study.variants if v.reason))
    head = ("axis", "CUD with", "agreement", "increase", "partial", "share left", "partial")
    return Grid(f"{study.model}: CUD in other ways", head, tuple(rows), 2, why)


def _relations(study: ModelStudy) -> Grid:
    rows = tuple((name, number(value)) for name, value in study.relations.items())
    return Grid(f"{study.model}: rank agreement (high = hard on both sides)", ("of", "Spearman"), rows)


def _groups(study: ModelStudy) -> Grid:
    rows = tuple((name, *_cells(pair)) for name, pair in study.groups.items())
    head = ("third of the users", "CUD", "95 %", "partial", "95 %")
    return Grid(f"{study.model}: CUD against the increase, where to trust it", head, rows)


def _calibration(found: Mapping[str, Any]) -> Grid:
    rows = tuple((str(k + 1), number(p), number(t)) for k, (p, t) in enumerate(found["tenths"]))
    note = (
        f"The 90 % interval held {found['coverage']:.0%} of {found['users']:,} held-out users (all "
        f"trainings); median width {number(found['median_width'])}, median error "
        f"{number(found['median_error'])}."
    )
    head = ("tenth", "predicted share left", "found")
    return Grid("Calibration of the predicted residual", head, rows, 1, note)


def _short(name: str) -> str:
    return SHORT.get(name, name)


def facts(study: ModelStudy) -> str:
    """One line about a model's study."""
    f = study.facts
    quality = ", ".join(f"test {k} {np.median(v):.3f}" for k, v in f["quality"].items())
    measurable = ", ".join(f"{_short(o)} {np.median(v):.0f}" for o, v in f["measurable"].items())
    trainings = len(next(iter(f["quality"].values())))
    return (
        f"{study.model}: {f['users']:,} users, {trainings} training{'s' * (trainings > 1)}, {f['edges']} "
        f"edges, {quality}; measurable users: {measurable}"
    )


def _across(found: Mapping[str, Mapping[str, float]]) -> Grid:
    rows = tuple((one, *(number(v) for v in others.values())) for one, others in found.items())
    return Grid("CUD of one model against the increase in another", ("CUD of", *found), rows)


def draw(console: Console, whole: Study, saved: str) -> None:
    """Print what matters most; the page has the rest."""
    for study in whole.models:
        console.print(Text(facts(study)))
        for grid in (_narrow(study), _groups(study)):
            draw_grid(console, grid)
    console.print(Text(LEGEND, style="dim"))
    console.print(Text(f"all tables: {saved}"))


def _narrow(study: ModelStudy) -> Grid:
    """The main table without intervals."""
    outcomes = list(study.agreement)
    head = ["score", *(text for o in outcomes for text in (_short(o), "part."))]
    rows = []
    for name in (*(n for n in OWN if n in study.results), *_ordered(study)):
        cells = [_cells(study.results[name].get(o)) for o in outcomes]
        star = "*" if name in study.facts["controls"] else ""
        rows.append((_short(name) + star, *(text for c in cells for text in (c[0], c[2]))))
    return Grid(f"{study.model}: scores against outcomes", tuple(head), tuple(rows))


def page(whole: Study, told: Mapping[str, str]) -> str:
    """Whole Markdown page; ``told``: facts about the run by name."""
    lines = "\n".join(f"- {name}: {text}" for name, text in told.items())
    tables = "\n".join(f"{facts(s)}.\n\n" + "\n".join(map(grid_markdown, grids(s))) for s in whole.models)
    if whole.across:
        tables += "\n" + grid_markdown(_across(whole.across))
    return f"# Validity study\n{lines}\n\n{LEGEND}\n\n{tables}"
