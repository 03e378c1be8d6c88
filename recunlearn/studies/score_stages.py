"""The stages of ``score-users`` that train, trace and unlearn; each is stored by content and read back."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import nn

from recunlearn.circuits.tracing import Tracer, trace, tracer
from recunlearn.data.tombstones import is_tombstone
from recunlearn.difficulty.anchors import choose_anchors
from recunlearn.difficulty.cud import Scores, score
from recunlearn.difficulty.statistics import spearman
from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.records import Anchors, Circuits, Outcomes, load_record, save_record
from recunlearn.foundation.words import Words
from recunlearn.studies.bilevel import bilevel
from recunlearn.studies.keys import Keys
from recunlearn.studies.losses import BATCH, entity_losses
from recunlearn.studies.methods import find
from recunlearn.studies.probe import probe
from recunlearn.studies.residual import residual_columns
from recunlearn.studies.scoring import Listener
from recunlearn.studies.sources.contract import source_of
from recunlearn.studies.threads import threads
from recunlearn.subjects.contract import Subject

LARGE_GAP = 0.05
"""Completeness gap above which a circuit is called doubtful."""
WEAK_AGREEMENT = 0.8
"""Kendall's W of the methods below which a score says little: docs/guide/trust.md."""
OTHERS = ("n_interactions", "mean_item_popularity", "loss", "personalisation_gap")
"""Columns that CUD is compared with, by their default names."""
Array = NDArray[np.floating[Any]]


def compute(keys: Keys, listener: Listener) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Run or read every stage; returns the table (in the order of the users) and the summary.

    torch runs with ``settings.threads`` threads, one by default, and gets its own number back afterwards.
    """
    with threads(keys.settings.threads or 1):
        return _stages(keys, listener)


def _stages(keys: Keys, listener: Listener) -> tuple[pd.DataFrame, dict[str, Any]]:
    settings, clock = keys.settings, Clock()
    for name in settings.anchors.methods:
        find(name)  # an unknown method is refused before anything is trained
    warnings: list[str] = []

    def say(sentence: str) -> None:
        if sentence.startswith("Warning: "):
            warnings.append(sentence.removeprefix("Warning: "))
        listener.say(sentence)

    told = Listener(say, listener.stage, listener.bars)
    source = source_of(keys)
    with clock("training"):
        subject = trained(keys, told)
    source.warn(subject, say)
    with clock("circuits"):
        circuits = traced(keys, subject, told)
    with clock("anchors"):
        anchors, outcomes = anchored(keys, subject, told)
    with clock("scores"):
        scores = score(circuits, anchors, settings.similarity, seed=settings.seed)
        table = _table(source.beside(subject), circuits, scores, _losses(subject, settings.seed))
        columns, residual = residual_columns(
            circuits,
            outcomes,
            table,
            settings.anchors.methods,
            say,
            seed=settings.seed,
            words=subject.words,
        )
    _warn_about_scores(circuits, anchors, subject.words, say)
    # Numbers of deleted users have a row everywhere but in the result.
    table = pd.concat([table, columns], axis=1)
    table = table[~table["user_id"].map(is_tombstone)].reset_index(drop=True)
    summary = _summary(keys, subject, circuits, anchors, outcomes, table, warnings, clock.seconds)
    return table, summary | {"predicted_residual": residual}


class Clock:
    """Seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time one stage."""
        began = time.perf_counter()
        yield
        self.seconds[stage] = round(time.perf_counter() - began, 1)


def trained(keys: Keys, listener: Listener, *, anchors: bool = True) -> Any:
    """Load the model of a run, or train it; ``anchors``: the run will need some."""
    return source_of(keys).trained(keys, listener, anchors=anchors)


def traced(keys: Keys, subject: Subject, listener: Listener) -> Circuits:
    """Circuits of every entity, stored by content."""
    settings = keys.settings

    def run() -> Circuits:
        engine = tracer(subject, settings.circuits, settings.seed)
        counts = subject.n_samples()
        cap = settings.circuits.per_user
        total = int((counts if cap is None else np.minimum(counts, cap)).sum())
        limit = "" if cap is None else f", at most {cap} of a {subject.words.entity}"
        edges = f"{len(engine.plan.edges)} edges{_parts(engine)}"
        listener.say(
            f"Tracing {total:,} {subject.words.samples}{limit} along {edges} takes about "
            f"{_duration(_expected_seconds(engine, total))}."
        )
        return trace(engine, seed=settings.seed, advance=listener.stage("Tracing circuits", total))

    return _kept(Circuits, keys.circuits, run, settings.dataset)


def anchored(keys: Keys, subject: Subject, listener: Listener) -> tuple[Anchors, Outcomes | None]:
    """Anchors of a run, and the outcomes they were chosen from (probe only)."""
    settings = keys.settings
    parts = keys.probe.with_name(f"{keys.probe.name}.parts")
    reports: list[Callable[[int], None]] = []

    def progress(_title: str, _done: int, total: int) -> None:
        if not reports:
            reports.append(listener.stage("Finding anchors", total))
        reports[0](1)

    options: dict[str, Any] = {"seed": settings.seed, "folder": parts, "progress": progress}
    if settings.anchors.source == "bilevel":
        make = lambda: bilevel(subject, settings.anchors, **options)  # noqa: E731
        return _kept(Anchors, keys.probe, make, settings.dataset), None
    run = lambda: probe(subject, settings.anchors, say=listener.say, training_progress=False, **options)  # noqa: E731
    outcomes = _kept(Outcomes, keys.probe, run, settings.dataset)
    return choose_anchors(outcomes, settings.anchors), outcomes


def _kept(kind: type[Any], folder: Any, run: Callable[[], Any], dataset: str) -> Any:
    """Read a record, or make and store it with the name of its data set; a damaged one is made anew."""
    if (folder / "manifest.json").is_file():
        try:
            return load_record(kind, folder)
        except RecunlearnError:
            pass
    record = run()
    record = replace(record, settings={**record.settings, "dataset": dataset})
    save_record(record, folder)
    return record


def _parts(engine: Tracer) -> str:
    """What split sinks cost."""
    sinks, segments = len({v for _, v, _ in engine.plan.reads}), engine.plan.segments
    return f" (sinks in parts: {segments} backward segments, not {sinks})" if segments > sinks else ""


def _expected_seconds(engine: Tracer, total: int) -> float:
    batch = next(engine.subject.batches(batch_size=engine.chunk, per_entity=engine.settings.per_user))
    engine.attribute(batch)
    began = time.perf_counter()
    for _ in range(2):
        engine.attribute(batch)
    return (time.perf_counter() - began) / 2 / len(batch) * total


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _losses(subject: Subject, seed: int) -> tuple[Array, Array]:
    """Loss of every user, and under the mean vector of all others (NaN without vectors): ``[n]`` each."""

    def loss_of(model: nn.Module, users: NDArray[np.int64]) -> Array:
        return entity_losses(subject, model, subject.batches(users, batch_size=BATCH, seed=seed), users)

    everyone = np.arange(len(subject.entities))
    loss, unknown = loss_of(subject.model, everyone), np.full(len(everyone), np.nan)
    stranger = subject.population_rows(subject.model, everyone)
    some = np.flatnonzero(subject.n_samples() > 0)[:20]
    if np.abs(loss_of(stranger, some) - loss[some]).max(initial=0) > 0:
        unknown = loss_of(stranger, everyone)
    return loss, unknown


def _table(
    beside: Mapping[str, NDArray[Any]], circuits: Circuits, scores: Scores, losses: tuple[Array, Array]
) -> pd.DataFrame:
    """Table with the default names of columns (:class:`~recunlearn.studies.columns.Columns`)."""
    loss, unknown = losses
    return pd.DataFrame(
        {
            "user_id": pd.Series(scores.entities.tolist(), dtype=object),
            "n_interactions": beside["n_interactions"],
            "cud": scores.cud,
            "percentile": scores.percentile,
            "band": scores.band,
            "cud_low": scores.cud_low,
            "cud_high": scores.cud_high,
            "s_easy": scores.s_easy,
            "s_hard": scores.s_hard,
            "is_anchor": scores.is_anchor,
            "completeness_gap": circuits.gap,
            "mean_item_popularity": beside["mean_item_popularity"],
            "loss": loss,
            "personalisation_gap": unknown - loss,
        }
    )


def _warn_about_scores(
    circuits: Circuits, anchors: Anchors, words: Words, say: Callable[[str], None]
) -> None:
    wide = float(np.nanmean(circuits.gap > LARGE_GAP))
    if wide > LARGE_GAP:
        say(
            f"Warning: {wide:.0%} of the {words.entities} have a completeness gap above {LARGE_GAP:.0%}: "
            "their circuits miss part of the prediction. Raise --steps."
        )
    w = anchors.agreement.get("kendall_w_methods")
    if w is not None and w < WEAK_AGREEMENT:
        say(
            f"Warning: the unlearning methods agree only partly on who is hard (Kendall's W {w:.2f} of 1): "
            f"CUD then says little that {words.trivial} do not. Name the one method that will be used "
            "in [anchors] methods, or go by the predicted residual."
        )


def _summary(
    keys: Keys,
    subject: Subject,
    circuits: Circuits,
    anchors: Anchors,
    outcomes: Outcomes | None,
    table: pd.DataFrame,
    warnings: list[str],
    seconds: dict[str, float],
) -> dict[str, Any]:
    facts = dict(subject.describe())
    source = source_of(keys)
    others = {c: source.columns(keys).name(c) for c in OTHERS}
    return {
        "dataset": facts["data"],
        "model": facts["model"],
        "settings": keys.settings.model_dump(mode="json"),
        "positives": facts["positives"],
        "users": len(table),
        "scored": int(table["cud"].notna().sum()),
        "traced_interactions": int(circuits.n_samples.sum()),
        "edges": len(circuits.edges),
        "median_completeness_gap": float(np.nanmedian(circuits.gap)),
        **source.facts(subject),
        "anchors": {"easy": len(anchors.easy), "hard": len(anchors.hard), **anchors.agreement},
        "budgets": {} if outcomes is None else dict(outcomes.budgets),
        "retraining_noise": None if outcomes is None else outcomes.noise,
        "spearman": {
            name: _number(spearman(table["cud"].to_numpy(), table[c].to_numpy()))
            for c, name in others.items()
            if name
        },
        "warnings": warnings,
        "seconds": dict(seconds),
        "model_folder": str(keys.model),
        "versions": {
            p: version(p) for p in ("recunlearn", "recbole", "torch", "captum", "lightning", "numpy")
        },
    }


def _number(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 4)
