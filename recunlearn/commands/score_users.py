"""``score-users``: who will be hard to forget."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from recunlearn.commands.run_options import Run, with_run


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("score-users")(with_run(score_users))


def score_users(
    users: Annotated[
        Path | None, typer.Option(help="Users to show: a CSV with a user_id column, or one id a line.")
    ] = None,
    on_missing: Annotated[
        Literal["error", "skip"], typer.Option(help="What to do about users that cannot be scored.")
    ] = "error",
    out: Annotated[Path | None, typer.Option(help="Folder for the tables.")] = None,
    format_: Annotated[
        Literal["table", "csv", "json"], typer.Option("--format", help="What stdout gets.")
    ] = "table",
    *,
    run: Run,
) -> None:
    """Score every user of a data set: CUD from 0 (easy to unlearn) to 1 (hard)."""
    from recunlearn.commands.requested import read_users
    from recunlearn.report.terminal import listening
    from recunlearn.studies.scoring import check_folder, default_folder, export, is_stored, scored_users

    settings, checkpoint = run.settings, run.checkpoint
    if out is not None:
        check_folder(out)
    asked = read_users(users) if users else None
    if asked is not None and not is_stored(settings, checkpoint):
        _check_known(asked, users, on_missing, settings)
    with listening() as listener:
        scores = scored_users(settings, checkpoint=checkpoint, listener=listener)
    shown = _find(scores, asked, users, on_missing, settings) if asked is not None else None
    folder = out or default_folder(scores, checkpoint)
    export(scores, folder)
    _print(scores, shown, format_, folder)


def _check_known(asked: list[str], file: Any, on_missing: str, settings: Any) -> None:
    """Refuse unknown users before anything is trained."""
    from recunlearn.commands.requested import unknown_sentence
    from recunlearn.data.catalogue import load_interactions
    from recunlearn.foundation.errors import UsageError

    known = load_interactions(settings.dataset).users.tolist()
    unknown = sorted(set(asked) - set(known))
    if unknown and (on_missing == "error" or len(unknown) == len(asked)):
        raise UsageError(unknown_sentence(unknown, known, file, settings.dataset))


def _find(scores: Any, asked: list[str], file: Any, on_missing: str, settings: Any) -> list[str]:
    """Asked-for users that have a row; the others are named."""
    from recunlearn.commands.requested import missing_sentence
    from recunlearn.foundation.errors import UsageError

    table = scores.table
    known = set(table["user_id"][table["cud"].notna()])
    missing = [u for u in asked if u not in known]
    if missing:
        sentence = missing_sentence(missing, table, file, settings)
        if on_missing == "error":
            raise UsageError(f"{sentence} Correct the file, or add --on-missing skip.")
        if len(missing) == len(asked):
            raise UsageError(f"{sentence} Nobody is left to show. Correct the file.")
        typer.echo(f"Warning: {sentence} Skipped.", err=True)
    return [u for u in asked if u in known]


def _print(scores: Any, shown: list[str] | None, format_: str, folder: Path) -> None:
    table = scores.table
    if shown is not None:
        chosen = table.set_index("user_id", drop=False).loc[shown]
    if format_ == "csv":
        typer.echo((table if shown is None else chosen).to_csv(index=False), nl=False)
    elif format_ == "json":
        typer.echo(
            (table if shown is None else chosen).to_json(orient="records", indent=1, force_ascii=False)
        )
    else:
        from rich.console import Console

        from recunlearn.report.score_table import draw, facts, sections

        draw(Console(), sections(table, shown), [*facts(scores.summary), ("saved in", str(folder))])
    for warning in () if scores.fresh else scores.summary["warnings"]:
        typer.echo(f"Warning: {warning}", err=True)
