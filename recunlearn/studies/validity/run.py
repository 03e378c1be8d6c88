"""``validate``: a whole study, from a settings file to figures."""

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recunlearn.difficulty.validity import correlations
from recunlearn.foundation.store import atomic_file, to_json
from recunlearn.studies.competitors.registry import find
from recunlearn.studies.scoring import Listener
from recunlearn.studies.threads import threads
from recunlearn.studies.validity.analysis import Seed, rows_of, study
from recunlearn.studies.validity.results import CUD, ModelStudy, Study
from recunlearn.studies.validity.settings import ValiditySettings
from recunlearn.studies.validity.tasks import bases, competitors, do_all, others
from recunlearn.studies.validity.trial import Trial
from recunlearn.studies.validity.variants import check_axes
from recunlearn.subjects.recbole.names import family_of


def validate(settings: ValiditySettings, *, jobs: int = 1, listener: Listener | None = None) -> Study:
    """Run a study: every user held out once, unlearned once by every method, in several trainings.

    Pieces are stored as they finish, shared with ``score-users`` where they are the same; a killed study goes
    on from there.

    Args:
        settings: models, folds, trainings, ...
        jobs: processes, one thread each.
        listener: told about progress.

    Raises:
        UsageError: an unknown model or competitor, or too few users.
    """
    told = listener or Listener()
    check_names(settings)
    counted = told.stage("Models and circuits", len(bases(settings)))
    do_all(settings, bases(settings), jobs, counted)
    tasks = others(settings)
    do_all(settings, tasks, jobs, told.stage("Unlearning and competing scores", len(tasks)))
    counted = told.stage("Correlations", len(settings.models))
    found: list[ModelStudy] = []
    vectors: dict[str, list[Held]] = {}
    with threads():
        for model in settings.models:
            seeds = [Seed(Trial(settings, model, k)) for k in range(settings.seeds)]
            found.append(study(seeds))
            vectors[model] = [
                Held(s.trial.subject.entities, s.cud, s.outcomes["increase"], s.folds.fold) for s in seeds
            ]
            counted(1)
    return Study(found, across(vectors) if len(vectors) > 1 else {})


class Held(NamedTuple):
    """Held-out users of one training: ids and CUD ``[n]``, increase by method ``[M, n]``, fold ``[n]``."""

    entities: NDArray[np.str_]
    cud: NDArray[np.float64]
    increase: NDArray[np.float64]
    fold: NDArray[np.int64]


def across(vectors: Mapping[str, Sequence[Held]]) -> dict[str, dict[str, float]]:
    """CUD of one model against the increase in another: is a user hard in all of them?"""

    def rho(a: Held, b: Held) -> float:
        cud = a.cud[rows_of(a.entities, b.entities)]
        return float(correlations(cud, b.increase, [], b.fold, draws=0).raw[0].mean())

    return {
        one: {
            other: float(np.median([rho(a, b) for a, b in zip(of_one, of_other, strict=True)]))
            for other, of_other in vectors.items()
        }
        for one, of_one in vectors.items()
    }


def check_names(settings: ValiditySettings) -> None:
    """Refuse unknown models, competitors and axes before anything is trained."""
    for model in settings.models:
        family_of(model)
    for name in competitors(settings):
        find(name)
    check_axes(settings.variants)


def as_data(settings: ValiditySettings, whole: Study, command: str) -> dict[str, Any]:
    """Dicts, lists and numbers for JSON; what has no number is None.

    The first model's ``results``, ``competitors`` and ``mean_partial_spearman`` (CUD against the increase
    with all trivial scores held fixed, mean over methods) stand at the top too.
    """
    models = [_plain(asdict(study)) for study in whole.models]
    top = models[0]
    return {
        "mean_partial_spearman": top["results"][CUD]["increase"]["partial"]["mean"],
        "model": top["model"],
        "dataset": settings.dataset,
        "results": top["results"],
        "competitors": {
            name: {"direction": find(name).direction, "trivial": find(name).trivial, **top["results"][name]}
            for name in competitors(settings)
        },
        "models": models,
        "across": _plain(dict(whole.across)),
        "settings": settings.model_dump(mode="json"),
        "command": command,
        "versions": {p: version(p) for p in ("recunlearn", "recbole", "torch", "captum", "numpy", "scipy")},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def export(folder: Path, texts: dict[str, str]) -> list[Path]:
    """Write files by name into ``folder``, all or none."""
    with ExitStack() as stack:  # all are written before the first takes its place
        files = {name: stack.enter_context(atomic_file(folder / name)) for name in texts}
        for name, text in texts.items():
            files[name].write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def data_text(data: dict[str, Any]) -> str:
    """JSON of :func:`as_data`."""
    return to_json(data)
