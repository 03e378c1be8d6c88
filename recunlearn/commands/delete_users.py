"""``delete-users``: from deletion requests to signed receipts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recunlearn.commands import options as o
from recunlearn.commands.run_options import Run, with_run

if TYPE_CHECKING:
    from recunlearn.deletion.ledger import Ledger
    from recunlearn.deletion.request import Request

RUN = ("dataset", "model", "checkpoint", "min_rating", "epochs", "seed", "device", "threads", "config")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("delete-users")(with_run(delete_users, RUN))


def delete_users(
    users: Annotated[list[str] | None, typer.Argument(help="Ids of users, instead of a file.")] = None,
    requests: Annotated[
        Path | None,
        typer.Option(
            help="CSV or JSON lines: user_id, requested_at, reference; item_id, from, to for single ratings, "
            "items and periods."
        ),
    ] = None,
    method: Annotated[
        str, typer.Option(help="auto (by the policy), or the method that goes first.")
    ] = "auto",
    verify: Annotated[
        Literal["bound", "retrain"],
        typer.Option(help="Measure against the population's rows, or against retrained models."),
    ] = "bound",
    policy: Annotated[
        Path | None, typer.Option(help="TOML file with the policy. (default: as configs/policy.toml)")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Most requests in a job. (default: all)")] = None,
    on_missing: Annotated[
        Literal["error", "skip"], typer.Option(help="What to do about users that are not in the data.")
    ] = "error",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell the plan and stop.")] = False,
    pth: Annotated[bool, typer.Option(help="Write the new model for RecBole too.")] = True,
    out: Annotated[
        Path | None, typer.Option(help="Folder of receipts, models and exports. (default: the home)")
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="Folder of the keys. (default: in the home)")] = None,
    format_: o.TableOrJson = "table",
    *,
    run: Run,
) -> None:
    """Delete users, with evidence: unlearn, verify, purge, and write a signed receipt for every request.

    Without users and requests it goes on with what the ledger has open. Exit code 1 where a request failed
    or was refused.
    """
    from recunlearn.deletion.ledger import Ledger
    from recunlearn.deletion.policy import check_method, read_policy
    from recunlearn.deletion.signing import read_keys
    from recunlearn.studies.scoring import check_folder

    ring, rules, dataset = read_keys(keys), read_policy(policy), run.settings.dataset
    if method != "auto":
        check_method(method, rules)
    asked = _read(users or [], requests, ring, dataset)
    from recunlearn.foundation.paths import home

    folder = out or home()
    check_folder(folder)
    with Ledger(Ledger.default_path(), ring) as ledger:
        asked = _checked(asked, dataset, ledger, on_missing)
        from recunlearn.deletion.job import delete_users as carry_out
        from recunlearn.deletion.job import dry_run as planned
        from recunlearn.deletion.stages import Orders
        from recunlearn.report.deletion_table import draw_outcome, draw_plan, outcome_data
        from recunlearn.report.receipt_html import html
        from recunlearn.report.terminal import listening

        with listening() as listener:
            named = None if method == "auto" else method
            orders = Orders(rules, named, verify, folder, pth, listener, draw=html, moved=out is not None)
            if dry_run:
                plan = planned(run.settings, asked, orders, ledger, checkpoint=run.checkpoint)
            else:
                done = carry_out(run.settings, asked, orders, ledger, checkpoint=run.checkpoint, batch=batch)
    if dry_run:
        _print(plan.plain(), lambda console: draw_plan(console, plan), format_)
        return
    _print(outcome_data(done), lambda console: draw_outcome(console, done), format_)
    if done.failed or done.refused:
        raise typer.Exit(1)


def _read(users: list[str], file: Path | None, ring: Any, dataset: str) -> "list[Request]":
    from recunlearn.deletion.requests import named_requests, read_requests
    from recunlearn.foundation.errors import UsageError

    if users and file is not None:
        raise UsageError("Name users on the command line or in --requests, not both.")
    if file is not None:
        return read_requests(file, ring, dataset)
    return named_requests(users, ring, dataset) if users else []


def _checked(asked: "list[Request]", dataset: str, ledger: "Ledger", on_missing: str) -> "list[Request]":
    """Refuse what names nobody, and what would leave nobody, before anything is entered."""
    from recunlearn.deletion.intake import check_known, check_left, renewed, unknown_sentence
    from recunlearn.foundation.errors import UsageError

    asked = renewed(dataset, asked, ledger) if asked else []
    new = [r for r in asked if ledger.find(r.reference) is None]
    fine, _, unknown = check_known(dataset, new, ledger)
    if unknown and on_missing == "error":
        raise UsageError(unknown_sentence(unknown, dataset))
    if unknown:
        typer.echo(f"Warning: not in '{dataset}' and skipped: {len(unknown)} requests.", err=True)
    check_left(dataset, fine)
    return [r for r in asked if r not in unknown]


def _print(data: Any, draw: Any, format_: str) -> None:
    if format_ == "json":
        from recunlearn.foundation.store import to_json

        typer.echo(to_json(data), nl=False)
        return
    from rich.console import Console

    draw(Console())
