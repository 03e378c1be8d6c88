"""The score table on a terminal: rows and sentences as data first, then drawn with rich."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from recunlearn.foundation.words import words_in

COLOURS = {"easy": "green", "medium": "yellow", "hard": "red"}
HEADERS = {
    "user_id": "user",
    "n_interactions": "inter.",
    "cud": "CUD",
    "interval": "95 %",
    "percentile": "pct",
    "band": "band",
    "s_easy": "s_E",
    "s_hard": "s_H",
    "loss": "loss",
    "personalisation_gap": "gap",
    "predicted_residual": "left",
}
LEGEND = (
    "95 %: over resampled anchors; pct: percentile; s_E, s_H: similarity to the easy and hard anchors; "
    "gap: personalisation gap; left: predicted residual, the share that unlearning will leave (below 0: "
    "over-forgotten); *: an anchor"
)
TEXT_HEADERS = {
    **{k: v for k, v in HEADERS.items() if k != "personalisation_gap"},
    "user_id": "row",
    "n_interactions": "tokens",
}
TEXT_LEGEND = LEGEND.replace("gap: personalisation gap", "tokens: of the answers")
"""Of rows or authors of a language model's data."""
LEFT = ("user_id", "band")


@dataclass(frozen=True)
class Section:
    """Some users under a title; every row has the keys of :data:`HEADERS`."""

    title: str
    rows: list[dict[str, str]]


def sections(table: pd.DataFrame, users: Sequence[str] | None, shown: int = 5) -> list[Section]:
    """Choose what to show: the asked-for users in the order asked, then the hardest and the easiest."""
    scored = table[table["cud"].notna()].sort_values("cud", ascending=False, kind="stable")
    parts = []
    if users is not None:
        wanted = table.set_index("user_id", drop=False).loc[list(users)]
        parts.append(Section("Asked for", _rows(wanted)))
    parts.append(Section("Hardest to unlearn", _rows(scored.head(shown))))
    rest = scored.iloc[shown:] if len(scored) < 2 * shown else scored
    parts.append(Section("Easiest to unlearn", _rows(rest.tail(shown))))
    return [p for p in parts if p.rows]


def _rows(table: pd.DataFrame) -> list[dict[str, str]]:
    return [_row(r) for r in table.to_dict("records")]


def _row(r: Mapping[Any, Any]) -> dict[str, str]:
    scored = not math.isnan(r["cud"])
    return {
        "user_id": str(r["user_id"]),
        "n_interactions": f"{r['n_interactions']:,}",
        "cud": f"{r['cud']:.3f}" if scored else "none",
        "interval": f"{r['cud_low']:.2f}-{r['cud_high']:.2f}" if scored else "",
        "percentile": f"{r['percentile']:.0f}" if scored else "",
        "band": str(r["band"]) + ("*" if r["is_anchor"] else ""),
        "s_easy": _figure(r["s_easy"]),
        "s_hard": _figure(r["s_hard"]),
        "loss": _figure(r["loss"]),
        "personalisation_gap": _figure(r["personalisation_gap"]),
        "predicted_residual": _share(r["predicted_residual"]),
    }


def _figure(value: float) -> str:
    return "" if math.isnan(value) else f"{value:z.2f}"  # z: no -0.00


def _share(value: float) -> str:
    return "" if math.isnan(value) else f"{value:z.0%}".replace("%", " %")


def facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Sentences below the table, as (label, text)."""
    anchors, rho = summary["anchors"], summary["spearman"]
    lines = [
        ("model", _model(summary)),
        ("circuits", _circuits(summary)),
        ("anchors", _anchors(summary)),
    ]
    agreed = [
        f"Kendall's W between {kind} {anchors[key]:.2f}"
        for kind, key in (("methods", "kendall_w_methods"), ("seeds", "kendall_w_seeds"))
        if anchors.get(key) is not None and not math.isnan(anchors[key])
    ]
    lines += [("agreement", ", ".join(agreed))] if agreed else []
    names = {
        "n_interactions": "activity",
        "mean_item_popularity": "popularity",
        "loss": "loss",
        "personalisation_gap": "personalisation gap",
        "answer_tokens": "answer length",
        "shared_ngrams": "shared wording",
    }
    known = [f"{names[k]} {v:+.2f}" for k, v in rho.items() if v is not None]
    lines.append(("CUD against", f"{', '.join(known)} (Spearman)"))
    who = words_in(summary)["entities"]
    lines.append(("residual", _residual(summary["predicted_residual"], who)))
    return lines


def _residual(known: Mapping[str, Any], who: str) -> str:
    if known["reason"]:
        return f"none: {known['reason']}"
    rho, r2 = (("none" if known[k] is None else f"{known[k]:.2f}") for k in ("spearman", "r2"))
    return (
        f"on {known['users']} probed {who}, each predicted from the others: Spearman {rho}, R² {r2}, half of "
        f"the errors below {100 * known['median_error']:.0f} points, {known['coverage']:.0%} inside their "
        f"{known['stated_coverage']:.0%} interval"
    )


def _model(summary: Mapping[str, Any]) -> str:
    if "told" in summary:
        return str(summary["told"])
    test, popularity = summary["metrics"]["test"], summary["popularity_metrics"]["test"]
    shown = [k for k in ("ndcg@10", "auc", "logloss") if k in test]
    figures = ", ".join(
        f"{k} {test[k]:.4f}" + (f" (popularity {popularity[k]:.4f})" if k in popularity else "")
        for k in shown
    )
    epochs = f"{summary['epochs']} epoch{'s' * (summary['epochs'] != 1)}"
    return (
        f"{summary['model']} on {summary['dataset']}, {epochs}, test {figures}; "
        f"positives: {summary['positives']}"
    )


def _circuits(summary: Mapping[str, Any]) -> str:
    settings = summary["settings"]["circuits"]
    cap, words = settings["per_user"], words_in(summary)
    return (
        f"{summary['traced_interactions']:,} {words['samples']}"
        + (f" (at most {cap} of a {words['entity']})" if cap else "")
        + f", {summary['edges']} edges, {settings['score']}, {settings['steps']} steps, median completeness "
        f"gap {summary['median_completeness_gap']:.2%}"
    )


def _anchors(summary: Mapping[str, Any]) -> str:
    a, settings = summary["anchors"], summary["settings"]["anchors"]
    who = words_in(summary)["entities"]
    text = f"{a['easy']} easy and {a['hard']} hard of {a['pool']:.0f} probed {who} ({settings['source']}"
    text += f", outcome {settings['outcome']})"
    if a.get("not_measurable"):
        text += f"; {a['not_measurable']:.0f} {who} not measurable"
    return text


def draw(
    console: Console,
    parts: Sequence[Section],
    lines: Sequence[tuple[str, str]],
    headers: Mapping[str, str] = HEADERS,
    legend: str = LEGEND,
) -> None:
    """Print the sections, aligned with each other, and the facts below."""
    rows = [headers, *(row for part in parts for row in part.rows)]
    widths = {key: max(len(row[key]) for row in rows) for key in headers}
    for i, part in enumerate(parts):
        console.print(Text(part.title, style="bold cyan"))
        console.print(_table(part, headers, widths, header=i == 0))
    console.print(Text(legend, style="dim"))
    console.print()
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in lines:
        grid.add_row(label, Text(text))
    console.print(grid)


def _table(part: Section, headers: Mapping[str, str], widths: Mapping[str, int], *, header: bool) -> Table:
    table = Table(box=None, pad_edge=False, show_header=header, header_style="bold", padding=(0, 1))
    for key, name in headers.items():
        side: Literal["left", "right"] = "left" if key in LEFT else "right"
        table.add_column(name, justify=side, width=widths[key], overflow="ellipsis", no_wrap=True)
    for row in part.rows:
        colour = COLOURS.get(row["band"].rstrip("*"), "")
        table.add_row(*(Text(row[k], style=colour if k in ("cud", "band") else "") for k in headers))
    return table
