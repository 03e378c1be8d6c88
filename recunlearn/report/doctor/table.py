"""The doctor's findings as a table on stdout."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recunlearn.report.doctor.finding import Finding, usable

STYLES = {"ok": "green", "note": "yellow", "missing": "red"}


def print_table(findings: Sequence[Finding], console: Console | None = None) -> None:
    """Print one line per finding, the fixes below (unwrapped, to copy), and a verdict."""
    console = console or Console()
    table = Table("area", "what", "found", "state", box=None, pad_edge=False, header_style="bold")
    for f in findings:
        table.add_row(f.area, Text(f.name), Text(f.value), Text(f.state, style=STYLES[f.state]))
    console.print(table)
    for f in findings:
        if f.fix:
            console.print(Text(f"{f.name}: {f.fix}"), soft_wrap=True)
    console.print("Ready." if usable(findings) else "[red]Something required is missing: see above.[/]")
