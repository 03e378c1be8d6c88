"""``explain-user``: why one user is hard or easy to forget, as a picture, a table and a sentence."""

from pathlib import Path
from typing import Annotated, Any

import typer

from recunlearn.commands import options as o
from recunlearn.commands.run_options import Run, with_run


def register(app: typer.Typer) -> None:
    """Add the command, with every option that identifies a run."""
    app.command("explain-user")(with_run(explain_user))


def explain_user(
    user: Annotated[str, typer.Argument(metavar="ID", help="User to explain.", show_default=False)],
    picture: o.Picture = "png",
    out: o.PictureFolder = None,
    format_: o.TableOrJson = "table",
    *,
    run: Run,
) -> None:
    """Explain one user's CUD: circuit, the edges that decide, and one sentence."""
    from recunlearn.report.terminal import listening
    from recunlearn.studies.explain import explained_user
    from recunlearn.studies.scoring import check_folder, default_folder

    if out is not None:
        check_folder(out)
    with listening() as listener:
        found = explained_user(user, run.settings, checkpoint=run.checkpoint, listener=listener)
    show(found, picture, out or default_folder(found.scores, run.checkpoint), format_)


def show(found: Any, picture: str, folder: Path, format_: str) -> None:
    """Write the picture into ``folder`` and print the rest."""
    file = None
    if picture != "none":
        from recunlearn.report.circuit_graph import save_picture

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
