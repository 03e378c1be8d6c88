"""One cell: unlearn, evaluate, write down; and what a process does for each task."""

import math
import time
from typing import Any

import torch

from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.records import Evaluation
from recunlearn.foundation.store import write_json
from recunlearn.studies.benchmark.locks import locked, read_plain
from recunlearn.studies.benchmark.material import Material, single_process
from recunlearn.studies.benchmark.plan import Cell, Plan, Task, as_plain
from recunlearn.unlearning.contract import Unlearned

_MATERIAL: dict[str, Material] = {}
"""Of this process, by the identity of the plan."""


def _material(plan: Plan) -> Material:
    key = f"{plan.out}:{plan.identity}"
    if key not in _MATERIAL:
        _MATERIAL[key] = plan.material()
    return _MATERIAL[key]


def do(plan: Plan, task: Task) -> None:
    """Do one task; what it makes is stored."""
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    material = _material(plan)
    try:
        _DO[task.kind](material, task)
    except UsageError:
        if task.kind == "cells":
            raise
        # A method that is unable says so in each of its cells.


def _cells(material: Material, task: Task) -> None:
    missing = [cell for cell in task.cells if read_result(material.plan, cell) is None]
    if not missing:
        return
    with locked(material.plan.path(task.cells[0])):
        for cell in missing:
            if read_result(material.plan, cell) is None:
                write_json(material.plan.path(cell), result_of(material, cell))


def read_result(plan: Plan, cell: Cell) -> dict[str, Any] | None:
    """Stored result of a cell; None where there is none that is whole."""
    found = read_plain(plan.path(cell))
    fits = isinstance(found, dict) and found.get("cell") == as_plain(cell)
    return found if fits else None


def result_of(material: Material, cell: Cell) -> dict[str, Any]:
    """Run a cell: its figures, or why the method cannot do it."""
    began = time.perf_counter()
    try:
        own = material.owns(cell.model, cell.method)
        method = single_process(material.method(cell))
        subject, forget = material.subject(cell.model, cell.seed), material.forget(cell.model, cell.set_name)
        folder = material.folder(cell.model, cell.method, cell.seed) if own else None
        found = method.unlearn(subject, forget, seed=cell.seed, folder=folder)
    except UsageError as error:
        return {"cell": as_plain(cell), "unable": str(error), "seconds": time.perf_counter() - began}
    yardstick = material.yardstick(cell.model, cell.seed, cell.set_name, cell.method if own else "")
    evaluation = yardstick.evaluate(found.model)
    retraining = material.retraining_seconds(cell.model, cell.set_name)
    return {
        "cell": as_plain(cell),
        "own_original": own,
        "figures": _figures(evaluation, found, retraining),
        "reasons": dict(evaluation.reasons),
        "flags": list(evaluation.flags) + (["diverged"] if found.diverged else []),
        "settings": dict(found.settings),
        "seconds": time.perf_counter() - began,
    }


def _figures(evaluation: Evaluation, found: Unlearned, retraining: float) -> dict[str, float]:
    cost: dict[str, float | None] = {
        "cost/seconds": found.seconds,
        "cost/of_retraining": found.seconds / retraining,
        "cost/retraining_seconds": retraining,
        "cost/steps": found.steps,
        "cost/parameters": found.parameters,
        "cost/peak_memory": found.peak_memory,
        "cost/shards": found.shards,
    }
    figures = {**evaluation.figures, **{k: float(v) for k, v in cost.items() if v is not None}}
    return {name: value for name, value in figures.items() if math.isfinite(value)}


def _reference(material: Material, task: Task) -> None:
    if not task.method:
        material.reference(task.model, task.set_name, task.seed)
    elif material.owns(task.model, task.method):
        material.own_reference(task.model, task.method, task.set_name, task.seed)


def _own(material: Material, task: Task) -> None:
    if material.owns(task.model, task.method):
        material.own_original(task.model, task.method, task.seed)


_DO = {
    "original": lambda material, task: material.subject(task.model, task.seed),
    "membership": lambda material, task: material.membership(task.model),
    "reference": _reference,
    "own": _own,
    "budget": lambda material, task: material.budget(task.model, task.method),
    "cells": _cells,
}
