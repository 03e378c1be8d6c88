"""The check of circuits: tables as data first, then drawn on the terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

SCORES = {
    "eap-ig": "eap-ig",
    "conductance": "conductance",
    "eap-ig near": "eap-ig, last quarter",
    "eap": "eap, at actual",
    "exact": "exact ablation",
}
CURVES = {
    "absolute": "own, absolute",
    "signed": "own, signed",
    "shared": "one for all",
    "activation": "|activation|",
    "complement": "complement",
}


@dataclass(frozen=True)
class Part:
    """One table: a title, the names of its columns, rows of text, and a legend."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    legend: str = ""


def parts(summary: Mapping[str, Any]) -> list[Part]:
    """Turn a check's summary into tables."""
    return [
        _agreement(summary),
        _curves(summary),
        _scores(summary),
        *_stability(summary),
    ]


def _agreement(s: Mapping[str, Any]) -> Part:
    low, high = s["interval"] or (None, None)
    span = "" if low is None else f" [{figure(low)}, {figure(high)}]"
    rows = [
        ("Spearman, pooled", figure(s["spearman_exact"]) + span),
        ("Spearman, mean of samples", figure(s["per_sample"])),
        ("Pearson, pooled", figure(s["pearson"])),
        ("same sign", f"{share(s['sign'])} ({share(s['sign_weighted'])} by size)"),
    ]
    return Part(
        "Attribution against exact ablation",
        ("", ""),
        rows,
        f"{s['samples']:,} interactions of {s['users']:,} users, {s['edges']} edges, "
        f"{s['circuits']['score']}, {s['circuits']['steps']} steps, baseline {s['circuits']['baseline']}; "
        "95 % interval over resampled users",
    )


def _curves(s: Mapping[str, Any]) -> Part:
    found = s["faithfulness"]
    title = "Share of the model that circuits carry, f(k)"
    if found["reason"]:
        return Part(title, ("",), [(found["reason"],)])
    places = [i for i, n in enumerate(found["sizes"]) if 0.04 * s["edges"] <= n < s["edges"]]
    header = ("edges kept", *(f"{found['sizes'][i]}" for i in places), "CPR", "CMD")

    def row(name: str, f: Sequence[float], cpr: float, cmd: float) -> tuple[str, ...]:
        return (name, *(figure(v, 2) for v in (*(f[i] for i in places), cpr, cmd)))

    rows = [row(CURVES[k], c["f"], c["cpr"], c["cmd"]) for k, c in found["curves"].items()]
    r = found["random"]
    rows.append(row(f"random, mean of {r['draws']}", r["f"], r["cpr"], r["cmd"]))
    rows.append(row("random, sd", r["sd"], r["cpr_sd"], r["cmd_sd"]))
    gap = s["completeness"]
    return Part(
        title,
        header,
        rows,
        f"m from {found['empty']:.3f} (no edge) to {found['full']:.3f} (all). Knock-out of random halves of "
        f"{gap['circuit']} edges: circuit and model differ by {gap['gap']:.3f} "
        f"(random circuits {gap['gap_random']:.3f})",
    )


def _scores(s: Mapping[str, Any]) -> Part:
    rows = [
        (
            SCORES[r["score"]],
            str(r["points"]),
            *(figure(r[k]) for k in ("spearman", "per_sample", "pearson")),
            share(r["sign"]),
            figure(r["cpr"], 2),
            figure(r["cmd"], 2),
        )
        for r in s["edge_scores"]
    ]
    header = ("edge score", "points", "Spearman", "per sample", "Pearson", "sign", "CPR", "CMD")
    return Part("Edge scores against exact ablation", header, rows, "points: passes that a sample costs")


def _stability(s: Mapping[str, Any]) -> list[Part]:
    rows = [
        (f"{kind} {r[kind.split()[-1]]}", r.get("against", ""), *(figure(r[k]) for k in columns))
        for kind, found in s["stability"].items()
        for r in found
        for columns in [("spearman", "per_sample", "jaccard")]
    ]
    header = ("what changes", "against", "Spearman", "per sample", "Jaccard, top 10 %")
    reasons = dict.fromkeys(r["reason"] for found in s["stability"].values() for r in found if r["reason"])
    return [Part("Stability of the edges", header, rows, " ".join(f"none: {why}" for why in reasons))]


def figure(value: float | None, digits: int = 3) -> str:
    """Text of a figure; "none" where there is none.

    >>> figure(None), figure(0.87448)
    ('none', '0.874')
    """
    return "none" if value is None else f"{value:.{digits}f}"


def share(value: float | None) -> str:
    """Text of a share in per cent.

    >>> share(0.9554)
    '95.5 %'
    """
    return "none" if value is None else f"{value:.1%}".replace("%", " %")


def draw(console: Console, tables: Sequence[Part], facts: Sequence[tuple[str, str]]) -> None:
    """Print the tables and the facts below."""
    for part in tables:
        console.print(Text(part.title, style="bold cyan"))
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
        table.show_header = any(part.header)
        for i, name in enumerate(part.header):
            table.add_column(name, justify="right" if i and len(part.header) > 2 else "left")
        for row in part.rows:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)
        if part.legend:
            console.print(Text(part.legend, style="dim"))
        console.print()
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in facts:
        grid.add_row(label, Text(text))
    console.print(grid)
