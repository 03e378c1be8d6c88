"""``circuits``: how far circuits can be trusted, and what they show."""

from pathlib import Path
from typing import Annotated, Any

import typer

from recunlearn.commands import options as o
from recunlearn.commands.run_options import Run, with_run

circuits = typer.Typer(no_args_is_help=True, help="How far circuits can be trusted, and what they show.")


def register(app: typer.Typer) -> None:
    """Add ``circuits`` with its sub-commands; further files of this folder add theirs to the group."""
    if not circuits.registered_commands:
        circuits.command("check")(with_run(check, (*CHECKED, *TRAINED)))
    app.add_typer(circuits, name="circuits")


CHECKED = ("dataset", "model", "checkpoint", "steps", "edge_score", "baseline", "granularity")
TRAINED = ("min_rating", "epochs", "set_", "seed", "device", "threads", "config")
"""Options of a run that a check depends on: it has neither anchors nor scores."""


def check(
    samples: Annotated[int, typer.Option(help="Interactions, one of each user as far as they reach.")] = 256,
    retrain_seeds: Annotated[
        int, typer.Option(min=0, max=20, help="Train the model as often again, to see how edges move.")
    ] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for check.json, edges.csv and check.png.")] = None,
    format_: o.TableOrJson = "table",
    *,
    run: Run,
) -> None:
    """Compare attribution with exact ablation of every edge: can these circuits be trusted?"""
    from recunlearn.report.terminal import listening
    from recunlearn.studies.circuit_check import check_circuits
    from recunlearn.studies.scoring import check_folder

    if out is not None:
        check_folder(out)
    with listening() as listener:
        found = check_circuits(
            run.settings,
            checkpoint=run.checkpoint,
            samples=samples,
            retrain_seeds=retrain_seeds,
            listener=listener,
        )
    saved = _saved(found, out) if out is not None else []
    _print(found.summary, format_, saved)


def _saved(found: Any, folder: Path) -> list[Path]:
    """Write what was found, all or nothing."""
    from contextlib import ExitStack

    from recunlearn.foundation.store import atomic_file, to_json
    from recunlearn.report.circuit_check_figure import check_figure, save_figure

    files = [folder / name for name in ("check.json", "edges.csv", "check.png")]
    with ExitStack() as stack:  # all are written before the first takes its place
        summary, edges, figure = (stack.enter_context(atomic_file(file)) for file in files)
        summary.write_text(to_json(found.summary), encoding="utf-8")
        found.edges.to_csv(edges, index=False)
        save_figure(check_figure(found.summary, found.exact, found.scores), figure)
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
