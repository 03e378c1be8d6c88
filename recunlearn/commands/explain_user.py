"""``explain-user``: why one user is hard or easy to forget, as a picture, a table and a sentence."""

import inspect
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from recunlearn.commands.score_users import run_settings, score_users

OWN = ("users", "on_missing", "out", "format_")
"""Options of ``score-users`` that say what to show; the others identify a run, and are the same here."""


def register(app: typer.Typer) -> None:
    """Add the command, with every option of ``score-users`` that identifies a run."""
    own, theirs = inspect.signature(explain_user).parameters, inspect.signature(score_users).parameters
    run = [p for name, p in theirs.items() if name not in OWN]
    shown = [p for p in own.values() if p.kind is not p.VAR_KEYWORD]
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (*shown, *run)]

    def command(**options: Any) -> None:
        explain_user(**options)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    app.command("explain-user", help=explain_user.__doc__)(command)


def explain_user(
    user: Annotated[str, typer.Argument(metavar="ID", help="User to explain.", show_default=False)],
    picture: Annotated[Literal["png", "svg", "none"], typer.Option(help="Kind of picture, if any.")] = "png",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the picture. (default: where the run's tables go)")
    ] = None,
    format_: Annotated[
        Literal["table", "json"], typer.Option("--format", help="What stdout gets.")
    ] = "table",
    **run: Any,
) -> None:
    """Explain one user's CUD: circuit, the edges that decide, and one sentence."""
    from recunlearn.report.terminal import listening
    from recunlearn.studies.explain import explained_user
    from recunlearn.studies.scoring import check_folder, default_folder

    checkpoint = run.pop("checkpoint")
    settings = run_settings(run.pop("config"), checkpoint, **run)
    if out is not None:
        check_folder(out)
    with listening() as listener:
        found = explained_user(user, settings, checkpoint=checkpoint, listener=listener)
    file = None
    if picture != "none":
        from recunlearn.report.circuit_graph import save_picture

        folder = out or default_folder(found.scores, checkpoint)
        # The rank and not the id: pictures are shared, and outlive the user's data.
        file = save_picture(found, folder / f"circuit-rank-{found.rank}-of-{found.scored}.{picture}")
    _print(found, format_, file)


def _print(found: Any, format_: str, file: Path | None) -> None:
    from recunlearn.report.explain_table import as_data, draw

    if format_ == "json":
        from recunlearn.foundation.store import to_json

        typer.echo(to_json(as_data(found, file)), nl=False)
        return
    from rich.console import Console

    draw(Console(), found, file)
