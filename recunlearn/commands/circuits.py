"""``circuits``: how far circuits can be trusted, and what they show."""

import typer

circuits = typer.Typer(no_args_is_help=True, help="How far circuits can be trusted, and what they show.")


def register(app: typer.Typer) -> None:
    """Add ``circuits`` with its sub-commands; further files of this folder add theirs to the group."""
    app.add_typer(circuits, name="circuits")
