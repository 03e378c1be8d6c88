"""One user's explanation on a terminal, and as plain data for JSON."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recunlearn.difficulty.explanation import by_layer
from recunlearn.studies.explain import ExplainedUser

SHOWN = 10
COLOURS = {True: "red", False: "green"}


def as_data(found: ExplainedUser, picture: Path | None) -> dict[str, Any]:
    """Plain values: the score, the sentence, layers, and every edge from the largest contribution down."""
    told, row = found.told, found.row
    order = told.strongest(len(found.edges))
    return {
        f"{found.words['entity']}_id": row["user_id"],
        "cud": row["cud"],
        "band": row["band"],
        "percentile": row["percentile"],
        "rank": found.rank,
        f"scored_{found.words['entities']}": found.scored,
        "s_easy": told.s_easy,
        "s_hard": told.s_hard,
        "anchor": told.side,
        "sentence": found.sentence,
        "start": told.start,
        "standardised": told.standardised,
        "layers": by_layer(found.graph, told.contribution),
        "edges": [_edge(found, int(e)) for e in order],
        "picture": None if picture is None else str(picture),
    }


def _edge(found: ExplainedUser, e: int) -> dict[str, Any]:
    names = (found.words["entity"], "easy", "hard")
    told = found.told
    return {
        "edge": found.edges[e],
        "contribution": float(told.contribution[e]),
        **{f"{n}_strength": float(v) for n, v in zip(names, told.strength[:, e], strict=True)},
        **{f"{n}_compared": float(v) for n, v in zip(names, told.compared[:, e], strict=True)},
    }


def rows(found: ExplainedUser, shown: int = SHOWN) -> list[tuple[str, str, str, str, str]]:
    """Cells of the edges that decide: name, user, easy, hard (as compared), contribution."""
    told = found.told
    return [
        (found.edges[e], *(f"{v:+.2f}" for v in told.compared[:, e]), f"{told.contribution[e]:+.4f}")
        for e in told.strongest(shown)
    ]


def draw(console: Console, found: ExplainedUser, picture: Path | None) -> None:
    """Print the sentence, the edges that decide, the sums per layer and where the picture lies."""
    console.print(Text(found.sentence))
    console.print()
    console.print(Text(f"The {len(rows(found))} edges that decide", style="bold cyan"))
    console.print(_edges(found))
    told = found.told
    rest = told.contribution.sum() - told.contribution[told.strongest(SHOWN)].sum()
    console.print(Text(_legend(found, float(rest)), style="dim"))
    console.print()
    console.print(Text("By layer: added to CUD", style="bold cyan"))
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1))
    table.add_column()
    table.add_column(justify="right")
    for name, value in by_layer(found.graph, told.contribution).items():
        table.add_row(Text(name), Text(f"{value:+.4f}", style=COLOURS[value > 0]))
    console.print(table)
    if picture is not None:
        console.print()
        console.print(Text(f"picture: {picture}"), soft_wrap=True)


def _edges(found: ExplainedUser) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    table.add_column("edge", overflow="fold")
    for name in (found.words["entity"], "easy", "hard", "adds"):
        table.add_column(name, justify="right", no_wrap=True)
    for *cells, added in rows(found):
        table.add_row(*map(Text, cells), Text(added, style=COLOURS[added.startswith("+")]))
    return table


def _term(value: float) -> str:
    """A summand after the first one.

    >>> _term(0.0814), _term(-0.01)
    ('+ 0.081', '- 0.010')
    """
    return f"{'-' if value < 0 else '+'} {abs(value):.3f}"


def _legend(found: ExplainedUser, rest: float) -> str:
    told, who = found.told, found.words["entity"]
    unit = f"standard deviations from the average {who}" if told.standardised else "strength of the edge"
    return (
        f"{who}, easy, hard: {unit}, of this {who} and on average over the anchors; adds: to CUD, + towards "
        f"hard. CUD {told.cud:.3f} = {told.start:.3g} {_term(told.contribution.sum())} over all "
        f"{len(found.edges)} edges ({rest:+.3f} by those not shown)"
    )
