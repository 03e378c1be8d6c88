"""The picture of ``explain-user``: three circuits as layered graphs, below them what decides the score."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch, PathPatch
from matplotlib.path import Path as Curve
from numpy.typing import NDArray

from recunlearn.difficulty.explanation import KINDS, by_pair, figures
from recunlearn.foundation.records import CircuitGraph
from recunlearn.foundation.store import atomic_file
from recunlearn.report.graph_layout import Box, Layout, layout
from recunlearn.report.graph_merge import merged
from recunlearn.studies.explain import ExplainedUser

RAISES, LOWERS = "#0072B2", "#D55E00"
"""Edges that raise and lower the likelihood (blue and vermilion of Okabe and Ito: told apart by everyone)."""
HARD, EASY = "#762A83", "#1B7837"
"""Contributions towards hard and towards easy (ends of ColorBrewer's PRGn)."""
FILLS = {"source": "#E8E8E8", "product": "#FFF2CC", "module": "#FFFFFF", "output": "#333333"}
FONT = 8.0
CHARACTER, LINE = 0.068, 0.165
"""Inches of a character and of a line of text at :data:`FONT` points."""
THICKEST, THINNEST = 9.0, 0.6
"""Points of the strongest edge of the picture, and of one without strength."""
WRITTEN, FEW = 2.0, 40
"""Points from which the strength is written on an edge, and edges up to which there is room for that."""
SIDE_BY_SIDE = 15.0
"""Inches up to which the three circuits stand side by side; wider ones lie below each other, unless high."""
SHOWN = 10
LONGEST_LABEL, BARS = 48, 2.8
"""Characters of a bar's label, and inches of the bars beside it."""


@dataclass(frozen=True)
class Stroke:
    """One edge of a drawn circuit: its strength, signed, and how thick it is drawn, in points."""

    value: float
    width: float

    @property
    def colour(self) -> str:
        """Colour of the sign."""
        return RAISES if self.value >= 0 else LOWERS


def strokes(graph: CircuitGraph, strength: NDArray[np.float64]) -> list[dict[tuple[int, int], Stroke]]:
    """Edges between whole nodes of several circuits on one scale: ``[circuits, E]``.

    The strength between two nodes is the signed sum over their groups, which is the edge of the whole nodes.
    """
    sums = [by_pair(graph, row) for row in strength]
    largest = max((abs(v) for row in sums for v in row.values()), default=0.0) or 1.0
    return [
        {p: Stroke(v, THINNEST + (THICKEST - THINNEST) * abs(v) / largest) for p, v in row.items()}
        for row in sums
    ]


def save_picture(found: ExplainedUser, file: Path) -> Path:
    """Draw and write one picture, whole or not at all; its suffix (png, svg) says which kind.

    It does not show the user's id: pictures are passed on.
    """
    options: Any = {"svg.fonttype": "none", "svg.hashsalt": "recunlearn", "font.size": FONT}
    options["text.parse_math"] = False
    with mpl.rc_context(options):
        figure = draw(found)
        with atomic_file(file) as temporary:
            kind = file.suffix.removeprefix(".")
            figure.savefig(temporary, format=kind, dpi=150, facecolor="white", metadata=_undated(kind))
    return file


def _undated(kind: str) -> dict[str, None]:
    return {"Date": None} if kind == "svg" else {}


@dataclass(frozen=True)
class Sheet:
    """Sizes of the picture's parts, in inches, from the top: words, circuits, legend, bars.

    Args:
        panel: width and height of one circuit.
        across: circuits beside each other, 3 or 1.
    """

    width: float
    words: float
    panel: tuple[float, float]
    across: int
    bars: float = 0.19 * SHOWN + 0.75
    legend: float = 0.55
    caption: float = 0.45

    @property
    def circuits(self) -> float:
        """Height of the three circuits."""
        return (self.panel[1] + self.caption) * (3 // self.across)

    @property
    def height(self) -> float:
        """Height of the picture."""
        return self.words + self.circuits + self.legend + self.bars

    def place(
        self, left: float, top: float, width: float, height: float
    ) -> tuple[float, float, float, float]:
        """Rectangle in matplotlib's fractions, from its left upper corner."""
        x, y = left / self.width, 1 - (top + height) / self.height
        return x, y, width / self.width, height / self.height


def draw(found: ExplainedUser) -> Figure:
    """Title and sentence, the three circuits, the legend, and the bars of what decides."""
    graph, kept = merged(found.graph)
    plan, below = layout(graph), charts(found)
    panel = (plan.width * CHARACTER, plan.height * LINE)
    across = 3 if beside(*panel) else 1
    width = max(across * (panel[0] + 0.4) + 0.2, *(2 * (_room(labels) + BARS) for _, labels, _ in below))
    unbroken = found.sentence_without_id.replace(" -> ", "\N{NO-BREAK SPACE}->\N{NO-BREAK SPACE}")
    words = textwrap.fill(unbroken + _left_out(found.graph, graph), int(0.95 * width / CHARACTER))
    sheet = Sheet(width, 0.55 + LINE * (words.count("\n") + 1), panel, across)
    figure = Figure(figsize=(width, sheet.height), facecolor="white")
    _write(figure, sheet, 0.27, title(found), fontsize=FONT + 4, weight="bold", va="center")
    _write(figure, sheet, 0.47, words, va="top", linespacing=1.35)
    _draw_circuits(figure, sheet, found, plan, (graph, kept))
    _legend(figure, found, 1 - (sheet.words + sheet.circuits + 0.3) / sheet.height)
    top = sheet.words + sheet.circuits + sheet.legend
    for k, (name, labels, values) in enumerate(below):
        left, room = k * width / 2, _room(labels)
        _write(figure, sheet, top + 0.2, name, left, fontsize=FONT + 1, weight="bold", va="center")
        size = (width / 2 - room - 0.3, sheet.bars - 0.75)
        _bar_chart(figure.add_axes(sheet.place(left + room, top + 0.33, *size)), labels, values)
    return figure


def beside(width: float, height: float) -> bool:
    """Tell whether three circuits of this size stand side by side: small ones do, and high ones.

    >>> beside(4.0, 1.5), beside(7.0, 1.5), beside(7.0, 8.0)
    (True, False, True)
    """
    return 3 * width + 1.0 <= SIDE_BY_SIDE or 3 * width <= max(width, 3 * height)


def _write(figure: Figure, sheet: Sheet, top: float, text: str, left: float = 0.0, **style: Any) -> None:
    figure.text((left + 0.2) / sheet.width, 1 - top / sheet.height, text, **style)


def _left_out(graph: CircuitGraph, drawn: CircuitGraph) -> str:
    """Sentence about nodes that stand together."""
    if graph is drawn:
        return ""
    return (
        f" Successive layers stand together as one node, {len(graph.nodes)} nodes as {len(drawn.nodes)}; "
        "edges inside it are not drawn."
    )


def _draw_circuits(
    figure: Figure,
    sheet: Sheet,
    found: ExplainedUser,
    plan: Layout,
    drawn: tuple[CircuitGraph, NDArray[np.intp]],
) -> None:
    easy, hard = found.told.counts
    names = (f"This {found.words['entity']}", f"Mean of {easy} easy anchors", f"Mean of {hard} hard anchors")
    slot = (sheet.width - 0.2) / sheet.across
    graph, kept = drawn
    for k, (name, edges) in enumerate(zip(names, strokes(graph, found.told.strength[:, kept]), strict=True)):
        left = 0.2 + slot * (k % sheet.across) + (slot - 0.2 - sheet.panel[0]) / 2
        top = sheet.words + (sheet.panel[1] + sheet.caption) * (k // sheet.across) + 0.35
        axes = figure.add_axes(sheet.place(left, top, *sheet.panel))
        draw_circuit(axes, graph, plan, edges, name)


def title(found: ExplainedUser) -> str:
    """Score, band, place among the users, model and data."""
    row, about = found.row, found.scores.summary
    return (
        f"CUD {row['cud']:.2f}, {row['band']}, rank {found.rank:,} of {found.scored:,} "
        f"{found.words['entities']} (1: hardest)  "
        f"({about['model']} on {about['dataset']})"
    )


def draw_circuit(
    axes: Axes, graph: CircuitGraph, plan: Layout, edges: Mapping[tuple[int, int], Stroke], name: str
) -> None:
    """Draw one circuit: every edge of the graph, then the nodes over their ends."""
    axes.set(xlim=(-0.2, plan.width + 0.2), ylim=(plan.height, 0))
    axes.axis("off")
    axes.set_title(name, loc="left", fontsize=FONT + 1, weight="bold", pad=4)
    for pair, stroke in sorted(edges.items(), key=lambda e: -e[1].width):
        gid = f"{name}: {graph.nodes[pair[0]]} -> {graph.nodes[pair[1]]}"
        written = stroke.width > WRITTEN and len(edges) <= FEW
        _draw_edge(axes, plan.routes[pair], stroke, gid, written=written)
    for box, kind in zip(plan.boxes, graph.kinds, strict=True):
        _draw_node(axes, box, kind)


def _draw_edge(axes: Axes, points: NDArray[np.float64], stroke: Stroke, gid: str, *, written: bool) -> None:
    line: Any = {"edgecolor": stroke.colour, "linewidth": stroke.width, "capstyle": "butt", "alpha": 0.8}
    drawn = PathPatch(curve(points), facecolor="none", **line)
    drawn.set_gid(gid)
    axes.add_patch(drawn)
    if written:
        x, y = points[1:3].mean(0)
        paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
        text = figures([stroke.value])[0]
        axes.text(x, y, text, ha="center", va="center", zorder=5, fontsize=FONT - 2, bbox=paper)


def _draw_node(axes: Axes, box: Box, kind: str) -> None:
    corner = (box.x - box.width / 2, box.y - box.height / 2)
    style: Any = {"boxstyle": "round,pad=0,rounding_size=0.5", "mutation_aspect": CHARACTER / LINE}
    line: Any = {"facecolor": FILLS.get(kind, "white"), "edgecolor": "#555555", "linewidth": 0.8}
    axes.add_patch(FancyBboxPatch(corner, box.width, box.height, zorder=3, **style, **line))
    ink = "white" if kind == "output" else "black"
    axes.text(box.x, box.y, "\n".join(box.lines), ha="center", va="center", color=ink, zorder=4)


def curve(points: NDArray[np.float64]) -> Curve:
    """Straight within columns, S-shaped between them: ``[2 m, 2]``."""
    vertices, codes = [points[0]], [Curve.MOVETO]
    for k in range(1, len(points), 2):
        vertices.append(points[k])
        codes.append(Curve.LINETO)
        if k + 1 < len(points):
            (x0, y0), (x1, y1) = points[k], points[k + 1]
            middle = (x0 + x1) / 2
            vertices += [(middle, y0), (middle, y1), (x1, y1)]
            codes += [Curve.CURVE4] * 3
    return Curve(np.array(vertices), codes)


def _legend(figure: Figure, found: ExplainedUser, y: float) -> None:
    kinds = [k for k in ("source", "product", "module", "output") if k in found.graph.kinds]
    words = found.words
    entries: list[Any] = [
        Line2D(
            [],
            [],
            color=RAISES,
            linewidth=5,
            label=f"makes the {words['entity']}'s {words['samples']} likelier",
        ),
        Line2D([], [], color=LOWERS, linewidth=5, label="less likely"),
        Line2D(
            [], [], color="#555555", linewidth=2, label="width, number: strength (change of log-likelihood)"
        ),
        *(Patch(facecolor=FILLS[k], edgecolor="#555555", label=KINDS[k]) for k in kinds),
    ]
    figure.legend(
        handles=entries, loc="center", bbox_to_anchor=(0.5, y), ncols=len(entries), frameon=False,
        handlelength=1.6, columnspacing=1.4,
    )  # fmt: skip


def charts(found: ExplainedUser) -> list[tuple[str, list[str], NDArray[np.float64]]]:
    """Title, labels and values of the bar charts: the edges that decide, and the same between whole nodes."""
    contribution, names = found.told.contribution, found.graph.nodes
    best = found.told.strongest(SHOWN)
    pairs = by_pair(found.graph, contribution)
    largest = sorted(pairs, key=lambda p: -abs(pairs[p]))[:SHOWN]
    return [
        (
            f"The {len(best)} edges that decide, and what each adds to CUD",
            [_short(found.edges[e]) for e in best],
            contribution[best],
        ),
        (
            "All edges between two nodes together, added to CUD",
            [_short(f"{names[u]} -> {names[v]}") for u, v in largest],
            np.array([pairs[p] for p in largest]),
        ),
    ]


def _short(label: str) -> str:
    """Cut the middles of long names, so that arrow and groups are seen."""
    names = label.split(" -> ")
    half = LONGEST_LABEL // 4
    return " -> ".join(n if len(n) <= 2 * half else f"{n[: half - 1]}…{n[-half:]}" for n in names)


def _room(labels: Sequence[str]) -> float:
    """Inches that labels left of bars take."""
    return max(map(len, labels), default=0) * CHARACTER + 0.3


def _bar_chart(axes: Axes, labels: Sequence[str], values: NDArray[np.float64]) -> None:
    axes.barh(range(len(labels)), values, color=[HARD if v > 0 else EASY for v in values], height=0.7)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(SHOWN - 0.5, -0.5)
    reach = float(np.abs(values).max(initial=0)) * 1.5 or 1.0
    axes.set_xlim(-reach, reach)
    axes.axvline(0, color="black", linewidth=0.8)
    for k, value in enumerate(values):
        side = "left" if value >= 0 else "right"
        at = value + np.copysign(0.02 * reach, value)
        axes.text(at, k, f"{value:+.4f}", va="center", ha=side, fontsize=FONT - 1)
    for x, side, text, colour in (
        (0.0, "left", "towards easy", EASY),
        (1.0, "right", "towards hard", HARD),
    ):
        axes.text(x, -0.13, text, ha=side, va="top", color=colour, weight="bold", transform=axes.transAxes)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    axes.locator_params(axis="x", nbins=5)
