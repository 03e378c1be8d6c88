"""``circuits signatures``: which edges separate hard from easy users."""

import inspect
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from recunlearn.commands.circuits import circuits
from recunlearn.commands.score_users import run_settings, score_users


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
    """Settings of the run, as ``score-users`` makes them; what is no option here comes from ``config``."""
    others = dict.fromkeys(set(inspect.signature(score_users).parameters) - {"config", "checkpoint"})
    return run_settings(config, checkpoint, **(others | asked))
