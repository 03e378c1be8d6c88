"""``import-checkpoint``: take over a model that RecBole's own trainer saved."""

from pathlib import Path
from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("import-checkpoint")(import_checkpoint)


def import_checkpoint(
    file: Annotated[Path, typer.Argument(metavar="F.pth", help="Checkpoint that RecBole's trainer wrote.")],
    dataset: Annotated[str, typer.Option(help="Data set it was trained on; a name that `data list` shows.")],
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Unpickle without restriction: runs any code in the file.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the imported model.")] = None,
) -> None:
    """Import a RecBole checkpoint; accepted only if it scores on the data set as it did when it was saved."""
    from recunlearn.data.catalogue import load_interactions
    from recunlearn.foundation import paths
    from recunlearn.foundation.errors import CheckpointError, UsageError

    interactions = load_interactions(dataset)
    if not file.is_file():
        raise CheckpointError(f"{file} is no file. Name the .pth file that RecBole's trainer wrote.")
    if out is not None and out.exists() and not (out / "manifest.json").is_file():
        raise UsageError(f"{out} exists and is no model of this program. Name another folder with --out.")
    from recunlearn.foundation.store import file_hash
    from recunlearn.subjects.recbole.import_checkpoint import import_checkpoint as take

    folder = out or paths.models() / f"{dataset}-imported-{file_hash(file)[:12]}"
    subject = take(file, interactions, folder=folder, trust_pickle=trust_pickle)
    facts: dict[str, Any] = dict(subject.describe())
    check = facts["imported"]
    typer.echo(
        f"Imported {facts['model']} into {folder}: {check['valid_metric']} {check['got']:.4f} on validation, "
        f"as stored ({check['stored']:.4f})."
    )
    typer.echo(f"Score its users with: score-users --dataset {dataset} --checkpoint {folder}")
