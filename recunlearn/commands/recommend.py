"""``recommend``: the best items for one user, from any checkpoint."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from recunlearn.commands.run_options import Run, with_run

RUN = ("dataset", "model", "checkpoint", "min_rating", "epochs", "set_", "seed", "device", "config")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("recommend")(with_run(recommend, RUN))


def recommend(
    user: Annotated[str, typer.Option(help="Id of the user, as in the data.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of items.")] = 10,
    strangers: Annotated[
        Literal["popular", "error"],
        typer.Option(help="What unknown and deleted users get: the most popular items, or an error."),
    ] = "popular",
    keys: Annotated[
        Path | None, typer.Option(help="Folder of the keys that tell a deleted user from an unknown one.")
    ] = None,
    format_: Annotated[
        Literal["table", "csv", "json"], typer.Option("--format", help="What stdout gets.")
    ] = "table",
    *,
    run: Run,
) -> None:
    """Recommend items that a user has not seen; nothing is trained."""
    from recunlearn.deletion.standing import served_model
    from recunlearn.studies.serving import recommend as items_for
    from recunlearn.studies.serving import served

    model = served(served_model(run.settings, run.checkpoint, keys))
    deleted = _deleted(run.settings.dataset, user, keys)
    found = items_for(model, user, k, strangers=strangers, deleted=deleted)
    if found.source == "popular":
        why = {"unknown": "is not in the data", "deleted": "was deleted"}.get(
            found.reason, "was not trained on"
        )
        typer.echo(f"Note: the user {why}, so these are the most popular items.", err=True)
    _print(found, format_)


def _deleted(dataset: str, user: str, keys: Path | None) -> bool:
    """Tell whether a user was deleted; without keys nobody can know."""
    from recunlearn.data.tombstones import is_deleted
    from recunlearn.deletion.signing import default_folder, read_keys

    if keys is None and not default_folder().is_dir():
        return False
    return is_deleted(dataset, user, read_keys(keys).of_user(dataset))


def _print(found: Any, format_: str) -> None:
    rows = [
        {"rank": rank, "item_id": item, "score": score}
        for rank, (item, score) in enumerate(zip(found.items, found.scores, strict=True), 1)
    ]
    if format_ == "json":
        from recunlearn.foundation.store import to_json

        plain = {"source": found.source, "reason": found.reason, "items": rows, **found.facts}
        typer.echo(to_json(plain), nl=False)
    elif format_ == "csv":
        import pandas as pd

        table = pd.DataFrame(rows, columns=["rank", "item_id", "score"])
        typer.echo(table.to_csv(index=False), nl=False)
    else:
        _draw(found, rows)


def _draw(found: Any, rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    facts = found.facts
    score = "score" if found.source == "model" else "interactions"
    table = Table(title=escape(f"{facts['model']} on {facts['data']}: {found.source}"), title_justify="left")
    for heading, justify in (("rank", "right"), ("item", "left"), (score, "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(str(row["rank"]), escape(row["item_id"]), f"{row['score']:.4g}")
    Console().print(table)
