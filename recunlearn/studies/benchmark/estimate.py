"""What a benchmark will take, from a few timed steps: nothing is trained and nothing is written."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recunlearn.foundation.errors import UsageError
from recunlearn.studies.benchmark.budget import centre_of, is_tuned
from recunlearn.studies.benchmark.cells import read_result
from recunlearn.studies.benchmark.locks import read_plain
from recunlearn.studies.benchmark.plan import Plan
from recunlearn.studies.benchmark.rehearsal import Rehearsal
from recunlearn.studies.threads import threads
from recunlearn.studies.training_time import epoch_seconds
from recunlearn.subjects.contract import IntArray
from recunlearn.unlearning.registry import make


@dataclass
class MethodCost:
    """A method on a model.

    Args:
        model, method: names.
        cells, done: how many there are, and how many are stored.
        seconds: of unlearning in one cell at most; None where unknown.
        sentence: the method's own statement of its cost on a set of this size, or why it is unable.
        budget: stored budget, or the plan of its trials.
    """

    model: str
    method: str
    cells: int
    done: int
    seconds: float | None
    sentence: str
    budget: str


@dataclass
class Estimate:
    """A dry run.

    Args:
        plan: what would be run.
        jobs: processes.
        costs: by model and method.
        trainings: model -> trainings that are left (originals, references, membership as halves).
        epochs: model -> of a training at most.
        training: model -> seconds of one training.
        measuring: model -> seconds of measuring one model on one set.
        seconds: of everything that is left, at most, with ``jobs`` processes.
    """

    plan: Plan
    jobs: int
    costs: list[MethodCost] = field(default_factory=list)
    trainings: dict[str, float] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    training: dict[str, float] = field(default_factory=dict)
    measuring: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


def estimate(plan: Plan, jobs: int) -> Estimate:
    """Time some steps of every model and ask every method for its cost."""
    found, rehearsal = Estimate(plan, jobs), plan.rehearsal()
    with threads():
        for model in plan.models:
            _add(found, rehearsal, model)
    return found


def _add(found: Estimate, rehearsal: Rehearsal, model: str) -> None:
    plan = found.plan
    subject, epochs = rehearsal.begin(model)
    training = epochs * epoch_seconds(subject)
    size = max(1, round(plan.settings.fraction * len(subject.entities)))
    forget = np.flatnonzero(subject.n_samples() > 0)[:: -(-len(subject.entities) // size)].astype(np.int64)
    measuring = rehearsal.measuring(subject, forget)
    groups = {(c.set_name, c.seed) for c in plan.of(model) if read_result(plan, c) is None}
    sets = {name for name, _ in groups}
    references = plan.settings.references * (len(sets) + bool(sets))
    originals = len({seed for _, seed in groups})
    trainings = references + originals + plan.settings.membership / 2 * bool(sets)
    total = trainings * training + len(groups) * (1 + plan.settings.references) * measuring
    for method in dict.fromkeys(c.method for c in plan.of(model)):
        total += _method(found, model, method, subject, forget, training, measuring)
    found.trainings[model], found.epochs[model] = trainings, epochs
    found.training[model], found.measuring[model] = training, measuring
    found.seconds += total / found.jobs


def _method(
    found: Estimate,
    model: str,
    method: str,
    subject: Any,
    forget: IntArray,
    training: float,
    measuring: float,
) -> float:
    """Note what a method costs; returns the seconds of what is left of it."""
    plan = found.plan
    cells = [c for c in plan.of(model) if c.method == method]
    left = [c for c in cells if read_result(plan, c) is None]
    values = plan.values(method)
    tuned = is_tuned(make(method, values))
    if tuned:
        values |= {"steps": plan.settings.most_steps, "until": "steps"}
    try:
        cost = make(method, values).cost(subject, forget)
    except UsageError as error:
        found.costs.append(
            MethodCost(model, method, len(cells), len(cells) - len(left), None, str(error), "")
        )
        return 0.0
    seconds = training if cost.seconds is None else cost.seconds
    total = len(left) * (seconds + measuring)
    if left and tuned:
        total += plan.settings.trials * seconds
    if left and cost.shards is not None:  # its own originals, and its own retraining without each set
        sets, seeds = len({c.set_name for c in left}), len({c.seed for c in left})
        anew = seeds + sets * plan.settings.references
        total += anew * training + sets * seeds * (1 + plan.settings.references) * measuring
    budget = _budget(plan, model, method, tuned)
    found.costs.append(
        MethodCost(model, method, len(cells), len(cells) - len(left), seconds, cost.sentence, budget)
    )
    return total


def _budget(plan: Plan, model: str, method: str, tuned: bool) -> str:
    stored = (read_plain(plan.budget_path(model, method)) or {}).get("budget", {})
    if stored.get("steps"):
        return f"{stored['steps']} steps at {_told(stored['learning_rate'], stored.get('gamma'))}"
    if not tuned:
        return "nothing to tune"
    first = _told(*centre_of(method, plan.values(method)))
    return f"to be tuned in {plan.settings.trials} trials from a learning rate of {first}"


def _told(rate: float, gamma: float | None) -> str:
    return f"{rate:.2g}" if gamma is None else f"{rate:.2g} and γ {gamma:.3g}"
