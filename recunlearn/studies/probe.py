"""The probe: unlearn a random pool with several methods and seeds, and measure each entity's losses."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from recunlearn.foundation.records import Outcomes
from recunlearn.foundation.settings import AnchorSettings
from recunlearn.foundation.store import content_hash
from recunlearn.studies.losses import entity_losses, samples
from recunlearn.studies.methods import REGISTRY, Method, find
from recunlearn.studies.pieces import Pieces
from recunlearn.studies.pool import draw_pool, rest_of
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

    def losses(self, model: nn.Module) -> Array:
        return entity_losses(self.subject, model, self.batches, self.pool)

    def looked(self, model: nn.Module) -> float:
        """Mean loss over the looked-at part of the pool, which is itself a random set."""
        users = self.pool[:: -(-len(self.pool) // LOOKED_USERS)]
        return float(entity_losses(self.subject, model, self.seen, users).mean())

    def retrained(self, seed: int, progress: bool) -> dict[str, Array]:
        """Losses under a model trained anew without the pool, whose absent rows are the population mean."""
        model = self.subject.retrain(self.pool, seed=seed, progress=progress)
        stranger = self.subject.population_rows(model, self.pool)
        return {"loss": self.losses(stranger), "looked": np.array([self.looked(stranger)])}

    def unlearned(self, method: Method, goal: Goal, rate: float, seed: int) -> dict[str, NDArray[Any]]:
        """A run that stops where the mean loss reaches the goal; the first seed's also finds the rate."""
        search = calibrate if seed == self.seed else stopped
        budget, model = search(self.trainer, method, goal, learning_rate=rate, seed=seed)
        return {
            "loss": self.losses(model),
            "steps": np.array([budget.steps]),
            "learning_rate": np.array([budget.learning_rate]),
            "reached": np.array([budget.reached]),
        }


def probe(
    subject: Subject,
    settings: AnchorSettings | None = None,
    *,
    seed: int = 0,
    folder: Path | None = None,
    say: Say | None = None,
    progress: Progress | None = None,
    training_progress: bool = False,
) -> Outcomes:
    """Unlearn a random pool of entities with every method and seed: the losses before, after and retrained.

    Args:
        subject: with its trained model.
        settings: pool, methods, seeds, budgets.
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
    study = _start(subject, settings, seed, folder)
    methods = [find(name) for name in settings.methods]
    total = settings.retrain_seeds + len(methods) * settings.seeds
    tell = _counter(progress, total)
    say(_expected_time(study, methods))
    before = study.losses(subject.model)
    population = study.losses(subject.population_rows(subject.model, study.pool))
    retrained, target = _retrained(study, tell, training_progress)
    noise = retraining_noise(retrained)
    _warn_weak(say, before, retrained, noise)
    goal = Goal(study.looked, study.looked(subject.model), target, settings.most_steps)
    after, budgets = _unlearn_all(study, methods, goal, tell)
    _warn_unreached(say, budgets, settings)
    return Outcomes(
        entities=subject.entities[study.pool],
        methods=settings.methods,
        seeds=tuple(range(seed, seed + settings.seeds)),
        loss_before=before,
        loss_after=after,
        loss_retrained=retrained,
        loss_population=population,
        budgets={name: runs[0].steps for name, runs in budgets.items()},
        noise=noise,
        settings=_record(settings, seed, budgets),
    )


def retraining_noise(losses: Array) -> float:
    """Standard deviation over retrained models, pooled over entities: ``[R, n] -> []``; 0 for one model."""
    return float(np.sqrt(losses.var(0, ddof=1).mean())) if len(losses) > 1 else 0.0


def _start(subject: Subject, settings: AnchorSettings, seed: int, folder: Path | None) -> _Probe:
    pool = draw_pool(subject, settings.pool, settings.count, seed)
    # What the parts depend on: not on how many anchors are chosen from them, nor how.
    wanted = settings.model_dump(include={"learning_rate", "most_steps", "batch_size", "retrain_seeds"})
    key = content_hash(RULES, dict(subject.describe()), wanted, subject.entities[pool], seed)
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
    )


def _retrained(study: _Probe, tell: Callable[[str], None], training_progress: bool) -> tuple[Array, float]:
    """Losses under the retrained models ``[R, n]``, and their mean loss over the looked-at part."""
    rows, looked = [], []
    for number in range(study.settings.retrain_seeds):
        seed = study.seed + 1 + number
        piece = study.pieces.get(f"retrained-{seed}", partial(study.retrained, seed, training_progress))
        rows.append(piece["loss"])
        looked.append(float(piece["looked"][0]))
        tell(f"retrained model {number + 1} of {study.settings.retrain_seeds}")
    return np.stack(rows), float(np.mean(looked))


def _unlearn_all(
    study: _Probe, methods: list[Method], goal: Goal, tell: Callable[[str], None]
) -> tuple[Array, dict[str, list[Budget]]]:
    """Losses after unlearning ``[M, S, n]`` and the budget of every run."""
    after, budgets, rate = [], {}, study.settings.learning_rate
    for method in methods:
        rows: list[Array] = []
        runs: list[Budget] = []
        for number in range(study.settings.seeds):
            seed = study.seed + number
            own = runs[0].learning_rate if runs else rate
            run = partial(study.unlearned, method, goal, own, seed)
            found = study.pieces.get(f"{method.name}-{seed}-{own:.6g}", run)
            rows.append(found["loss"])
            runs.append(
                Budget(int(found["steps"][0]), float(found["learning_rate"][0]), bool(found["reached"][0]))
            )
            tell(f"{method.name}, run {number + 1} of {study.settings.seeds}")
        if runs[0].reached:
            rate = runs[0].learning_rate  # the next method need not search from the start
        budgets[method.name] = runs
        after.append(np.stack(rows))
    return np.stack(after), budgets


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
        f"Probing {len(study.pool)} users with {len(methods)} methods x {seeds} takes "
        f"about {max(1, round(seconds))} s, and {study.settings.retrain_seeds} retrained models as long as "
        "training each."
    )


def _counter(progress: Progress | None, total: int) -> Callable[[str], None]:
    done = 0

    def tell(what: str) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(what, done, total)

    return tell


def _warn_weak(say: Say, before: Array, retrained: Array, noise: float) -> None:
    gap = retrained.mean(0) - before
    if gap.mean() <= 0:
        say(
            f"Warning: models retrained without the probed users know them no worse (mean loss "
            f"{retrained.mean():.3f}) than the model itself ({before.mean():.3f}), so there is nothing to "
            "unlearn and the scores mean little."
        )
    elif (share := float((gap < 2 * noise).mean())) > 0.5:
        say(
            f"Warning: for {share:.0%} of the probed users the loss that retraining adds is below twice its "
            f"own noise ({noise:.3f}), so the scores rest on a weak signal."
        )


def _warn_unreached(say: Say, budgets: dict[str, list[Budget]], settings: AnchorSettings) -> None:
    missed = [name for name, runs in budgets.items() if not all(run.reached for run in runs)]
    if missed:
        say(
            f"Warning: {', '.join(missed)} did not bring the pool's loss to the retrained model's within "
            f"{settings.most_steps} steps. Raise [anchors] most_steps, or leave the method out."
        )


def _record(settings: AnchorSettings, seed: int, budgets: dict[str, list[Budget]]) -> dict[str, object]:
    return {
        **settings.model_dump(mode="json"),
        "seed": seed,
        "learning_rates": {name: runs[0].learning_rate for name, runs in budgets.items()},
        "steps": {name: [run.steps for run in runs] for name, runs in budgets.items()},
        "reached": {name: all(run.reached for run in runs) for name, runs in budgets.items()},
    }
