"""Figures of a benchmark: what is plotted as data, then the drawing."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from recunlearn.studies.benchmark.table import BASELINES, ORIGINAL, RETRAINED

SHOWN = ("easy", "random", "hard")
COLOURS = ("#1f6fb4", "#d9822b", "#3a9a5b", "#b5426b", "#7a5fb0", "#222222", "#a0862c", "#2a9d9d", "#c0504d")
OF_SET = {"easy": "#3a9a5b", "random": "#7f7f7f", "hard": "#b5426b"}
GREY = "#7f7f7f"
UE_AXIS = "UE (100: as forgotten as by retraining)"
QUALITIES = {"NDCG@10": "NDCG@10 of the users that stay", "AUC": "AUC of the users who stay"} | {
    "utility": "model utility",
    "kept": "probability of kept answers",
}
"""Columns of quality, the first one that is there is drawn, and what the axis says."""


@dataclass(frozen=True)
class Points:
    """Named points with error bars.

    Args:
        model: whose.
        names: of the points.
        x, y: their places; ``dx`` and ``dy`` deviations, 0 where there is one cell.
        lines: name -> y of a level to draw.
    """

    model: str
    names: tuple[str, ...]
    x: tuple[float, ...]
    y: tuple[float, ...]
    dx: tuple[float, ...]
    dy: tuple[float, ...]
    lines: dict[str, float]


def quality_column(summary: pd.DataFrame) -> str:
    """Column of quality: NDCG@10, AUC for models on labelled rows, model utility of language models."""
    there = set(summary["column"])
    return next((name for name in QUALITIES if name in there), next(iter(QUALITIES)))


def trade_off(summary: pd.DataFrame, model: str) -> Points:
    """UE against quality for the users that stay, each a mean over sets."""
    quality = quality_column(summary)
    rows = summary[summary["model"] == model]
    mean, sd = (_values(rows, ["method", "column"], kind) for kind in ("mean", "sd"))
    names = [m for m in _methods(rows) if (m, "UE") in mean and (m, quality) in mean]
    lines = {m: mean[m, quality] for m in (ORIGINAL, RETRAINED) if (m, quality) in mean}

    def pick(values: dict[Any, float], column: str) -> tuple[float, ...]:
        return tuple(values.get((m, column), 0.0) for m in names)

    return Points(
        model,
        tuple(names),
        pick(mean, "UE"),
        pick(mean, quality),
        pick(sd, "UE"),
        pick(sd, quality),
        lines,
    )


def by_set(summary: pd.DataFrame, model: str) -> dict[str, Points]:
    """UE on easy, random and hard sets: set -> points whose x is the place of the method."""
    rows = summary[(summary["model"] == model) & (summary["column"] == "UE")]
    names = _methods(rows)
    mean, sd = (_values(rows, ["method", "set"], kind) for kind in ("mean", "sd"))
    found = {}
    for stratum in SHOWN:
        own = [m for m in names if (m, stratum) in mean]
        places = tuple(float(names.index(m)) for m in own)
        means, sds = (tuple(v.get((m, stratum), 0.0) for m in own) for v in (mean, sd))
        found[stratum] = Points(model, tuple(own), places, means, (0.0,) * len(own), sds, {})
    return {stratum: points for stratum, points in found.items() if points.names}


def costs(summary: pd.DataFrame, model: str) -> Points:
    """Seconds over those of retraining: x; y is the place of the method."""
    rows = summary[(summary["model"] == model) & (summary["column"] == "cost")]
    mean = _values(rows, ["method"], "mean")
    names = sorted(mean, key=lambda m: mean[m])
    none = (0.0,) * len(names)
    places = tuple(map(float, range(len(names))))
    return Points(model, tuple(names), tuple(mean[m] for m in names), places, none, none, {})


def figures(summary: pd.DataFrame) -> dict[str, bytes]:
    """PNG of each figure by name; one panel a model, below each other so that phones can show them.

    None where no method could do anything.
    """
    models = list(summary["model"].unique())
    if not models:
        return {}
    drawn: dict[str, tuple[list[Any], Any, float]] = {
        "trade-off": ([trade_off(summary, m) for m in models], _draw_trade_off, 4.2),
        "by-set": ([by_set(summary, m) for m in models], _draw_by_set, 4.2),
        "cost": ([costs(summary, m) for m in models], _draw_costs, 3.8),
    }
    return {
        name: _png(data, draw, height, quality_column(summary))
        for name, (data, draw, height) in drawn.items()
    }


def _png(data: Sequence[Any], draw: Any, height: float, quality: str) -> bytes:
    canvas = Figure(figsize=(7.2, height * len(data)), layout="constrained")
    for axes, one in zip(np.atleast_1d(canvas.subplots(len(data), 1)), data, strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes, one, quality)
    buffer = io.BytesIO()
    canvas.savefig(buffer, dpi=130, format="png")
    return buffer.getvalue()


def _draw_trade_off(axes: Any, points: Points, quality: str) -> None:
    for place, name in enumerate(points.names):
        axes.errorbar(
            points.x[place],
            points.y[place],
            xerr=points.dx[place],
            yerr=points.dy[place],
            fmt="*" if name in BASELINES else "o",
            ms=11 if name in BASELINES else 7,
            color=GREY if name in BASELINES else COLOURS[place % len(COLOURS)],
            elinewidth=1,
            label=name,
        )
    if ORIGINAL in points.lines:
        axes.axhline(points.lines[ORIGINAL], color=GREY, lw=1, ls="--", label=ORIGINAL)
    axes.set_xlim(-2, 102)
    axes.margins(y=0.15)
    axes.set_xlabel(UE_AXIS)
    axes.set_ylabel(QUALITIES[quality])
    axes.set_title(points.model)
    if points.names or ORIGINAL in points.lines:
        axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=4)


def _draw_by_set(axes: Any, sets: dict[str, Points], _: str) -> None:
    names = list(dict.fromkeys(n for points in sets.values() for n in points.names))
    shifts = np.linspace(-0.22, 0.22, len(sets)) if len(sets) > 1 else [0.0] * len(sets)
    for shift, (stratum, points) in zip(shifts, sets.items(), strict=True):
        axes.errorbar(
            np.array(points.x) + shift,
            points.y,
            yerr=points.dy,
            fmt="o",
            ms=6,
            color=OF_SET[stratum],
            label=stratum,
        )
    for place in range(len(names) - 1):
        axes.axvline(place + 0.5, color="#e4e4e4", lw=0.8)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_ylim(0, 105)
    axes.set_ylabel(UE_AXIS)
    axes.set_title(next(iter(sets.values())).model if sets else "no measurable set", loc="left")
    if sets:
        axes.legend(frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3)


def _draw_costs(axes: Any, points: Points, _: str) -> None:
    axes.plot(points.x, points.y, "o", ms=8, color=COLOURS[0])
    axes.set_yticks(points.y, points.names)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color="#e4e4e4", lw=0.8)
    axes.axvline(1, color=GREY, lw=1, ls="--")
    for x, y in zip(points.x, points.y, strict=True):
        style = {"va": "center", "fontsize": 8, "bbox": {"color": "white", "pad": 0.5}}
        axes.annotate(f"{x:.2g}", (x, y), xytext=(8, 0), textcoords="offset points", **style)
    axes.margins(x=0.15, y=0.15)
    axes.set_xlabel("seconds of unlearning / seconds of retraining (dashed: equal)")
    axes.set_title(points.model)


def _methods(rows: pd.DataFrame) -> list[str]:
    found = list(rows["method"].unique())
    return [m for m in found if m not in BASELINES] + [m for m in found if m == RETRAINED]


def _values(rows: pd.DataFrame, keys: list[str], kind: str) -> dict[Any, float]:
    """Mean over whatever ``keys`` leaves open; what is no number is left out."""
    found = rows.groupby(keys if len(keys) > 1 else keys[0])[kind].mean().dropna()
    return {key: float(value) for key, value in found.items()}
