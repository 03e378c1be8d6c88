"""``tofu benchmark``: unlearning methods against each other on easy, hard and random rows."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from recunlearn.commands.tofu import tofu


def register(app: typer.Typer) -> None:
    """Add the command to the group ``tofu``."""
    if not any(c.name == "benchmark" for c in tofu.registered_commands):
        tofu.command("benchmark")(benchmark)


def benchmark(
    config: Annotated[Path, typer.Option("--config", help="TOML file with the cells to run; see configs/.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder with the rows' files. (default: RECUNLEARN_HOME/data/tofu)")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of cells, tables and report. (default: results/CONFIG)")
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, max=256, help="Processes, one thread and one model in memory each.")
    ] = 1,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch missing files and models from the hub.")
    ] = False,
    format_: Annotated[
        Literal["table", "markdown", "csv", "json"], typer.Option("--format", help="What stdout gets.")
    ] = "table",
) -> None:
    """Run methods x forget sets x draws x seeds on one model; a killed run goes on where it stopped."""
    from recunlearn.commands.benchmark import run_plan
    from recunlearn.foundation import paths
    from recunlearn.foundation.settings import make_settings, read_toml
    from recunlearn.studies.benchmark.language_settings import LanguageBenchmarkSettings
    from recunlearn.subjects.tofu.memory import enough_memory

    settings = make_settings(LanguageBenchmarkSettings, read_toml(config), str(config))
    place = data or paths.data_sets() / "tofu"
    plan = _plan(settings, config, out, place, download)
    command = f"python cli.py tofu benchmark --config {config} --data {place} --jobs {jobs}"
    with enough_memory(settings):
        run_plan(plan, jobs, format_, command)


def _plan(settings: Any, config: Path, out: Path | None, place: Path, online: bool) -> Any:
    from recunlearn.studies.benchmark.language_plan import language_plan
    from recunlearn.studies.benchmark.runner import default_folder

    folder = (out or default_folder(config)).absolute()
    return language_plan(settings, folder, place.absolute(), online=online, where=str(config))
