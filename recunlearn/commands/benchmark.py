"""``benchmark``: unlearning methods against each other on easy, hard and random users."""

from pathlib import Path
from typing import Annotated, Any

import typer

from recunlearn.commands import options as o


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("benchmark")(benchmark)


def benchmark(
    config: o.Cells,
    out: o.CellsFolder = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes, one thread each. (default: one a core)")
    ] = None,
    dry_run: o.DryRun = False,
    format_: o.AnyTable = "table",
) -> None:
    """Run methods x models x forget sets x draws x seeds; a killed run goes on where it stopped."""
    from recunlearn.foundation.settings import make_settings, read_toml
    from recunlearn.studies.benchmark.plan import Plan, check_names
    from recunlearn.studies.benchmark.runner import default_folder
    from recunlearn.studies.benchmark.settings import BenchmarkSettings
    from recunlearn.unlearning.shards.parallel import cores

    settings = make_settings(BenchmarkSettings, read_toml(config), str(config))
    check_names(settings, str(config))
    plan = Plan(settings, (out or default_folder(config)).absolute())
    processes = min(jobs or cores(), cores())
    if dry_run:
        tell_plan(plan, processes, format_)
        return
    run_plan(plan, processes, format_, f"python cli.py benchmark --config {config} --jobs {processes}")


def run_plan(plan: Any, jobs: int, format_: str, command: str) -> None:
    """Run what is left of a plan, write its tables and print them."""
    from recunlearn.report.benchmark import told_of, write
    from recunlearn.report.benchmark_live import live
    from recunlearn.report.terminal import listening
    from recunlearn.studies.benchmark.runner import run_benchmark

    with listening() as listener:
        results = run_benchmark(plan, jobs=jobs, listener=listener, watching=live)
    told, frame = told_of(plan, results, command)
    write(told, frame, plan.out)
    _print(told, frame, plan.out, format_)


def _print(told: Any, frame: Any, folder: Path, format_: str) -> None:
    if format_ == "csv":
        typer.echo(frame.to_csv(index=False), nl=False)
    elif format_ == "json":
        typer.echo(frame.to_json(orient="records", indent=1, force_ascii=False))
    elif format_ == "markdown":
        from recunlearn.report.benchmark_table import page

        typer.echo(page(told), nl=False)
    else:
        from rich.console import Console

        from recunlearn.report.benchmark_table import draw

        draw(Console(), told, str(folder))


def tell_plan(plan: Any, jobs: int, format_: str) -> None:
    """Print cells, expected time and budgets of a plan; run nothing."""
    from recunlearn.report.benchmark_dry import as_data, draw
    from recunlearn.studies.benchmark.estimate import estimate

    found = estimate(plan, jobs)
    if format_ == "json":
        from recunlearn.foundation.store import to_json

        typer.echo(to_json(as_data(found)), nl=False)
        return
    from rich.console import Console

    draw(Console(), found)
