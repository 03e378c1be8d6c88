"""``tofu benchmark``: unlearning methods against each other on easy, hard and random rows."""

from pathlib import Path
from typing import Annotated, Any

import typer

from recunlearn.commands import options as o
from recunlearn.commands.tofu import tofu


def register(app: typer.Typer) -> None:
    """Add the command to the group ``tofu``."""
    if not any(c.name == "benchmark" for c in tofu.registered_commands):
        tofu.command("benchmark")(benchmark)


def benchmark(
    config: o.Cells,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the rows' files. (default: RECUNLEARN_HOME/data/tofu)")
    ] = None,
    out: o.CellsFolder = None,
    jobs: Annotated[
        int, typer.Option(min=1, max=256, help="Processes, one thread and one model in memory each.")
    ] = 1,
    dry_run: o.DryRun = False,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch missing files and models from the hub.")
    ] = False,
    format_: o.AnyTable = "table",
) -> None:
    """Run methods x forget sets x draws x seeds on one model; a killed run goes on where it stopped."""
    from recunlearn.commands.benchmark import run_plan, tell_plan
    from recunlearn.foundation import paths
    from recunlearn.foundation.settings import make_settings, read_toml
    from recunlearn.studies.benchmark.language_settings import LanguageBenchmarkSettings
    from recunlearn.subjects.tofu.memory import enough_memory

    settings = make_settings(LanguageBenchmarkSettings, read_toml(config), str(config))
    place = data or paths.data_sets() / "tofu"
    plan = _plan(settings, config, out, place, download)
    command = f"python cli.py tofu benchmark --config {config} --data {place} --jobs {jobs}"
    with enough_memory(settings):
        if dry_run:
            tell_plan(plan, jobs, format_)
        else:
            run_plan(plan, jobs, format_, command)


def _plan(settings: Any, config: Path, out: Path | None, place: Path, online: bool) -> Any:
    from recunlearn.studies.benchmark.language_plan import language_plan
    from recunlearn.studies.benchmark.runner import default_folder

    folder = (out or default_folder(config)).absolute()
    return language_plan(settings, folder, place.absolute(), online=online, where=str(config))
