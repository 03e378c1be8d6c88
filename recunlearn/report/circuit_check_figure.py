"""The figure of a check: what is plotted as data, and the drawing."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from recunlearn.foundation.store import atomic_file

Array = NDArray[np.float64]
MOST_POINTS = 8000
BLUE, ORANGE, GREY = "#1f6fb4", "#d9822b", "#7f7f7f"
STYLES = {
    "absolute": (BLUE, "-", "strongest edges"),
    "signed": (BLUE, ":", "strongest edges, for the item only"),
    "complement": (ORANGE, "-", "all but the strongest edges"),
}


@dataclass(frozen=True)
class CheckFigure:
    """What is plotted.

    Args:
        exact, scores: some of the pairs, with signed-root axes so that small effects are seen.
        kept: share of the edges kept at each point of the curves, 0 first.
        lines: name -> f at those points.
        random: mean and sd of random circuits there; None where f is degenerate.
        title, reason: above the figure, and why there are no curves.
    """

    exact: Array
    scores: Array
    kept: Array
    lines: dict[str, Array]
    random: tuple[Array, Array] | None
    title: str
    reason: str | None


def check_figure(summary: Mapping[str, Any], exact: Array, scores: Array) -> CheckFigure:
    """Choose what to plot; the same pairs every time."""
    flat = np.random.default_rng(0).permutation(exact.size)[:MOST_POINTS]
    found = summary["faithfulness"]
    low, high = summary["interval"] or (None, None)
    span = "" if low is None else f" [{low:.3f}, {high:.3f}]"
    rho = summary["spearman_exact"]
    known = "none" if rho is None else f"{rho:.3f}{span}"
    curves = found["curves"] or {}
    random = found["random"]
    return CheckFigure(
        exact.ravel()[flat],
        scores.ravel()[flat],
        np.array([0, *found["sizes"]]) / found["sizes"][-1],
        {name: _from_zero(curves[name]["f"], name) for name in STYLES if name in curves},
        None if random is None else (np.array([0, *random["f"]]), np.array([0, *random["sd"]])),
        f"{summary.get('model', '')} on {summary.get('dataset', '')}: Spearman with exact ablation {known}",
        found["reason"],
    )


def _from_zero(f: list[float], name: str) -> Array:
    """A circuit without edges carries nothing; the complement of no edge is the whole model."""
    return np.array([1.0 if name == "complement" else 0.0, *f])


def save_figure(figure: CheckFigure, file: Path) -> None:
    """Draw the scatter and the curves into a PNG."""
    canvas = Figure(figsize=(11, 4.8), layout="constrained")
    left, right = canvas.subplots(1, 2)
    canvas.suptitle(figure.title)
    _scatter(left, figure)
    _lines(right, figure)
    with atomic_file(file) as temporary:
        canvas.savefig(temporary, dpi=150, format="png")


def _scatter(axes: Any, figure: CheckFigure) -> None:
    largest = max(float(np.abs(v).max(initial=0)) for v in (figure.exact, figure.scores)) or 1.0
    typical = float(np.median(np.abs(figure.exact))) or largest / 100
    powers = [10.0**p for p in range(-12, 6) if 3 * typical < 10.0**p <= largest]
    ticks = [*(-p for p in powers), 0, *powers]
    axes.set_xscale("symlog", linthresh=typical)
    axes.set_yscale("symlog", linthresh=typical)
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.axhline(0, color=GREY, lw=0.5)
    axes.axvline(0, color=GREY, lw=0.5)
    axes.plot([-largest, largest], [-largest, largest], color=GREY, lw=1, ls="--", label="equal")
    axes.scatter(figure.exact, figure.scores, s=5, alpha=0.25, color=BLUE, linewidths=0)
    axes.set_xlabel("effect of ablating the edge (nats)")
    axes.set_ylabel("attribution (nats)")
    axes.set_title("Every point: one edge of one interaction")
    axes.legend(loc="upper left", frameon=False)


def _lines(axes: Any, figure: CheckFigure) -> None:
    axes.set_title("How much of the model a circuit carries")
    if figure.random is None:
        axes.text(0.5, 0.5, figure.reason, ha="center", va="center", wrap=True, transform=axes.transAxes)
        axes.set_axis_off()
        return
    x = 100 * figure.kept
    mean, sd = figure.random
    for name, f in figure.lines.items():
        colour, style, label = STYLES[name]
        axes.plot(x, f, color=colour, ls=style, marker="o", ms=3, label=label)
    axes.plot(x, mean, color=GREY, marker="o", ms=3, label="random edges, mean ± sd")
    axes.fill_between(x, mean - sd, mean + sd, color=GREY, alpha=0.25, lw=0)
    for level in (0, 1):
        axes.axhline(level, color=GREY, lw=0.5)
    axes.set_xlabel("edges kept; for all but the strongest: edges left out (%)")
    axes.set_ylabel("f: 0 = baseline, 1 = whole model")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, frameon=False)
