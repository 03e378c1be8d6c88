"""``purge``: take users out of everything that is stored, and prove that a folder holds them no more."""

from pathlib import Path
from typing import Annotated, Any

import typer

from recunlearn.commands import options as o


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("purge")(purge)


def purge(
    users: Annotated[
        Path,
        typer.Option(help="Users to purge or to look for: a CSV with a user_id column, or one id a line."),
    ],
    dataset: Annotated[str | None, typer.Option(help="Data set that they are, or were, in.")] = None,
    scan: Annotated[
        Path | None, typer.Option(help="Only look for them in this folder; exit code 1 if one is found.")
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(help="With --scan: a log that still has their rows, which are looked for as well."),
    ] = None,
    keep: Annotated[
        list[Path] | None, typer.Option(help="Folder of a model made without them, which stays (repeatable).")
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="Folder of the keys. (default: in the home)")] = None,
    show_ids: Annotated[bool, typer.Option("--show-ids", help="Name the users that --scan finds.")] = False,
    format_: o.TableOrJson = "table",
) -> None:
    """Delete users from a data set and all that was made from it; with --scan: look for them in a folder."""
    from recunlearn.commands.requested import read_users
    from recunlearn.foundation.errors import UsageError

    asked = read_users(users)
    if scan is not None:
        if keep:
            raise UsageError("--keep goes with a purge; --scan changes nothing. Leave one of them out.")
        _scan(scan, asked, _rows(asked, dataset, rows), show_ids, format_)
        return
    if dataset is None or rows is not None or show_ids:
        raise UsageError(
            "A purge needs --dataset and takes neither --rows nor --show-ids. To look for users, add --scan."
        )
    from recunlearn.deletion.purge import purge as purge_everything
    from recunlearn.deletion.signing import read_keys

    key = read_keys(keys).of_user(dataset)
    _print_report(purge_everything(dataset, asked, keep=keep or (), key=key), format_)


def _rows(asked: list[str], dataset: str | None, file: Path | None) -> dict[str, list[tuple[str, float]]]:
    """Rows of the users in a log, or in the data set while it still has them."""
    from recunlearn.deletion.wanted import rows_of

    if file is not None:
        from recunlearn.data.importing import ImportSettings, import_log

        return rows_of(import_log("rows", file, ImportSettings(duplicates="all"))[0], asked)
    if dataset is not None:
        from recunlearn.data.catalogue import load_interactions

        return rows_of(load_interactions(dataset), asked)
    return {}


def _scan(folder: Path, asked: list[str], rows: Any, show_ids: bool, format_: str) -> None:
    from recunlearn.deletion.scan import scan
    from recunlearn.deletion.wanted import is_distinct

    found = scan(folder, asked, rows=rows)
    short = sum(not is_distinct(user) for user in asked)
    if format_ == "json":
        from dataclasses import asdict

        from recunlearn.foundation.store import to_json

        plain = [asdict(f) | ({"ids": [asked[u] for u in f.users]} if show_ids else {}) for f in found]
        typer.echo(to_json({"asked": len(asked), "short": short, "findings": plain}), nl=False)
    else:
        _draw(found, asked if show_ids else None)
    holding = {f.path for f in found if f.kind != "unread"}
    unread = {f.path for f in found if f.kind == "unread"}
    typer.echo(
        f"{len(asked)} users looked for in {folder}: {len(holding)} files hold one, {len(unread)} could "
        "not be read.",
        err=True,
    )
    if short:
        typer.echo(
            f"Note: {short} ids are short, so they were looked for only where users are named "
            "(docs/guide/purge.md).",
            err=True,
        )
    if found:
        raise typer.Exit(1)


def _draw(found: Any, asked: list[str] | None) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if not found:
        return
    table = Table()
    for heading in ("file", "what", "where"):
        table.add_column(heading, overflow="fold")
    table.add_column("users", justify="right")
    table.add_column("hits", justify="right")
    for f in found:
        who = str(len(f.users)) if asked is None else ", ".join(asked[u] for u in f.users)
        table.add_row(escape(f.path), f.kind, escape(f.where), escape(who), str(f.count))
    Console().print(table)


def _print_report(report: Any, format_: str) -> None:
    if format_ == "json":
        from recunlearn.foundation.store import to_json

        typer.echo(to_json(report.to_plain()), nl=False)
        return
    titles = {
        "rewritten": "Rewritten without them",
        "removed": "Removed",
        "outside": "Outside, for you to handle",
    }
    for name, places in report.to_plain().items():
        typer.echo(f"{titles[name]}: {len(places) if name != 'outside' else ''}".rstrip(": "))
        for place in places:
            typer.echo(f"  {place}")
