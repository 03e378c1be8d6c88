"""``tofu explain``: why one row or author is hard or easy to forget."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from recunlearn.commands.run_options import with_run
from recunlearn.commands.tofu import tofu
from recunlearn.commands.tofu_options import OPTIONS, TextRun, run_of


def register(app: typer.Typer) -> None:
    """Add the command to the group ``tofu``."""
    if not any(c.name == "explain" for c in tofu.registered_commands):
        tofu.command("explain")(with_run(explain, known=OPTIONS, make=run_of))


def explain(
    row: Annotated[
        str, typer.Argument(metavar="ROW", help="Row (or author) to explain.", show_default=False)
    ],
    picture: Annotated[Literal["png", "svg", "none"], typer.Option(help="Kind of picture, if any.")] = "png",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the picture. (default: where the run's tables go)")
    ] = None,
    format_: Annotated[
        Literal["table", "json"], typer.Option("--format", help="What stdout gets.")
    ] = "table",
    *,
    run: TextRun,
) -> None:
    """Explain one row's CUD: circuit, the edges that decide, and one sentence."""
    from recunlearn.commands.explain_user import show
    from recunlearn.foundation import paths
    from recunlearn.report.terminal import listening
    from recunlearn.studies.explain import explained_row
    from recunlearn.studies.scoring import check_folder
    from recunlearn.subjects.tofu.memory import enough_memory

    if out is not None:
        check_folder(out)
    keys = run.keys()
    with listening() as listener, enough_memory(run.settings):
        found = explained_row(row, keys, listener)
    show(found, picture, out or paths.home() / "results" / keys.model.name, format_)
