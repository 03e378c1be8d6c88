"""The probe: unlearn a random pool with several methods and seeds, and measure each entity's losses."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn

from recunlearn.foundation.records import Outcomes
from recunlearn.foundation.settings import AnchorSettings
from recunlearn.foundation.store import content_hash
from recunlearn.studies.losses import entity_losses, samples
from recunlearn.studies.methods import REGISTRY, Method, find
from recunlearn.studies.pieces import Arrays, Pieces
from recunlearn.studies.pool import draw_pool, rest_of
from recunlearn.studies.probe_warnings import warn_unreached, warn_weak
from recunlearn.studies.unlearn import BATCH, Budget, Trainer, calibrate, stopped
from recunlearn.subjects.contract import Batch, IntArray, Subject
from recunlearn.unlearning.goal import Goal

Array = NDArray[np.float64]
Say = Callable[[str], None]
Progress = Callable[[str, int, int], None]
"""Called with what was finished, how many parts are done and how many there are."""
LOOKED_USERS, LOOKED_SAMPLES = 100, 20
"""Users of the pool, and samples of each, whose loss tells when a method has gone far enough."""
RULES = 2
"""Raised when the same settings would no longer make the same parts."""
TYPICAL_LOOKS = 45
TIMED_STEPS = 5
TYPICAL_STEPS = 60


class Also(Protocol):
    """What else is measured on every model of a probe, over the entities of its pool: ``[n, ...]`` each."""

    name: str
    """Part of the name under which finished parts are kept."""

    def of_retrained(self, model: nn.Module) -> Arrays:
        """Of a model retrained without the pool, whose rows of the pool are the population mean."""
        ...

    def of_unlearned(self, model: nn.Module, retrained: Sequence[Arrays]) -> Arrays:
        """Of an unlearned model, given what was found of every retrained one."""
        ...


@dataclass(frozen=True)
class Probed:
    """A finished probe.

    Args:
        outcomes: losses.
        original: what :class:`Also` found of the original model.
        retrained: the same of each retrained model.
        unlearned: the same of each method's runs, in the order of the seeds.
    """

    outcomes: Outcomes
    original: Arrays
    retrained: Sequence[Arrays]
    unlearned: Mapping[str, Sequence[Arrays]]


@dataclass
class _Probe:
    """One probe under way."""

    subject: Subject
    settings: AnchorSettings
    pool: IntArray
    seed: int
    pieces: Pieces
    batches: list[Batch]
    seen: list[Batch]
    trainer: Trainer
    also: Also | None

    def losses(self, model: nn.Module) -> Array:
        return entity_losses(self.subject, model, self.batches, self.pool)

    def looked(self, model: nn.Module) -> float:
        """Mean loss over the looked-at part of the pool, which is itself a random set."""
        users = self.pool[:: -(-len(self.pool) // LOOKED_USERS)]
        with self.subject.arithmetic(model):
            return float(entity_losses(self.subject, model, self.seen, users).mean())

    def retrained(self, seed: int, progress: bool) -> dict[str, Array]:
        """Losses under a model trained anew without the pool, whose absent rows are the population mean."""
        model = self.subject.retrain(self.pool, seed=seed, progress=progress)
        stranger = self.subject.population_rows(model, self.pool)
        more = {} if self.also is None else self.also.of_retrained(stranger)
        return {"loss": self.losses(stranger), "looked": np.array([self.looked(stranger)]), **more}

    def unlearned(
        self, method: Method, goal: Goal, rate: float, seed: int, retrained: Sequence[Arrays]
    ) -> dict[str, NDArray[Any]]:
        """A run that stops where the mean loss reaches the goal; the first seed's also finds the rate."""
        search = calibrate if seed == self.seed else stopped
        budget, model = search(self.trainer, method, goal, learning_rate=rate, seed=seed)
        return {
            "loss": self.losses(model),
            "steps": np.array([budget.steps]),
            "learning_rate": np.array([budget.learning_rate]),
            "reached": np.array([budget.reached]),
            **({} if self.also is None else self.also.of_unlearned(model, retrained)),
        }


def probe(subject: Subject, settings: AnchorSettings | None = None, **options: Any) -> Outcomes:
    """Unlearn a random pool of entities with every method and seed: the losses before, after and retrained.

    Options and errors: :func:`probed`.
    """
    return probed(subject, settings, **options).outcomes


def probed(
    subject: Subject,
    settings: AnchorSettings | None = None,
    *,
    pool: IntArray | None = None,
    also: Also | None = None,
    seed: int = 0,
    folder: Path | None = None,
    say: Say | None = None,
    progress: Progress | None = None,
    training_progress: bool = False,
) -> Probed:
    """Unlearn a pool of entities with every method and seed, and measure every model on it.

    Args:
        subject: with its trained model.
        settings: pool, methods, seeds, budgets.
        pool: rows of the entities to probe, ascending; None: a random pool of ``settings.pool``.
        also: what is measured beside losses.
        seed: of the pool, the negatives, the retrained models and the unlearning draws.
        folder: where parts are kept as they finish; the same call goes on from there.
        say: told the expected time, and what is doubtful, in sentences.
        progress: told each part that is done.
        training_progress: whether retraining shows its own progress.

    Raises:
        UsageError: unknown method, or too few entities for the anchors asked for.
    """
    settings = settings or AnchorSettings()
    say = say or (lambda sentence: None)
    if pool is None:
        pool = draw_pool(subject, settings.pool, settings.count, seed)
    study = _start(subject, settings, pool, also, seed, folder)
    methods = [find(name) for name in settings.methods]
    total = settings.retrain_seeds + len(methods) * settings.seeds
    tell = _counter(progress, total)
    say(_expected_time(study, methods))
    before = study.losses(subject.model)
    population = study.losses(subject.population_rows(subject.model, study.pool))
    found = _retrained(study, tell, training_progress)
    retrained = np.stack([piece["loss"] for piece in found])
    target = float(np.mean([piece["looked"][0] for piece in found]))
    noise = retraining_noise(retrained)
    warn_weak(say, before, retrained, noise, subject.words.entities)
    goal = Goal(study.looked, study.looked(subject.model), target, settings.most_steps)
    unlearned = _unlearn_all(study, methods, goal, found, tell)
    budgets = {name: [_budget(piece) for piece in runs] for name, runs in unlearned.items()}
    warn_unreached(say, budgets, settings)
    outcomes = Outcomes(
        entities=subject.entities[study.pool],
        methods=settings.methods,
        seeds=tuple(range(seed, seed + settings.seeds)),
        loss_before=before,
        loss_after=np.stack([np.stack([piece["loss"] for piece in runs]) for runs in unlearned.values()]),
        loss_retrained=retrained,
        loss_population=population,
        budgets={name: runs[0].steps for name, runs in budgets.items()},
        noise=noise,
        settings=_record(settings, seed, budgets),
    )
    original: Arrays = {}
    if also is not None:
        original = study.pieces.get("original", lambda: also.of_unlearned(subject.model, found))
    return Probed(outcomes, original, found, unlearned)


def retraining_noise(losses: Array) -> float:
    """Standard deviation over retrained models, pooled over entities: ``[R, n] -> []``; 0 for one model."""
    return float(np.sqrt(losses.var(0, ddof=1).mean())) if len(losses) > 1 else 0.0


def _start(
    subject: Subject,
    settings: AnchorSettings,
    pool: IntArray,
    also: Also | None,
    seed: int,
    folder: Path | None,
) -> _Probe:
    # What the parts depend on: not on how many anchors are chosen from them, nor how.
    wanted = settings.model_dump(include={"learning_rate", "most_steps", "batch_size", "retrain_seeds"})
    more = () if also is None else (also.name,)
    key = content_hash(RULES, dict(subject.describe()), wanted, subject.entities[pool], seed, *more)
    some = pool[:: -(-len(pool) // LOOKED_USERS)]
    return _Probe(
        subject,
        settings,
        pool,
        seed,
        Pieces(None if folder is None else Path(folder) / key),
        samples(subject, pool, seed),
        samples(subject, some, seed, LOOKED_SAMPLES),
        Trainer(subject, pool, rest_of(subject, pool), settings.batch_size or BATCH),
        also,
    )


def _retrained(study: _Probe, tell: Callable[[str], None], training_progress: bool) -> list[Arrays]:
    """What was found of every retrained model."""
    found = []
    for number in range(study.settings.retrain_seeds):
        seed = study.seed + 1 + number
        found.append(study.pieces.get(f"retrained-{seed}", partial(study.retrained, seed, training_progress)))
        tell(f"retrained model {number + 1} of {study.settings.retrain_seeds}")
    return found


def _unlearn_all(
    study: _Probe, methods: list[Method], goal: Goal, retrained: Sequence[Arrays], tell: Callable[[str], None]
) -> dict[str, list[Arrays]]:
    """What was found of every run of every method."""
    everything: dict[str, list[Arrays]] = {}
    rate = study.settings.learning_rate
    for method in methods:
        runs: list[Arrays] = []
        for number in range(study.settings.seeds):
            seed = study.seed + number
            own = _budget(runs[0]).learning_rate if runs else rate
            run = partial(study.unlearned, method, goal, own, seed, retrained)
            runs.append(study.pieces.get(f"{method.name}-{seed}-{own:.6g}", run))
            tell(f"{method.name}, run {number + 1} of {study.settings.seeds}")
        if _budget(runs[0]).reached:
            rate = _budget(runs[0]).learning_rate  # the next method need not search from the start
        everything[method.name] = runs
    return everything


def _budget(piece: Arrays) -> Budget:
    return Budget(int(piece["steps"][0]), float(piece["learning_rate"][0]), bool(piece["reached"][0]))


def _expected_time(study: _Probe, methods: list[Method]) -> str:
    """One sentence, from a few timed steps of the costliest method."""
    method = max(methods, key=lambda m: (m.retains, list(REGISTRY).index(m.name)))
    run = study.trainer.run(method, seed=study.seed, learning_rate=study.settings.learning_rate)
    next(run)  # the first step pays for allocation
    marks = [time.perf_counter()]
    for _ in islice(run, TIMED_STEPS):
        marks.append(time.perf_counter())
    step = float(np.median(np.diff(marks)))  # one step may wait for something else on the machine
    began = time.perf_counter()
    study.losses(study.subject.model)
    measured = time.perf_counter()
    study.looked(study.subject.model)
    look = time.perf_counter() - measured
    runs = len(methods) * study.settings.seeds
    seconds = runs * (TYPICAL_STEPS * step + TYPICAL_LOOKS * look + measured - began)
    seeds = "1 seed" if study.settings.seeds == 1 else f"{study.settings.seeds} seeds"
    return (
        f"Probing {len(study.pool)} {study.subject.words.entities} with {len(methods)} methods x {seeds} "
        f"takes about {max(1, round(seconds))} s, and {study.settings.retrain_seeds} retrained models as "
        "long as training each."
    )


def _counter(progress: Progress | None, total: int) -> Callable[[str], None]:
    done = 0

    def tell(what: str) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(what, done, total)

    return tell


def _record(settings: AnchorSettings, seed: int, budgets: dict[str, list[Budget]]) -> dict[str, object]:
    return {
        **settings.model_dump(mode="json"),
        "seed": seed,
        "learning_rates": {name: runs[0].learning_rate for name, runs in budgets.items()},
        "steps": {name: [run.steps for run in runs] for name, runs in budgets.items()},
        "reached": {name: all(run.reached for run in runs) for name, runs in budgets.items()},
    }
