"""``data``: import interaction logs, check them, list and remove data sets."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recunlearn.commands.log_options import LOG_OPTIONS, settings_of
from recunlearn.commands.run_options import with_run

if TYPE_CHECKING:
    from recunlearn.data.importing import ImportSettings, Report
    from recunlearn.data.interactions import Interactions

data = typer.Typer(
    no_args_is_help=True, help="Import interaction logs, check them, list and remove data sets."
)

Format = StrEnum("Format", ["table", "json"])
ListFormat = StrEnum("ListFormat", ["table", "csv", "json"])
Returned = StrEnum("Returned", ["error", "drop", "keep"])


def register(app: typer.Typer) -> None:
    """Add ``data`` with its sub-commands."""
    if not data.registered_commands:
        data.command("add")(with_run(add, known=LOG_OPTIONS, make=settings_of, first=0))
        data.command("check")(with_run(check, known=LOG_OPTIONS, make=settings_of, first=0))
        data.command("list")(list_sets)
        data.command("remove")(remove)
    app.add_typer(data, name="data")


def add(
    name: Annotated[str, typer.Argument(help="Name of the new data set; ml-1m with --from or --download.")],
    file: Annotated[Path | None, typer.Option(help="CSV, TSV, parquet or RecBole .inter file.")] = None,
    source: Annotated[Path | None, typer.Option("--from", help="The official ml-1m.zip.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch ml-1m.zip from GroupLens.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a data set of this name.")] = False,
    deleted: Annotated[
        Returned, typer.Option(help="What to do about users who were deleted from a set of this name.")
    ] = Returned.error,
    output: Annotated[Format, typer.Option("--format", help="Form of the report.")] = Format.table,
    *,
    run: "ImportSettings",
) -> None:
    """Import a log under a name: data add shop --file log.csv --user-col customer --item-col sku."""
    from recunlearn.data.catalogue import check_new_name
    from recunlearn.data.storage import write_data_set
    from recunlearn.foundation.errors import UsageError

    if (file is not None) + (source is not None) + download != 1:
        raise UsageError("Give exactly one of --file F, --from ml-1m.zip and --download.")
    folder = check_new_name(name, force=force)
    if file is not None:
        built, report = _import(name, file, run)
    else:
        built, report = _import_ml_1m(name, source, run)
    if deleted is not Returned.keep:
        built = _without_deleted(name, built, drop=deleted is Returned.drop)
    write_data_set(built, folder, run.model_dump(mode="json") | _origin(report))
    _show(report, output, f"Data set '{name}' in {folder}")


def check(
    file: Annotated[Path, typer.Argument(help="CSV, TSV, parquet or RecBole .inter file.")],
    output: Annotated[Format, typer.Option("--format", help="Form of the report.")] = Format.table,
    *,
    run: "ImportSettings",
) -> None:
    """Report what a log holds and everything that keeps it from being imported (exit code 1)."""
    from recunlearn.data.importing import import_log

    _, report = import_log(file.stem, file, run)
    _show(report, output, str(file))
    if report.problems:
        raise typer.Exit(1)


def list_sets(
    output: Annotated[ListFormat, typer.Option("--format", help="Form of the list.")] = ListFormat.table,
) -> None:
    """List the data sets that --dataset takes."""
    import csv
    import json
    import sys
    from dataclasses import asdict

    from recunlearn.data.catalogue import list_data_sets

    rows = [asdict(info) for info in list_data_sets()]
    if output is ListFormat.json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    elif output is ListFormat.csv:
        writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        _list_table(rows)


def remove(name: Annotated[str, typer.Argument(help="Name of an imported data set.")]) -> None:
    """Delete an imported data set."""
    from recunlearn.data.catalogue import remove_data_set

    remove_data_set(name)
    typer.echo(f"Removed the data set '{name}'. Models trained on it, if any, are still there.")


def _without_deleted(name: str, built: "Interactions", *, drop: bool) -> "Interactions":
    """Keep an old log from bringing deleted users back; only keyed hashes of them are known."""
    from recunlearn.data.left_out import read_left_out
    from recunlearn.data.tombstones import Erasure, returned, survivors
    from recunlearn.foundation.errors import DataError

    if not read_left_out(name).users:
        return built
    from recunlearn.deletion.signing import read_keys

    back = returned(name, built, read_keys().of_user(name))
    if back and not drop:
        raise DataError(
            f"{len(back)} users of the log were deleted from '{name}' before and would come back. Choose "
            "--deleted drop to leave them out, or --deleted keep if they are customers again."
        )
    return survivors(built, [Erasure(user) for user in back]) if back else built


def _origin(report: "Report") -> dict[str, Any]:
    """Which file and columns the data came from, for the manifest."""
    return {k: report.facts[k] for k in ("file", "format", "columns") if k in report.facts}


def _import(name: str, file: Path, settings: "ImportSettings") -> "tuple[Interactions, Report]":
    from recunlearn.data.importing import import_log, require_importable

    built, report = import_log(name, file, settings)
    require_importable(report, file)
    return built, report


def _import_ml_1m(
    name: str, source: Path | None, settings: "ImportSettings"
) -> "tuple[Interactions, Report]":
    from dataclasses import replace
    from tempfile import TemporaryDirectory

    from recunlearn.data import ml_1m
    from recunlearn.data.download import download
    from recunlearn.data.importing import ImportSettings, Report, choice_notes
    from recunlearn.data.splits import positives
    from recunlearn.data.summary import summarise
    from recunlearn.foundation.errors import UsageError, near_miss

    if name != "ml-1m":
        raise UsageError(
            f"--from and --download import MovieLens-1M under the name ml-1m, but got {name!r}."
            f"{near_miss(name, ['ml-1m'])} Import other data with --file."
        )
    foreign = settings.model_copy(update={"min_rating": None})
    if foreign != ImportSettings():
        raise UsageError(
            "MovieLens-1M has a known layout: only --min-rating and --force go with --from and --download."
        )
    if source is None:
        with TemporaryDirectory(prefix="recunlearn-") as folder:
            built = ml_1m.read_ml_1m(download(ml_1m.URL, Path(folder, "ml-1m.zip"), md5=ml_1m.MD5))
    else:
        built = ml_1m.read_ml_1m(source)
    chosen = positives(replace(built, name=name), settings.min_rating)
    facts = {"file": ml_1m.URL if source is None else str(source), **summarise(chosen)}
    return chosen, Report(facts, (), tuple(choice_notes(chosen, settings.min_rating)))


def _show(report: "Report", output: Format, title: str) -> None:
    """Print the report on stdout: JSON, or a table of facts, then problems and notes."""
    import json
    from dataclasses import asdict

    if output is Format.json:
        plain = {
            **report.facts,
            "importable": not report.problems,
            "problems": [asdict(p) for p in report.problems],
            "notes": list(report.notes),
        }
        typer.echo(json.dumps(plain, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    table = Table(title=escape(title), show_header=False, title_justify="left")
    table.add_column()
    table.add_column(overflow="fold")
    for key, value in report.facts.items():
        table.add_row(key.replace("_", " "), escape(_spoken(value)))
    console.print(table)
    for problem in report.problems:
        console.print(f"[red]problem[/red] {escape(problem.sentence)}", soft_wrap=True, highlight=False)
    for note in report.notes:
        console.print(f"[yellow]note[/yellow] {escape(note)}", soft_wrap=True, highlight=False)


def _spoken(value: object) -> str:
    if isinstance(value, dict):
        return "\n".join(
            f"{k}: {_spoken(v) if not isinstance(v, dict) else _flat(v)}" for k, v in value.items()
        )
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _flat(value: dict[str, object]) -> str:
    return ", ".join(f"{k}: {_spoken(v)}" for k, v in value.items())


def _list_table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("name", "source")
    for heading in ("users", "items", "interactions"):
        table.add_column(heading, justify="right")
    for row in rows:
        counts = ("?" if row[c] is None else f"{row[c]:,}" for c in ("users", "items", "interactions"))
        table.add_row(escape(row["name"]), escape(row["problem"] or row["source"]), *counts)
    Console().print(table)
