"""``requests``: what the ledger knows of deletion requests."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

Keys = Annotated[Path | None, typer.Option(help="Folder of the keys. (default: in the home)")]
Format = Annotated[Literal["table", "json"], typer.Option("--format", help="What stdout gets.")]


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(no_args_is_help=True, help="Deletion requests in the ledger.")
    group.command("list")(list_)
    group.command("show")(show)
    group.command("retry")(retry)
    group.command("export")(export)
    app.add_typer(group, name="requests")


def list_(
    dataset: Annotated[str | None, typer.Option(help="Requests of one data set only.")] = None,
    state: Annotated[str | None, typer.Option(help="Requests in one state only, such as failed.")] = None,
    format_: Format = "table",
    keys: Keys = None,
) -> None:
    """List requests, the oldest first; ids are not shown."""
    rows = _rows(dataset, state, keys)
    if format_ == "json":
        _json([row.plain() for row in rows])
        return
    from rich.console import Console

    from recunlearn.report.deletion_table import draw_requests

    draw_requests(Console(), rows)


def show(
    reference: Annotated[str, typer.Argument(help="Reference of the request.")],
    ids: Annotated[
        bool, typer.Option("--ids", help="Show the ids, which an open request still has.")
    ] = False,
    format_: Format = "table",
    keys: Keys = None,
) -> None:
    """Show one request and what happened to it."""
    with _ledger(keys, only_read=True) as ledger:
        row, events = ledger.row(reference), ledger.events(reference)
        problems = ledger.problems()
    data = {**row.plain(), "events": events, "ledger": problems or "intact"}
    if ids and row.request is not None:
        data |= {k: v for k, v in vars(row.request).items() if k in ("user", "item", "since", "until")}
    if format_ == "json":
        _json(data)
        return
    from rich.console import Console

    from recunlearn.report.deletion_table import draw_request

    draw_request(Console(), data)


def retry(
    references: Annotated[list[str], typer.Argument(help="References of failed requests.")],
    keys: Keys = None,
) -> None:
    """Put failed requests back to the beginning; the next delete-users takes them up."""
    with _ledger(keys) as ledger:
        for reference in references:
            ledger.retry(reference)
    typer.echo(f"{len(references)} received again. Go on with: delete-users")


def export(
    out: Annotated[Path, typer.Option(help="CSV file for the requests without ids.")],
    dataset: Annotated[str | None, typer.Option(help="Requests of one data set only.")] = None,
    state: Annotated[str | None, typer.Option(help="Requests in one state only.")] = None,
    keys: Keys = None,
) -> None:
    """Write the requests as CSV: keyed hashes, states, times and receipts' hashes, no id."""
    import pandas as pd

    from recunlearn.foundation.store import atomic_file

    rows = _rows(dataset, state, keys)
    with atomic_file(out) as temporary:
        pd.DataFrame([row.plain() for row in rows]).to_csv(temporary, index=False)
    typer.echo(f"{len(rows)} requests written to {out}")


def _ledger(keys: Path | None, *, only_read: bool = False) -> Any:
    from recunlearn.deletion.ledger import Ledger
    from recunlearn.deletion.signing import read_keys
    from recunlearn.foundation.errors import UsageError

    path = Ledger.default_path()
    if not path.is_file():
        raise UsageError(f"There is no ledger {path} yet: delete-users makes it with the first request.")
    return Ledger(path, read_keys(keys), only_read=only_read)


def _rows(dataset: str | None, state: str | None, keys: Path | None) -> list[Any]:
    from recunlearn.deletion.states import STATES
    from recunlearn.foundation.errors import UsageError, near_miss

    if state is not None and state not in STATES:
        raise UsageError(f"Unknown state {state!r}.{near_miss(state, STATES)} Allowed: {', '.join(STATES)}.")
    with _ledger(keys, only_read=True) as ledger:
        found: list[Any] = ledger.rows(dataset, state=state)
    return found


def _json(data: Any) -> None:
    from recunlearn.foundation.store import to_json

    typer.echo(to_json(data), nl=False)
