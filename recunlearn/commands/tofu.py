"""``tofu``: language models on question-answer rows, by the same stages as recommenders."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from recunlearn.commands.run_options import with_run
from recunlearn.commands.tofu_options import OPTIONS, TRAINED, TextRun, run_of

tofu = typer.Typer(no_args_is_help=True, help="Language models: train, score and draw sets of rows (TOFU).")


def register(app: typer.Typer) -> None:
    """Add ``tofu`` with its sub-commands; further files of this folder add theirs to the group."""
    if not tofu.registered_commands:
        tofu.command("train")(with_run(train, TRAINED, known=OPTIONS, make=run_of))
        tofu.command("score")(with_run(score, known=OPTIONS, make=run_of))
    app.add_typer(tofu, name="tofu")


def train(
    out: Annotated[
        Path | None, typer.Option(help="Folder for the model. (default: RECUNLEARN_HOME/models)")
    ] = None,
    *,
    run: TextRun,
) -> None:
    """Fine-tune a language model on rows of questions and answers, or train a new one."""
    from recunlearn.report.terminal import listening
    from recunlearn.studies.scoring import check_folder

    if out is not None:
        check_folder(out)
    keys = run.keys(into=out)
    with listening() as listener, _explained(run):
        from recunlearn.studies.sources.language import facts, trained, warn

        subject = trained(keys, listener, anchors=False)
        warn(subject, lambda sentence: typer.echo(sentence, err=True))
    typer.echo(f"{facts(subject)['told']}. Saved in {keys.model}")


def score(
    rows: Annotated[
        Path | None, typer.Option(help="Rows to show: a CSV with a row_id column, or one id a line.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the tables.")] = None,
    format_: Annotated[
        Literal["table", "csv", "json"], typer.Option("--format", help="What stdout gets.")
    ] = "table",
    *,
    run: TextRun,
) -> None:
    """Score every row (or author): CUD from 0 (easy to unlearn) to 1 (hard)."""
    from recunlearn.commands.requested import Listed, read_users
    from recunlearn.foundation import paths
    from recunlearn.report.relation_table import of_table, write
    from recunlearn.report.terminal import listening
    from recunlearn.studies.columns import OF_ENTITY
    from recunlearn.studies.language_keys import entities_of
    from recunlearn.studies.scoring import check_folder, export, scored

    if out is not None:
        check_folder(out)
    keys, columns = run.keys(), OF_ENTITY[run.settings.entity]
    asked = None if rows is None else read_users(rows, Listed(run.settings.entity, "--rows"))
    if asked is not None:
        _check(asked, entities_of(keys), rows)
    with listening() as listener, _explained(run):
        scores = scored(keys, listener)
    shown = scores.table
    if asked is not None:
        shown = shown.set_index(columns.entity, drop=False).loc[asked]
    folder = out or paths.home() / "results" / keys.model.name
    export(scores, folder)
    write(of_table(scores.table), folder)
    _print(scores, shown, asked, format_, folder)


def _check(asked: list[str], known: list[str], file: Any) -> None:
    """Refuse ids that there are not, before anything is trained."""
    from recunlearn.foundation.errors import UsageError, near_miss

    unknown = sorted(set(asked) - set(known))
    if unknown:
        hint = near_miss(unknown[0], known)
        raise UsageError(
            f"{len(unknown)} of the {len(asked)} ids in {file} are not among the {len(known):,} of the data, "
            f"such as {unknown[0]!r}.{hint} Correct the file."
        )


def _print(scores: Any, shown: Any, asked: list[str] | None, format_: str, folder: Path) -> None:
    from recunlearn.studies.columns import columns_in

    if format_ == "csv":
        typer.echo(shown.to_csv(index=False), nl=False)
    elif format_ == "json":
        typer.echo(shown.to_json(orient="records", indent=1, force_ascii=False))
    else:
        from rich.console import Console

        from recunlearn.report import grid
        from recunlearn.report.relation_table import grid as related
        from recunlearn.report.relation_table import of_table
        from recunlearn.report.score_table import TEXT_HEADERS, TEXT_LEGEND, draw, facts, sections

        columns = columns_in(scores.table)
        headers = {**TEXT_HEADERS, "user_id": columns.entity.removesuffix("_id")}
        parts = sections(columns.plain(scores.table), asked)
        told = [line for line in facts(scores.summary) if line[0] != "CUD against"]
        console = Console()
        draw(console, parts, [*told, ("saved in", str(folder))], headers, TEXT_LEGEND)
        console.print()
        grid.draw(console, related(of_table(scores.table)))
    for warning in () if scores.fresh else scores.summary["warnings"]:
        typer.echo(f"Warning: {warning}", err=True)


def _explained(run: TextRun) -> Any:
    """Say which setting lowers memory where there is not enough."""
    from recunlearn.subjects.tofu.memory import enough_memory

    return enough_memory(run.settings)
