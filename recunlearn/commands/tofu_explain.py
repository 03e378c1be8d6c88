"""``tofu explain``: why one row or author is hard or easy to forget."""

from typing import Annotated

import typer

from recunlearn.commands import options as o
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
    picture: o.Picture = "png",
    out: o.PictureFolder = None,
    format_: o.TableOrJson = "table",
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
