"""``tofu signatures``: which edges separate hard from easy rows."""

import typer

from recunlearn.commands import options as o
from recunlearn.commands.run_options import with_run
from recunlearn.commands.tofu import tofu
from recunlearn.commands.tofu_options import OPTIONS, TextRun, run_of


def register(app: typer.Typer) -> None:
    """Add the command to the group ``tofu``."""
    if not any(c.name == "signatures" for c in tofu.registered_commands):
        tofu.command("signatures")(with_run(signatures, known=OPTIONS, make=run_of))


def signatures(
    out: o.Tables = None,
    format_: o.TableOrText = "table",
    *,
    run: TextRun,
) -> None:
    """Compare the circuits of easy and hard rows: paths, late and direct edges, attention, Gini, overlap."""
    from recunlearn.commands.circuits_signatures import show
    from recunlearn.report.terminal import listening
    from recunlearn.studies.scoring import check_folder
    from recunlearn.studies.stored import stored_run
    from recunlearn.subjects.tofu.memory import enough_memory

    if out is not None:
        check_folder(out)
    with listening() as listener, enough_memory(run.settings):
        found = stored_run(run.keys(), listener)
    show(found, out, format_)
