"""``circuits``: how far circuits can be trusted, and what they show."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

circuits = typer.Typer(no_args_is_help=True, help="How far circuits can be trusted, and what they show.")

Toml = Annotated[Path | None, typer.Option("--config", help="TOML file with settings; options go over it.")]


def register(app: typer.Typer) -> None:
    """Add ``circuits`` with its sub-commands; further files of this folder add theirs to the group."""
    app.add_typer(circuits, name="circuits")


@circuits.command()
def check(
    dataset: Annotated[
        str | None, typer.Option(help="Name that `data list` shows. (default: ml-100k)")
    ] = None,
    model: Annotated[str | None, typer.Option(help="RecBole model. (default: NeuMF)")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder of a trained model to check instead.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Interactions, one of each user as far as they reach.")] = 256,
    steps: Annotated[
        int | None, typer.Option(min=2, help="Points on the attribution path. (default: 16)")
    ] = None,
    edge_score: Annotated[
        Literal["eap-ig", "conductance"] | None, typer.Option(help="Edge score. (default: eap-ig)")
    ] = None,
    baseline: Annotated[
        Literal["mean", "zero", "counterfactual"] | None,
        typer.Option(help="Start of the path, and what ablated edges read. (default: mean)"),
    ] = None,
    retrain_seeds: Annotated[
        int, typer.Option(min=0, max=20, help="Train the model as often again, to see how edges move.")
    ] = 0,
    epochs: Annotated[int | None, typer.Option(min=1, help="Most training epochs.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Parameter of the recommender (repeatable)."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of every stage. (default: 0)")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N. (default: auto)")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for check.json, edges.csv and check.png.")] = None,
    format_: Annotated[
        Literal["table", "json"], typer.Option("--format", help="What stdout gets.")
    ] = "table",
    config: Toml = None,
) -> None:
    """Compare attribution with exact ablation of every edge: can these circuits be trusted?"""
    from recunlearn.commands.requested import given, parameters
    from recunlearn.report.terminal import listening
    from recunlearn.studies.circuit_check import check_circuits
    from recunlearn.studies.scoring import check_folder

    options: dict[str, Any] = given(
        dataset=dataset,
        model=model,
        seed=seed,
        device=device,
        circuits=given(steps=steps, score=edge_score, baseline=baseline),
        training=given(epochs=epochs, params=parameters(set_ or [])),
    )
    settings = _settings(options, config, checkpoint, **{"--model": model, "--epochs": epochs, "--set": set_})
    if out is not None:
        check_folder(out)
    with listening() as listener:
        found = check_circuits(
            settings, checkpoint=checkpoint, samples=samples, retrain_seeds=retrain_seeds, listener=listener
        )
    saved = _saved(found, out) if out is not None else []
    _print(found.summary, format_, saved)


def _settings(options: dict[str, Any], config: Path | None, checkpoint: Path | None, **alone: Any) -> Any:
    from recunlearn.commands.requested import merged
    from recunlearn.foundation.errors import UsageError
    from recunlearn.foundation.settings import ScoreSettings, make_settings, read_toml
    from recunlearn.studies.keys import read_checkpoint

    if checkpoint is not None:
        options.setdefault("dataset", read_checkpoint(checkpoint)["data"])
        named = [name for name, value in alone.items() if value not in (None, [])]
        if named:
            raise UsageError(
                f"{', '.join(named)} cannot go with --checkpoint: the model in {checkpoint} is trained "
                "already. Leave out one or the other."
            )
    values = merged(read_toml(config) if config else {}, options)
    return make_settings(ScoreSettings, values, f"{config} and the options" if config else "the options")


def _saved(found: Any, folder: Path) -> list[Path]:
    """Write what was found."""
    from recunlearn.foundation.store import atomic_file, write_json
    from recunlearn.report.circuit_check_figure import check_figure, save_figure

    files = [folder / name for name in ("check.json", "edges.csv", "check.png")]
    write_json(files[0], found.summary)
    with atomic_file(files[1]) as temporary:
        found.edges.to_csv(temporary, index=False)
    save_figure(check_figure(found.summary, found.exact, found.scores), files[2])
    return files


def _print(summary: dict[str, Any], format_: str, saved: list[Path]) -> None:
    if format_ == "json":
        from recunlearn.foundation.store import to_json

        typer.echo(to_json(summary), nl=False)
    else:
        from rich.console import Console

        from recunlearn.report.circuit_check import draw, parts

        title = f"{summary['model']} on {summary['dataset']}, {summary['epochs']} epochs"
        draw(Console(), parts(summary), [("model", title), *(("saved", str(p)) for p in saved)])
    for name, reason in summary["reasons"].items():
        typer.echo(f"Warning: no figure for {name}: {reason}.", err=True)
