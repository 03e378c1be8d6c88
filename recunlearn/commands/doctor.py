"""``doctor``: what is installed, where models run, where data lies, and what is missing, with the fix."""

from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """How the report is printed."""

    table = "table"
    json = "json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(
    format: Annotated[Format, typer.Option(help="How the report is printed.")] = Format.table,
) -> None:
    """Show versions, device, threads, folders and data sets, and what is missing, with the fix.

    Exits with 1 when something required is missing.
    """
    import json

    from recunlearn.report.doctor import as_json, examine, usable
    from recunlearn.report.doctor.table import print_table

    findings = examine()
    if format is Format.json:
        typer.echo(json.dumps(as_json(findings), indent=2, ensure_ascii=False))
    else:
        print_table(findings)
    raise typer.Exit(0 if usable(findings) else 1)
