"""``unlearn``: forget users, and write the new model."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from recunlearn.commands import options as o
from recunlearn.commands.run_options import Run, with_run

RUN = ("dataset", "model", "checkpoint", "min_rating", "epochs", "seed", "device", "threads", "config")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("unlearn")(with_run(unlearn, RUN))


def unlearn(
    method: Annotated[
        str, typer.Option(help="GradAscent, GradDiff, NPO, SimNPO, UNDIAL, E2URec, retrain, ...")
    ],
    users: Annotated[
        Path, typer.Option(help="Users to forget: a CSV with a user_id column, or one id a line.")
    ],
    on_missing: Annotated[
        Literal["error", "skip"], typer.Option(help="What to do about users that are not in the data.")
    ] = "error",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Setting of the method (repeatable)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the new model. (default: among the models)")
    ] = None,
    format_: o.TableOrJson = "table",
    *,
    run: Run,
) -> None:
    """Make a trained model forget users; the cost is told before."""
    from recunlearn.commands.requested import parameters, read_users
    from recunlearn.studies.keys import keys_for
    from recunlearn.studies.scoring import check_folder

    asked = _known(read_users(users), users, on_missing, run.settings.dataset)
    values = parameters(set_ or [])
    keys = keys_for(run.settings, run.checkpoint)
    from recunlearn.report.terminal import listening
    from recunlearn.studies.forgetting import check_out, forget_users
    from recunlearn.unlearning.registry import make

    unlearner = make(method, values, "--set")
    if out is not None:
        check_folder(out)
        check_out(out, keys.model)
    with listening() as listener:
        found = forget_users(keys, asked, unlearner, out=out, listener=listener)
    _print(found, format_)


def _known(asked: list[str], file: Path, on_missing: str, dataset: str) -> list[str]:
    """Users of the list that the data set has; others are refused, or skipped with a warning."""
    from recunlearn.commands.requested import unknown_sentence
    from recunlearn.data.catalogue import load_interactions
    from recunlearn.foundation.errors import UsageError

    there = load_interactions(dataset).users.tolist()
    unknown = sorted(set(asked) - set(there))
    if unknown and (on_missing == "error" or len(unknown) == len(asked)):
        raise UsageError(unknown_sentence(unknown, there, file, dataset))
    if unknown:
        typer.echo(f"Warning: not in '{dataset}' and skipped: {len(unknown)} of {file}.", err=True)
    return [user for user in asked if user not in set(unknown)]


def _print(found: Any, format_: str) -> None:
    from recunlearn.report.forgotten_table import as_data, draw

    if format_ == "json":
        from recunlearn.foundation.store import to_json

        typer.echo(to_json(as_data(found)), nl=False)
        return
    from rich.console import Console

    draw(Console(), found)
