"""The signatures of a run as tables: cells as data first, then drawn on a terminal or as Markdown."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from recunlearn.difficulty.separation import AS_CLAIMED, CONSTANT, OPPOSITE, Association, Comparison
from recunlearn.report.grid import Grid
from recunlearn.report.grid import draw as draw_grid
from recunlearn.report.grid import markdown as grid_markdown
from recunlearn.studies.circuit_signatures import SignatureReport

COLOURS = {AS_CLAIMED: "green", OPPOSITE: "red"}
OVERLAPS = {"overlap_jaccard": "Jaccard of the top quarter", "overlap_cosine": "cosine"}
HELD = {
    "n_interactions": "activity",
    "mean_item_popularity": "mean item popularity",
    "answer_tokens": "answer length",
    "shared_ngrams": "shared wording",
}
"""What columns of a score table are called in sentences."""


def legend(facts: Mapping[str, Any]) -> str:
    """What the tables' words mean."""
    *first, last = (HELD.get(column, column) for column in facts["controls"])
    many = facts["words"]["entities"]
    return (
        f"paper: what arXiv 2601.09624 says of hard {many}; easy, hard: medians; delta: Cliff's delta, above "
        f"0 where hard {many} have more, and its 95 % bootstrap interval; p: permutation test, corrected "
        "after Holm; concentration: Gini of |e|; overlap: with the own group; p apart: of pairs within a "
        "group overlapping more than pairs between; edges: medians of e / Σ|e|, p of the Mann-Whitney test, "
        "corrected after Holm for all edges; rho: Spearman; partial: with "
        f"{', '.join(first)} and {last} held fixed"
    )


def grids(report: SignatureReport) -> list[Grid]:
    """Every table of the report, in order."""
    found: list[Grid] = []
    words = report.facts["words"]
    for c in report.comparisons:
        found += _of_comparison(c, words["entities"])
    return [*found, _of_associations(report.associations, words)]


def _of_comparison(c: Comparison, many: str) -> list[Grid]:
    title = f"{c.title} ({c.n_easy} and {c.n_hard} {many})"
    if c.reason:
        return [Grid(title, (), (), note=c.reason)]
    signatures = tuple(
        (
            s.title,
            s.claim,
            s.verdict,
            *map(_number, (s.easy, s.hard)),
            *_effect(s.delta, s.low, s.high, s.p_holm),
        )
        for s in c.signatures
    )
    overlap = tuple(
        (OVERLAPS[o.key], *map(_number, (o.easy, o.hard, o.between)), _p(o.p)) for o in c.overlaps
    )
    edges = tuple((e.edge, _share(e.easy), _share(e.hard), _signed(e.delta), _p(e.p_holm)) for e in c.edges)
    return [
        Grid(title, ("signature", "paper", "verdict", "easy", "hard", "delta", "95 %", "p"), signatures, 3),
        Grid("Mean overlap of pairs", ("measure", "in easy", "in hard", "between", "p apart"), overlap),
        Grid(
            f"Edges that separate best ({c.separating} with p < .05)",
            ("edge", "easy %", "hard %", "delta", "p"),
            edges,
        ),
    ]


def _of_associations(found: Sequence[Association], words: Mapping[str, str]) -> Grid:
    rows = tuple(
        (a.target, a.title, f"{a.n:,}", _signed(a.rho) or CONSTANT, *_effect(a.partial, a.low, a.high)[:2])
        for a in found
    )
    headers = ("against", "signature", words["entities"], "rho", "partial", "95 %")
    return Grid(f"Signatures of single {words['entities']} against their difficulty", headers, rows, 2)


def facts(report: SignatureReport) -> str:
    """One line about the run."""
    f = report.facts
    w = f["anchors_agreement"]
    agreed = "" if w is None or math.isnan(w) else f", Kendall's W of the anchors' methods {w:.2f}"
    return (
        f"{f['model']} on {f['dataset']}, seed {f['seed']}: {f['users']:,} {f['words']['entities']}, "
        f"{f['edges']:,} edges, depth {f['depth']}{agreed}"
    )


def draw(console: Console, report: SignatureReport, folder: Path | None = None) -> None:
    """Print every table, the legend and one line about the run."""
    for grid in grids(report):
        draw_grid(console, grid, COLOURS)
    console.print(Text(legend(report.facts), style="dim"))
    console.print(Text(facts(report)))
    if folder is not None:
        console.print(Text(f"saved in {folder}"))


def markdown(report: SignatureReport) -> str:
    """The same tables as Markdown."""
    return "\n".join([f"{facts(report)}.\n", *(grid_markdown(grid, level=3) for grid in grids(report))])


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3f}"


def _signed(value: float) -> str:
    return "" if math.isnan(value) else f"{value:+.2f}"


def _interval(low: float, high: float) -> str:
    return "" if math.isnan(low) else f"{low:+.2f}..{high:+.2f}"


def _effect(delta: float, low: float, high: float, p: float = math.nan) -> tuple[str, str, str]:
    return _signed(delta), _interval(low, high), _p(p)


def _share(value: float) -> str:
    return f"{100 * value:+.2f}"


def _p(value: float) -> str:
    if math.isnan(value):
        return ""
    return "< .001" if value < 0.001 else f"{value:.3f}".lstrip("0") if value < 1 else "1"
