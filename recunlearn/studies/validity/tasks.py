"""The slow pieces of a study, each a task for a process; what a task makes is stored."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from recunlearn.foundation.errors import TraceError
from recunlearn.studies.competitors.registry import known
from recunlearn.studies.threads import threads
from recunlearn.studies.validity.settings import ValiditySettings
from recunlearn.studies.validity.trial import Trial
from recunlearn.studies.validity.variants import variants
from recunlearn.unlearning.shards.parallel import run_tasks


class Task(NamedTuple):
    """One piece.

    Args:
        model, number: the training it belongs to.
        kind: "base" (model and circuits), "fold", "competitor" or "variant".
        what: number of the fold, name of the competitor, place among the variants.
    """

    model: str
    number: int
    kind: str
    what: int | str = 0


def competitors(settings: ValiditySettings) -> tuple[str, ...]:
    """Competing scores of a study."""
    return settings.competitors if settings.competitors is not None else tuple(known())


def bases(settings: ValiditySettings) -> list[Task]:
    """What everything else needs: the trained models and their circuits."""
    return [Task(m, k, "base") for m in settings.models for k in range(settings.seeds)]


def others(settings: ValiditySettings) -> list[Task]:
    """Everything else that is slow; the slowest first, so that processes end together."""
    found = []
    for model, number, *_ in bases(settings):
        found += [Task(model, number, "fold", fold) for fold in range(settings.folds)]
        places = enumerate(variants(Trial(settings, model, number)))
        found += [Task(model, number, "variant", k) for k, v in places if v.is_slow]
        found += [Task(model, number, "competitor", name) for name in competitors(settings)]
    return found


def do(settings: ValiditySettings, task: Task) -> None:
    """Make the piece of a task, unless it is stored."""
    trial = _trial(settings, task.model, task.number)
    if task.kind == "base":
        _ = trial.circuits
    elif task.kind == "fold":
        trial.outcomes(int(task.what))
    elif task.kind == "competitor":
        trial.competitor(str(task.what))
    else:
        with suppress(TraceError):  # a model that cannot be traced this way: the tables name it
            variants(trial)[int(task.what)].prepare(trial)


def do_all(
    settings: ValiditySettings, tasks: Sequence[Task], jobs: int, advance: Callable[[int], None]
) -> None:
    """Do tasks in processes of one thread each; what is stored already is read only."""
    with threads():
        run_tasks(do, settings, tasks, jobs, lambda task: advance(1))


_TRIALS: dict[tuple[str, str, int], Trial] = {}
"""The last trial of this process."""


def _trial(settings: ValiditySettings, model: str, number: int) -> Trial:
    key = (settings.model_dump_json(), model, number)
    if key not in _TRIALS:
        _TRIALS.clear()
        _TRIALS[key] = Trial(settings, model, number)
    return _TRIALS[key]
