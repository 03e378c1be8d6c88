"""``validate``: does the score predict what unlearning does to users who were held out?"""

from pathlib import Path
from typing import Annotated, Literal

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("validate")(validate)


def validate(
    config: Annotated[Path, typer.Option("--config", help="TOML file of the study; see configs/.")],
    model: Annotated[
        list[str] | None, typer.Option(help="Study these models instead of the file's (repeatable).")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Trainings instead of the file's.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of tables and figures. (default: results/CONFIG)")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes, one thread each. (default: one a core)")
    ] = None,
    format_: Annotated[
        Literal["table", "markdown", "json"], typer.Option("--format", help="What stdout gets.")
    ] = "table",
) -> None:
    """Correlate CUD and its competitors with what unlearning did to held-out users; resumes after a kill."""
    from recunlearn.commands.requested import given, merged
    from recunlearn.foundation.settings import make_settings, read_toml
    from recunlearn.studies.scoring import check_folder
    from recunlearn.studies.validity.settings import ValiditySettings

    options = given(models=model or None, seeds=seeds)
    settings = make_settings(ValiditySettings, merged(read_toml(config), options), str(config))
    folder = (out or Path("results") / config.stem).absolute()
    check_folder(folder)

    from recunlearn.report.terminal import listening
    from recunlearn.report.validity_table import draw, page
    from recunlearn.studies.validity.run import as_data, data_text, export
    from recunlearn.studies.validity.run import validate as run
    from recunlearn.unlearning.shards.parallel import cores

    processes = min(jobs or cores(), cores())
    named = "".join(f" --model {m}" for m in model or [])
    command = f"python cli.py validate --config {config}{named}" + (f" --seeds {seeds}" if seeds else "")
    with listening() as listener:
        whole = run(settings, jobs=processes, listener=listener)
    data = as_data(settings, whole, command)
    told = {
        "command": f"`{command}`",
        "data set": settings.dataset,
        "folds": str(settings.folds),
        "seeds": ", ".join(str(settings.seed + k) for k in range(settings.seeds)),
        "versions": ", ".join(f"{name} {value}" for name, value in data["versions"].items()),
    }
    text = page(whole, told)
    export(folder, {"validity.json": data_text(data), "validity.md": text})
    if format_ == "json":
        typer.echo(data_text(data), nl=False)
    elif format_ == "markdown":
        typer.echo(text, nl=False)
    else:
        from rich.console import Console

        draw(Console(), whole, str(folder / "validity.md"))
