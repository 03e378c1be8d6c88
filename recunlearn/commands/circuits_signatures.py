"""``circuits signatures``: which edges separate hard from easy users."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from recunlearn.commands.circuits import circuits


def register(_app: typer.Typer) -> None:
    """Add ``signatures`` to the group ``circuits``, once."""
    if all(command.name != "signatures" for command in circuits.registered_commands):
        circuits.command("signatures")(signatures)


def signatures(
    dataset: Annotated[
        str | None, typer.Option(help="Name that `data list` shows. (default: ml-100k)")
    ] = None,
    model: Annotated[str | None, typer.Option(help="RecBole model. (default: NeuMF)")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Folder of a trained model to use instead.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of every stage. (default: 0)")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the tables (JSON and CSV).")] = None,
    format_: Annotated[
        Literal["table", "json", "markdown"], typer.Option("--format", help="What stdout gets.")
    ] = "table",
    config: Annotated[
        Path | None, typer.Option("--config", help="TOML file with settings; options go over it.")
    ] = None,
) -> None:
    """Compare the circuits of easy and hard users: paths, late and direct edges, attention, Gini, overlap."""
    from recunlearn.foundation.store import to_json
    from recunlearn.report.signature_table import draw, markdown
    from recunlearn.report.terminal import listening
    from recunlearn.studies.circuit_signatures import circuit_signatures, export_signatures, plain
    from recunlearn.studies.scoring import check_folder

    settings = _settings(config, checkpoint, dataset=dataset, model=model, seed=seed)
    if out is not None:
        check_folder(out)
    with listening() as listener:
        report = circuit_signatures(settings, checkpoint=checkpoint, listener=listener)
    if out is not None:
        export_signatures(report, out)
    if format_ == "json":
        typer.echo(to_json(plain(report)), nl=False)
    elif format_ == "markdown":
        typer.echo(markdown(report))
    else:
        from rich.console import Console

        draw(Console(), report, out)


def _settings(config: Path | None, checkpoint: Path | None, **asked: Any) -> Any:
    """Settings of the run: options over those of ``config``."""
    from recunlearn.commands.requested import given, merged
    from recunlearn.foundation.errors import UsageError
    from recunlearn.foundation.settings import ScoreSettings, make_settings, read_toml
    from recunlearn.studies.keys import read_checkpoint

    options = given(**asked)
    if checkpoint is not None:
        if "model" in options:
            raise UsageError(
                f"--model cannot go with --checkpoint: {checkpoint} says which model it is. Leave out one."
            )
        options.setdefault("dataset", read_checkpoint(checkpoint)["data"])
    values = merged(read_toml(config) if config else {}, options)
    return make_settings(ScoreSettings, values, f"{config} and the options" if config else "the options")
