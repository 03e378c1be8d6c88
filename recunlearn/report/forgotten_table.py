"""What one request of ``unlearn`` did: data first, then drawn."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recunlearn.studies.forgetting import Forgotten

SHOWN = ("ndcg@10", "recall@10", "auc", "logloss")


def as_data(found: Forgotten) -> dict[str, Any]:
    """Plain values for ``--format json``."""
    return {
        **found.facts,
        "losses": {k: dict(v) for k, v in found.losses.items()},
        "ranking": {k: dict(v) for k, v in found.ranking.items()},
        "folder": str(found.folder),
    }


def rows(found: Forgotten) -> list[tuple[str, str, str]]:
    """What was measured, before and after."""
    measured = {f"loss of the {who}": values for who, values in found.losses.items()}
    measured |= {f"test {name} of the others": found.ranking[name] for name in SHOWN if name in found.ranking}
    return [(what, f"{v['before']:.4f}", f"{v['after']:.4f}") for what, v in measured.items()]


def cost(found: Forgotten) -> str:
    """One line on what it took."""
    f = found.facts
    steps = f"{f['steps']:,} steps, " if f["steps"] else ""
    shards = f"{f['shards']} shards retrained, " if f["shards"] is not None else ""
    return (
        f"{shards}{steps}{f['seconds']:.1f} s, {f['parameters']:,} parameters trained, peak memory of the "
        f"process {f['peak_memory'] / 2**20:,.0f} MiB"
    )


def draw(console: Console, found: Forgotten) -> None:
    """Print the table and the cost."""
    f = found.facts
    console.print(Text(f"{f['method']}, {f['forgotten']:,} users forgotten", style="bold cyan"))
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2))
    table.add_column("mean")
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    for row in rows(found):
        table.add_row(*row)
    console.print(table)
    console.print()
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("cost", Text(cost(found)))
    grid.add_row("saved in", Text(str(found.folder)))
    console.print(grid)
