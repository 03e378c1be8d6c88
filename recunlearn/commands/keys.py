"""``keys``: make the keys that sign receipts and stand for ids."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(no_args_is_help=True, help="Keys that sign receipts and stand for ids.")
    group.command("init")(init)
    app.add_typer(group, name="keys")


def init(
    keys: Annotated[Path | None, typer.Option(help="Folder of the keys. (default: in the home)")] = None,
) -> None:
    """Make a signing key (Ed25519) and a key for hashes of ids (HMAC-SHA256), once."""
    from recunlearn.deletion.signing import PUBLIC, make_keys

    folder = make_keys(keys)
    typer.echo(f"Keys made in {folder}. Back the folder up: without it no receipt can be signed or matched.")
    typer.echo(f"Auditors need {folder / PUBLIC} alone.")
