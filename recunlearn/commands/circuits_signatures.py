"""``circuits signatures``: which edges separate hard from easy users."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from recunlearn.commands import options as o
from recunlearn.commands.circuits import circuits
from recunlearn.commands.run_options import Run, with_run

if TYPE_CHECKING:
    from recunlearn.studies.stored import ScoredRun


def register(_app: typer.Typer) -> None:
    """Add ``signatures`` to the group ``circuits``, once."""
    if all(command.name != "signatures" for command in circuits.registered_commands):
        circuits.command("signatures")(with_run(signatures))


def signatures(
    out: o.Tables = None,
    format_: o.TableOrText = "table",
    *,
    run: Run,
) -> None:
    """Compare the circuits of easy and hard users: paths, late and direct edges, attention, Gini, overlap."""
    from recunlearn.report.terminal import listening
    from recunlearn.studies.scoring import check_folder
    from recunlearn.studies.stored import scored_run

    if out is not None:
        check_folder(out)
    with listening() as listener:
        found = scored_run(run.settings, checkpoint=run.checkpoint, listener=listener)
    show(found, out, format_)


def show(run: "ScoredRun", out: Path | None, format_: str) -> None:
    """Compare the circuits of a run, write the tables where asked, and print them."""
    from recunlearn.foundation.store import to_json
    from recunlearn.report.signature_table import draw, markdown
    from recunlearn.studies.circuit_signatures import circuit_signatures, export_signatures, plain

    report = circuit_signatures(run)
    if out is not None:
        export_signatures(report, out)
    if format_ == "json":
        typer.echo(to_json(plain(report)), nl=False)
    elif format_ == "markdown":
        typer.echo(markdown(report))
    else:
        from rich.console import Console

        draw(Console(), report, out)
