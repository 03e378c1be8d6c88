"""``export-recbole``: a checkpoint as RecBole's own ``.pth``."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export-recbole")(export_recbole)


def export_recbole(
    folder: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="Folder of a trained model.")],
    out: Annotated[Path, typer.Option(help="File to write: .pth; its data go into a folder beside it.")],
) -> None:
    """Write a checkpoint as RecBole's own .pth (a pickle), with the data files that it belongs to."""
    from recunlearn.subjects.recbole.export import export_recbole as write

    write(folder, out)
    typer.echo(f"Wrote {out} and {out.with_name(f'{out.stem}-data')} for RecBole.")
    typer.echo("Both hold users of the data set: they are yours to purge when one is deleted.", err=True)
