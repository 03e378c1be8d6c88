"""``verify``: does a receipt hold?"""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify")(verify)


def verify(
    receipt: Annotated[Path, typer.Argument(help="receipts/REFERENCE.json of a deletion.")],
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder of the model that the deletion made.")
    ] = None,
    public: Annotated[
        Path | None,
        typer.Option(help="Public key of the signer; the ledger is then not asked. (default: own keys)"),
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="Folder of the keys. (default: in the home)")] = None,
) -> None:
    """Check a receipt's signature, its place in the chain and the model: one line.

    Exit codes: 0 it holds, 3 tampered, 4 unsigned, 5 another key, 6 broken chain, 7 another model.
    """
    from recunlearn.deletion.ledger import Ledger
    from recunlearn.deletion.receipt import verify as check
    from recunlearn.deletion.signing import PUBLIC, read_keys, read_public

    path = Ledger.default_path()
    if public is not None or not path.is_file():
        own = public or (keys / PUBLIC if keys is not None else None)
        found = check(receipt, read_public(own), checkpoint=checkpoint)
    else:
        ring = read_keys(keys)
        with Ledger(path, ring, only_read=True) as ledger:
            found = check(receipt, ring.public, ledger=ledger, checkpoint=checkpoint)
    typer.echo(found.sentence)
