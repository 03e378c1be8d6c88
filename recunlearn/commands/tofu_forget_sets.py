"""``tofu forget-sets``: sets of rows or authors to try unlearning methods on."""

from pathlib import Path
from typing import Annotated, Any

import typer

from recunlearn.commands import options as o
from recunlearn.commands.run_options import with_run
from recunlearn.commands.tofu import tofu
from recunlearn.commands.tofu_options import OPTIONS, TextRun, run_of


def register(app: typer.Typer) -> None:
    """Add the command to the group ``tofu``."""
    if not any(c.name == "forget-sets" for c in tofu.registered_commands):
        tofu.command("forget-sets")(with_run(forget_sets, known=OPTIONS, make=run_of))


def forget_sets(
    fraction: Annotated[float, typer.Option(help="Share of the rows in every set.")] = 0.05,
    strata: Annotated[
        str, typer.Option(help="Comma-separated, of easy, hard, random, core and edge.")
    ] = "easy,hard,random",
    draws: Annotated[int, typer.Option(min=1, max=1000, help="Sets of every stratum.")] = 3,
    unmatched: Annotated[
        bool, typer.Option("--unmatched", help="Let the sets differ in the length of their answers.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the sets and their manifest.")] = None,
    format_: o.TableOrJson = "table",
    *,
    run: TextRun,
) -> None:
    """Draw sets of easy, hard and random rows that are alike in size and length of their answers."""
    from recunlearn.difficulty.forget_sets import check_fraction, check_strata
    from recunlearn.difficulty.forget_sets import forget_sets as drawn
    from recunlearn.foundation.errors import UsageError
    from recunlearn.studies.columns import OF_ENTITY
    from recunlearn.studies.forget_sets import candidates_of, export_sets, scores_facts
    from recunlearn.studies.scoring import check_folder

    names = tuple(s.strip() for s in strata.split(",") if s.strip())
    check_strata(names)
    check_fraction(fraction)
    if out is None:
        raise UsageError("--out is missing. Name the folder that the sets are written into.")
    check_folder(out)
    keys, columns = run.keys(), OF_ENTITY[run.settings.entity]
    scores = _scored(run, keys)
    table = columns.plain(scores.table)
    options: dict[str, Any] = {"draws": draws, "seed": run.settings.seed, "matched": not unmatched}
    sets = drawn(candidates_of(table, keys, run.settings.words), fraction, strata=names, **options)
    manifest = export_sets(sets, out, scores_facts(table, scores.summary), fraction, columns)
    if format_ == "json":
        typer.echo(manifest.read_text(encoding="utf-8"), nl=False)
    else:
        _print(sets, manifest, columns.entity.removesuffix("_id"))


def _scored(run: TextRun, keys: Any) -> Any:
    from recunlearn.report.terminal import listening
    from recunlearn.studies.scoring import scored
    from recunlearn.subjects.tofu.memory import enough_memory

    with listening() as listener, enough_memory(run.settings):
        return scored(keys, listener)


def _print(sets: list[Any], manifest: Path, entity: str) -> None:
    from rich.console import Console

    from recunlearn.report.forget_set_table import TEXT_HEADERS, draw

    counts = [int(s.n_interactions.sum()) for s in sets]
    apart = max(counts) / max(min(counts), 1) - 1
    sentences = [f"Answer tokens differ by at most {apart:.1%} between sets."] if len(sets) > 1 else []
    headers = [f"{entity}s" if name == "rows" else name for name in TEXT_HEADERS]
    draw(Console(), sets, [*sentences, f"Saved in {manifest.parent}"], headers, digits=2)
