"""``circuits signatures``: which edges separate hard from easy users."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from recunlearn.commands.circuits import circuits
from recunlearn.commands.run_options import Run, with_run


def register(_app: typer.Typer) -> None:
    """Add ``signatures`` to the group ``circuits``, once."""
    if all(command.name != "signatures" for command in circuits.registered_commands):
        circuits.command("signatures")(with_run(signatures))


def signatures(
    out: Annotated[Path | None, typer.Option(help="Folder for the tables (JSON and CSV).")] = None,
    format_: Annotated[
        Literal["table", "json", "markdown"], typer.Option("--format", help="What stdout gets.")
    ] = "table",
    *,
    run: Run,
) -> None:
    """Compare the circuits of easy and hard users: paths, late and direct edges, attention, Gini, overlap."""
    from recunlearn.foundation.store import to_json
    from recunlearn.report.signature_table import draw, markdown
    from recunlearn.report.terminal import listening
    from recunlearn.studies.circuit_signatures import circuit_signatures, export_signatures, plain
    from recunlearn.studies.scoring import check_folder

    if out is not None:
        check_folder(out)
    with listening() as listener:
        report = circuit_signatures(run.settings, checkpoint=run.checkpoint, listener=listener)
    if out is not None:
        export_signatures(report, out)
    if format_ == "json":
        typer.echo(to_json(plain(report)), nl=False)
    elif format_ == "markdown":
        typer.echo(markdown(report))
    else:
        from rich.console import Console

        draw(Console(), report, out)
