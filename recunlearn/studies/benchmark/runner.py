"""Run a benchmark: scores and forget sets first, then every task in processes, then the tables."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from recunlearn.difficulty.forget_sets import forget_sets
from recunlearn.foundation.errors import RecunlearnError, UsageError
from recunlearn.foundation.store import read_json, write_json
from recunlearn.studies.benchmark.board import Board
from recunlearn.studies.benchmark.cells import do, read_result
from recunlearn.studies.benchmark.material import TUNING
from recunlearn.studies.benchmark.plan import Plan
from recunlearn.studies.columns import columns_in
from recunlearn.studies.forget_sets import MANIFEST, candidates_of, export_sets, scores_facts
from recunlearn.studies.scoring import Listener, check_folder, scored
from recunlearn.studies.threads import threads
from recunlearn.unlearning.shards.parallel import run_tasks

CLAIM = "benchmark.json"
Watching = Callable[[Board], AbstractContextManager[Any]]


def run_benchmark(
    plan: Plan,
    *,
    jobs: int = 1,
    listener: Listener | None = None,
    watching: Watching = nullcontext,
) -> list[dict[str, Any]]:
    """Every cell's result, read from the plan's folder or made; a killed run goes on where it stopped.

    Args:
        plan: with known names (:func:`~recunlearn.studies.benchmark.plan.check_names`).
        jobs: processes, one thread each, at most as many as there are cores.
        listener: told about scoring.
        watching: shows the board while cells are made.

    Raises:
        UsageError: the folder holds another benchmark, or sets that cannot be drawn.
        RecunlearnError: a process died several times over the same task.
    """
    claim(plan)
    for model in plan.models:
        draw_sets(plan, model, listener or Listener())
    tasks = [t for t in plan.tasks() if not _is_done(plan, t)]
    if tasks:
        board = Board(plan, jobs, [t for t in tasks if t.kind != "cells"])
        with watching(board), threads():
            run_tasks(do, plan, tasks, jobs, board.told)
    return results(plan)


def claim(plan: Plan) -> None:
    """Take the folder for this benchmark, or see that it is this benchmark's.

    Raises:
        UsageError: it holds another benchmark's results, or something else.
    """
    check_folder(plan.out)
    file = plan.out / CLAIM
    if file.is_file():
        found = read_json(file)
        if not isinstance(found, dict) or found.get("identity") != plan.identity:
            raise UsageError(
                f"{plan.out} holds the results of a benchmark with other settings, data or package versions "
                f"(see {file}), which are not mixed. Name another folder with --out, or delete it."
            )
        return
    if plan.out.exists() and any(plan.out.iterdir()):
        raise UsageError(f"{plan.out} is not empty and holds no benchmark. Name another folder with --out.")
    write_json(file, {"identity": plan.identity, "settings": plan.settings.model_dump(mode="json")})


def draw_sets(plan: Plan, model: str, listener: Listener) -> None:
    """Draw and write the forget sets of a model, and the one that budgets are tuned on."""
    folder = plan.out / "sets" / model
    if (folder / MANIFEST).is_file() and (folder / TUNING / MANIFEST).is_file():
        return
    settings = plan.settings
    keys = plan.keys(model)
    scores = scored(keys, listener)
    columns = columns_in(scores.table)
    table = columns.plain(scores.table)
    candidates = candidates_of(table, keys, plan.words)
    facts = scores_facts(table, scores.summary)
    draw: dict[str, Any] = {"seed": settings.seed, "matched": settings.matched}
    strata = tuple(s for s in plan.strata if any(c.stratum == s for c in plan.of(model)))
    sets = forget_sets(candidates, settings.fraction, strata=strata, draws=plan.draws(model), **draw)
    draw["seed"] += 1
    (tuning,) = forget_sets(candidates, settings.fraction, strata=("random",), draws=1, **draw)
    if tuning.hash in {s.hash for s in sets}:
        raise RecunlearnError(
            "The set that budgets are tuned on is one of the benchmarked ones: there are too few "
            f"{plan.words.entities} to draw from. Lower fraction, or name a larger data set."
        )
    export_sets([tuning], folder / TUNING, facts, settings.fraction, columns)
    export_sets(sets, folder, facts, settings.fraction, columns)


def results(plan: Plan) -> list[dict[str, Any]]:
    """Results of all cells in the order of the plan.

    Raises:
        RecunlearnError: one is missing.
    """
    found = [read_result(plan, cell) for cell in plan.cells]
    missing = sum(result is None for result in found)
    if missing:
        raise RecunlearnError(
            f"{missing} of {len(found)} cells in {plan.out} are missing. Run the command again."
        )
    return [result for result in found if result is not None]


def _is_done(plan: Plan, task: Any) -> bool:
    """Tell whether nothing is left of a task or of what waits for it."""
    cells = task.cells or [
        c
        for c in plan.of(task.model)
        if (not task.method or c.method == task.method)
        and (task.set_name in ("", TUNING) or c.set_name == task.set_name)
    ]
    return all(read_result(plan, cell) is not None for cell in cells)


def default_folder(config: Path) -> Path:
    """Where results go without ``--out``: beside the settings file's name, in the folder ``results``."""
    return Path("results") / Path(config).stem
