"""``export-embeddings``: vectors of items, and of users on request, for an index."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from recunlearn.commands.run_options import Run, with_run

RUN = ("dataset", "model", "checkpoint", "min_rating", "epochs", "set_", "seed", "device", "config")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export-embeddings")(with_run(export_embeddings, RUN))


def export_embeddings(
    out: Annotated[Path, typer.Option(help="File to write: .parquet or .npz.")],
    side: Annotated[
        Literal["items", "users", "both"], typer.Option(help="Whose vectors: users are personal data.")
    ] = "items",
    *,
    run: Run,
) -> None:
    """Write the vectors of a trained model with their ids, without deleted users; nothing is trained."""
    from recunlearn.deletion.standing import served_model
    from recunlearn.studies.serving import export_embeddings as write
    from recunlearn.studies.serving import served

    model = served(served_model(run.settings, run.checkpoint))
    counts = write(model, out, ("items", "users") if side == "both" else (side,))
    told = " and ".join(f"{count:,} {what}" for what, count in counts.items())
    typer.echo(f"Wrote the vectors of {told} to {out}.")
