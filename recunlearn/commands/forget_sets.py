"""``forget-sets``: sets of users to try unlearning methods on."""

from pathlib import Path
from typing import Annotated, Any

import typer

from recunlearn.commands import options as o
from recunlearn.commands.run_options import Run, with_run


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("forget-sets")(with_run(forget_sets, ("dataset", "model", "checkpoint", "config")))


def forget_sets(
    scores: Annotated[
        Path | None, typer.Option(help="Score table that score-users wrote, or its folder.")
    ] = None,
    fraction: Annotated[float, typer.Option(help="Share of the users in every set.")] = 0.05,
    strata: Annotated[
        str | None,
        typer.Option(help="Comma-separated. (default: easy,hard,random,core,edge)"),
    ] = None,
    draws: Annotated[int, typer.Option(min=1, max=1000, help="Sets of every stratum.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    unmatched: Annotated[
        bool, typer.Option("--unmatched", help="Let the sets differ in their number of interactions.")
    ] = False,
    users: Annotated[
        Path | None, typer.Option(help="Own list instead: a CSV with a user_id column, or one id a line.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the sets and their manifest.")] = None,
    format_: o.TableOrJson = "table",
    *,
    run: Run,
) -> None:
    """Draw sets of easy, hard and random users that are alike in size and activity."""
    from recunlearn.commands.requested import read_users
    from recunlearn.difficulty.forget_sets import STRATA, check_fraction, check_strata, own_set
    from recunlearn.difficulty.forget_sets import forget_sets as drawn
    from recunlearn.foundation.errors import UsageError
    from recunlearn.studies.forget_sets import check_listed, export_sets
    from recunlearn.studies.scoring import check_folder

    names = tuple(s.strip() for s in strata.split(",") if s.strip()) if strata is not None else tuple(STRATA)
    check_strata(names)
    check_fraction(fraction)
    if users is not None and strata is not None:
        raise UsageError("--strata cannot go with --users: an own list is a set already. Leave out one.")
    asked = read_users(users) if users is not None else None
    if out is None:
        raise UsageError("--out is missing. Name the folder that the sets are written into.")
    check_folder(out)
    candidates, facts = _candidates(scores, run)
    if users is not None and asked is not None:
        check_listed(asked, candidates, users)
        sets = [own_set(candidates, asked)]
    else:
        sets = drawn(candidates, fraction, strata=names, draws=draws, seed=seed, matched=not unmatched)
    manifest = export_sets(sets, out, facts, None if users is not None else fraction)
    _print(sets, manifest, format_)


def _candidates(scores: Path | None, run: Run) -> tuple[Any, dict[str, Any]]:
    """Users to draw from, out of a score table or out of a run, and what identifies their scores."""
    from recunlearn.foundation.errors import UsageError
    from recunlearn.studies.forget_sets import candidates_of, keys_of, read_scores, scores_facts

    if scores is None:
        found, keys = _scored(run)
        return candidates_of(found.table, keys), scores_facts(found.table, found.summary)
    if run.named:
        raise UsageError(f"{', '.join(run.named)} cannot go with --scores. Leave out one or the other.")
    table, summary = read_scores(scores)
    return candidates_of(table, keys_of(summary)), scores_facts(table, summary)


def _scored(run: Run) -> Any:
    """Scores of a run, read from the store or made."""
    from recunlearn.report.terminal import listening
    from recunlearn.studies.keys import keys_for
    from recunlearn.studies.scoring import scored_users

    with listening() as listener:
        found = scored_users(run.settings, checkpoint=run.checkpoint, listener=listener)
    return found, keys_for(run.settings, run.checkpoint)


def _print(sets: list[Any], manifest: Path, format_: str) -> None:
    if format_ == "json":
        typer.echo(manifest.read_text(encoding="utf-8"), nl=False)
        return
    from rich.console import Console

    from recunlearn.report.forget_set_table import draw

    counts = [int(s.n_interactions.sum()) for s in sets]
    apart = max(counts) / max(min(counts), 1) - 1
    sentences = [f"Interactions differ by at most {apart:.1%} between sets."] if len(sets) > 1 else []
    draw(Console(), sets, [*sentences, f"Saved in {manifest.parent}"])
