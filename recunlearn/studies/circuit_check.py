"""``circuits check``: exact ablation of every edge of a trained model against its attribution."""

import copy
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from recunlearn.circuits.tracing import Tracer, tracer
from recunlearn.evaluation.faithfulness import agreement
from recunlearn.foundation.errors import TraceError, UsageError
from recunlearn.foundation.settings import ScoreSettings
from recunlearn.studies import circuit_measures as measures
from recunlearn.studies.circuit_measures import Array, Runs
from recunlearn.studies.keys import Keys, keys_for
from recunlearn.studies.score_stages import trained
from recunlearn.studies.scoring import Listener
from recunlearn.studies.threads import threads
from recunlearn.subjects.contract import Batch, Subject

CLOSE = 0.95
"""Spearman with exact ablation below which circuits are called doubtful."""

RENAMED = {"spearman": "spearman_exact"}


@dataclass(frozen=True)
class CircuitCheck:
    """What a check found.

    Args:
        summary: plain figures; ``spearman_exact`` and ``interval`` first. A missing figure is None and
            ``reasons`` says why.
        exact, scores: ``[B, E]`` effect of ablating each edge, and its attribution.
        edges: one row per edge: name, ends, and means over samples.
    """

    summary: dict[str, Any]
    exact: Array
    scores: Array
    edges: pd.DataFrame


def check_circuits(
    settings: ScoreSettings,
    *,
    checkpoint: Path | None = None,
    samples: int = 256,
    retrain_seeds: int = 0,
    listener: Listener | None = None,
) -> CircuitCheck:
    """Check the circuits of a model, trained if need be.

    Args:
        settings: data set, model, seed and the settings of the circuits.
        checkpoint: folder of a trained model instead.
        samples: training interactions, of as many users as there are.
        retrain_seeds: trainings with other seeds, to see how edges move.

    Raises:
        UsageError: no samples asked for, unknown names.
        TraceError: the model cannot be traced.
        CheckpointError: the checkpoint is incomplete or of other data.
    """
    if samples < 1:
        raise UsageError(f"A check needs at least 1 sample, but got --samples {samples}.")
    keys, listener = keys_for(settings, checkpoint), listener or Listener()
    with threads(keys.settings.threads or 1):
        subject = trained(keys, listener, anchors=False)
        found = check_subject(subject, keys.settings, samples, retrain_seeds, listener)
    found.summary.update(_provenance(subject, keys))
    return found


def check_subject(
    subject: Subject,
    settings: ScoreSettings,
    samples: int = 256,
    retrain_seeds: int = 0,
    listener: Listener | None = None,
) -> CircuitCheck:
    """Check the circuits of any trained subject; see :func:`check_circuits`."""
    seed, say = settings.seed, listener or Listener()
    run = tracer(subject, settings.circuits, seed)
    advance = say.stage("Checking circuits", 5)
    runs = Runs.of(run, sampled(subject, samples, seed))
    exact, scores = runs.joined(lambda p: p.single()), measures.scores_of(run, runs)
    _check_finite(exact, scores)
    summary = _agreement(run, runs, exact, scores, seed)
    advance(1)
    _add_faithfulness(summary, measures.curves(runs, scores, seed))
    summary["completeness"] = measures.completeness(runs, scores, seed)
    advance(1)
    summary["edge_scores"] = measures.edge_scores(subject, runs, exact, settings.circuits, seed)
    advance(1)
    summary["stability"] = measures.stability(subject, runs, settings.circuits, seed)
    advance(1)
    if retrain_seeds:
        others = {s: _other(subject, s) for s in range(seed + 1, seed + 1 + retrain_seeds)}
        summary["stability"]["training seed"] = measures.retrained(run, runs, scores, others, seed)
    advance(1)
    return CircuitCheck(summary, exact, scores, _edge_table(run, exact, scores))


def _agreement(run: Tracer, runs: Runs, exact: Array, scores: Array, seed: int) -> dict[str, Any]:
    """What was checked, and how far attribution agrees with ablation; further figures follow."""
    found = asdict(agreement(exact, scores, runs.users, seed=seed))
    reasons = found.pop("reasons")
    return {
        "spearman_exact": found.pop("spearman"),
        "interval": found.pop("interval"),
        **found,
        "cpr": None,
        "cmd": None,
        "cpr_above_random": None,
        "reasons": {RENAMED.get(name, name): why for name, why in reasons.items()},
        "samples": len(exact),
        "users": len(np.unique(runs.users)),
        "edges": exact.shape[1],
        "components": len(run.plan.components),
        "circuits": run.settings.model_dump(mode="json"),
        "seed": seed,
    }


def sampled(subject: Subject, samples: int, seed: int) -> Iterator[Batch]:
    """Draw interactions, one of each user as long as there are users; all where fewer are there."""
    counts = subject.n_samples()
    active = np.flatnonzero(counts)
    if not len(active):
        raise TraceError("There are no training interactions to check. Check the data set and its split.")
    samples = min(samples, len(active) * int(counts.max()))  # numbers of any size are understood
    users = np.random.default_rng(seed).permutation(active)[:samples]
    each = -(-samples // len(users))
    left = samples
    for batch in subject.batches(users, batch_size=1024, per_entity=each, seed=seed):
        yield batch[:left]
        left -= len(batch)
        if left <= 0:
            return


def _check_finite(*values: Array) -> None:
    if not all(np.isfinite(v).all() for v in values):
        raise TraceError(
            "Attribution or ablation gave values that are no finite numbers. Check the weights of the model."
        )


def _add_faithfulness(summary: dict[str, Any], curves: dict[str, Any]) -> None:
    summary["faithfulness"] = curves
    if curves["reason"]:
        summary["reasons"] |= dict.fromkeys(("cpr", "cmd", "cpr_above_random"), curves["reason"])
        return
    own = curves["curves"]["absolute"]
    summary |= {
        "cpr": own["cpr"],
        "cmd": own["cmd"],
        "cpr_above_random": own["cpr"] - curves["random"]["cpr"],
    }


def _other(subject: Any, seed: int) -> Any:
    """The subject with a model of another training."""
    other = copy.copy(subject)
    nobody: NDArray[np.int64] = np.array([], dtype=np.int64)
    other.model = subject.retrain(nobody, seed=seed).eval()
    return other


def _edge_table(run: Tracer, exact: Array, scores: Array) -> pd.DataFrame:
    graph = run.plan.graph
    return pd.DataFrame(
        {
            "edge": run.plan.edges,
            "source": [graph.nodes[u] for u in graph.source],
            "group": graph.source_group,
            "sink": [graph.nodes[v] for v in graph.sink],
            "exact_mean": exact.mean(0),
            "exact_mean_size": np.abs(exact).mean(0),
            "score_mean": scores.mean(0),
            "score_mean_size": np.abs(scores).mean(0),
        }
    )


def _provenance(subject: Any, keys: Keys) -> dict[str, Any]:
    facts = subject.describe()
    return {
        "dataset": facts["data"],
        "model": facts["model"],
        "model_folder": str(keys.model),
        "epochs": subject.epochs,
        "versions": {p: version(p) for p in ("recunlearn", "recbole", "torch", "numpy")},
    }
