"""Measures of one model's circuits against exact ablation; every one is a plain table of figures."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recunlearn.circuits.ablation import Ablation
from recunlearn.circuits.rankings import activation_scores, gradient_scores, window
from recunlearn.circuits.tracing import Tracer, tracer
from recunlearn.evaluation.faithfulness import (
    agreement,
    areas,
    circuit_sizes,
    faithfulness,
    jaccard,
    top_edges,
)
from recunlearn.foundation.errors import TraceError
from recunlearn.foundation.settings import CircuitSettings
from recunlearn.subjects.contract import Batch, Subject

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Advance = Callable[[int], None]

DRAWS = 10
"""Random circuits, and random knock-outs."""
TOP = 0.1
"""Share of the edges whose overlap is reported."""
CIRCUIT = 0.2
"""Share of the edges that the knocked-out circuit keeps."""
STEPS = (4, 8, 16, 32, 64)
NEAR = 0.75
"""Start of the piece of the path next to the actual values, for the score ``eap-ig near``."""
TILE_FLOATS = 2**24
"""Numbers that one run's components may hold together."""


@dataclass(frozen=True)
class Runs:
    """Samples with their clamped runs, chunk by chunk."""

    parts: list[Ablation]

    @staticmethod
    def of(run: Tracer, batches: Iterable[Batch]) -> "Runs":
        """Both ends of every sample; the chunks follow from the size of the model."""
        floats = sum(int(np.prod(c.shape)) for c in run.plan.components)
        rows = int(np.clip(TILE_FLOATS // max(floats, 1), 64, 8192))
        size = max(rows // 8, 8)
        chunks = [b[at : at + size] for b in batches for at in range(0, len(b), size)]
        return Runs([Ablation(run.engine, chunk, rows=rows) for chunk in chunks])

    def joined(self, make: Callable[[Ablation], torch.Tensor], axis: int = 0) -> Array:
        """Results of all chunks along the samples."""
        return np.concatenate([make(p).cpu().double().numpy() for p in self.parts], axis)

    def kept(self, keep: Bools, advance: Advance = lambda n: None) -> Array:
        """``[K, B]`` metric of circuits ``[K, B or 1, E]``."""
        found, at = [], 0
        for part in self.parts:
            mine = keep if keep.shape[1] == 1 else keep[:, at : at + len(part.batch)]
            found.append(part.kept(torch.from_numpy(mine)).cpu().double().numpy())
            at += len(part.batch)
            advance(1)
        return np.concatenate(found, 1)

    @property
    def full(self) -> Array:
        """``[B]`` metric of the whole model."""
        return self.joined(lambda p: p.full)

    @property
    def empty(self) -> Array:
        """``[B]`` metric of the baseline."""
        return self.joined(lambda p: p.empty)

    @property
    def users(self) -> NDArray[np.int64]:
        """``[B]`` entity of every sample."""
        return np.concatenate([p.batch.entity.cpu().numpy() for p in self.parts])


def scores_of(run: Tracer, runs: Runs) -> Array:
    """``[B, E]`` attribution of every sample."""
    return runs.joined(lambda p: run.attribute(p.batch).edges)


def curves(runs: Runs, scores: Array, seed: int, advance: Advance = lambda n: None) -> dict[str, Any]:
    """f(k), CPR and CMD of the circuits of ``scores``, with what they are compared with.

    ``absolute``, ``signed``: every sample keeps its own strongest edges; ``shared``: one circuit for all, the
    largest mean |score|; ``activation``: by |activation| of the source; ``complement``: all edges but those
    of ``absolute``; ``random``: mean and sd over draws.
    """
    edges = scores.shape[1]
    sizes = circuit_sizes(edges)
    rng = np.random.default_rng(seed)
    absolute = top_edges(scores, sizes)
    circuits = {
        "absolute": absolute,
        "signed": top_edges(scores, sizes, "signed"),
        "shared": np.repeat(top_edges(np.abs(scores).mean(0)[None], sizes), len(scores), 1),
        "activation": top_edges(runs.joined(activation_scores), sizes),
        "complement": ~absolute,
        **{f"random {d}": top_edges(rng.random((1, edges)), sizes) for d in range(DRAWS)},
    }
    keep = np.concatenate([np.broadcast_to(c, (len(sizes), *scores.shape)) for c in circuits.values()])
    f = faithfulness(runs.kept(keep, advance), runs.full, runs.empty)
    facts = {"full": float(runs.full.mean()), "empty": float(runs.empty.mean()), "sizes": sizes}
    if isinstance(f, str):
        return {**facts, "reason": f, "curves": None, "random": None}
    by_name = dict(zip(circuits, f.reshape(len(circuits), -1), strict=True))
    random = np.array([by_name.pop(f"random {d}") for d in range(DRAWS)])
    areas_of = np.array([areas(sizes, r) for r in random])
    return {
        **facts,
        "reason": None,
        "curves": {name: _curve(sizes, line) for name, line in by_name.items()},
        "random": {
            "f": random.mean(0).tolist(),
            "sd": random.std(0, ddof=1).tolist(),
            **_mean_and_sd("cpr", areas_of[:, 0]),
            **_mean_and_sd("cmd", areas_of[:, 1]),
            "draws": DRAWS,
        },
    }


def _curve(sizes: Sequence[int], f: Array) -> dict[str, Any]:
    cpr, cmd = areas(sizes, f)
    return {"f": f.tolist(), "cpr": cpr, "cmd": cmd}


def _mean_and_sd(name: str, values: Array) -> dict[str, float]:
    return {name: float(values.mean()), f"{name}_sd": float(values.std(ddof=1))}


def completeness(runs: Runs, scores: Array, seed: int) -> dict[str, Any]:
    """|m(C without K) - m(N without K)| for random halves K of a circuit C, and the same for random circuits.

    A circuit that holds all that matters is hurt by a knock-out as much as the model is. Source: Wang et al.,
    2023 (arXiv 2211.00593), section 4.
    """
    rng = np.random.default_rng(seed)
    edges = scores.shape[1]
    size = max(2, round(CIRCUIT * edges))

    def gaps(ranking: Callable[[], Array]) -> Array:
        circuit = [top_edges(ranking(), [size])[0] for _ in range(DRAWS)]
        out = [c & (rng.random(edges) < 0.5) for c in circuit]
        keep = np.stack([*(c & ~k for c, k in zip(circuit, out, strict=True)), *(~k for k in out)])
        m = runs.kept(keep).mean(1)
        return np.abs(m[:DRAWS] - m[DRAWS:])

    change = abs(float((runs.full - runs.empty).mean()))
    ours, theirs = gaps(lambda: scores), gaps(lambda: rng.random((1, edges)))
    return {
        "circuit": size,
        "draws": DRAWS,
        **_mean_and_sd("gap", ours),
        **_mean_and_sd("gap_random", theirs),
        "change": change,
    }


def edge_scores(
    subject: Subject, runs: Runs, exact: Array, settings: CircuitSettings, seed: int
) -> list[dict[str, Any]]:
    """Agreement with exact ablation, CPR and CMD of every edge score; cost in passes of a sample.

    ``exact`` ranks edges by the ablation itself: what a perfect prediction of single effects would reach.
    """
    n = settings.steps

    def own(score: str) -> Array:
        return scores_of(tracer(subject, settings.model_copy(update={"score": score}), seed), runs)

    def gradient(points: Sequence[tuple[float, float]]) -> Array:
        return runs.joined(lambda p: gradient_scores(p, points))

    rows = {
        ("eap-ig", n): own("eap-ig"),
        ("conductance", n): own("conductance"),
        ("eap-ig near", n): gradient(window(NEAR, n)),
        ("eap-ig near", 2): gradient(window(NEAR, 2)),
        ("eap", 1): gradient([(1.0, 1.0)]),
        ("exact", exact.shape[1]): exact,
    }
    return [
        {"score": name, "points": points, **_rated(runs, exact, found)}
        for (name, points), found in rows.items()
    ]


def _rated(runs: Runs, exact: Array, scores: Array) -> dict[str, Any]:
    found = asdict(agreement(exact, scores, resamples=0))
    sizes = circuit_sizes(scores.shape[1])
    f = faithfulness(runs.kept(top_edges(scores, sizes)), runs.full, runs.empty)
    cpr, cmd = (None, None) if isinstance(f, str) else areas(sizes, f)
    names = ("spearman", "per_sample", "pearson", "sign", "sign_weighted")
    return {**{k: found[k] for k in names}, "cpr": cpr, "cmd": cmd}


def stability(
    subject: Subject, runs: Runs, settings: CircuitSettings, seed: int
) -> dict[str, list[dict[str, Any]]]:
    """How edges move with the steps, the baseline and the seed of the counterfactual baseline.

    Settings that the model cannot be attributed with have no figures but a ``reason``.
    """

    def found(other_seed: int = seed, **changed: Any) -> Array | str:
        try:
            return scores_of(tracer(subject, settings.model_copy(update=changed), other_seed), runs)
        except TraceError as error:
            return str(error)

    finest, chosen = found(steps=STEPS[-1]), found()
    pair = found(baseline="counterfactual")
    return {
        "steps": [
            {"steps": s, **_alike(found(steps=s), finest), "against": f"{STEPS[-1]} steps"}
            for s in STEPS[:-1]
        ],
        "baseline": [
            {"baseline": b, **_alike(found(baseline=b), chosen), "against": settings.baseline}
            for b in ("mean", "zero", "counterfactual")
            if b != settings.baseline
        ],
        "counterfactual seed": [
            {"seed": s, **_alike(found(s, baseline="counterfactual"), pair), "against": f"seed {seed}"}
            for s in (seed + 1, seed + 2)
        ],
    }


def _alike(a: Array | str, b: Array | str) -> dict[str, Any]:
    for refused in (a, b):
        if isinstance(refused, str):
            return {"spearman": None, "per_sample": None, "jaccard": None, "reason": refused}
    return _overlap(np.asarray(a), np.asarray(b))


def _overlap(a: Array, b: Array) -> dict[str, Any]:
    result = agreement(b, a, resamples=0)
    size = [max(1, round(TOP * a.shape[1]))]
    return {
        "spearman": result.spearman,
        "per_sample": result.per_sample,
        "jaccard": jaccard(top_edges(a, size)[0], top_edges(b, size)[0]),
        "reason": result.reasons.get("spearman"),
    }


def between_components(run: Tracer, scores: Array) -> Array:
    """``[B, pairs]`` edges of whole components: groups of dimensions mean nothing across trainings."""
    graph = run.plan.graph
    pairs = [*zip(graph.source, graph.sink, strict=True)]
    numbers = {p: i for i, p in enumerate(dict.fromkeys(pairs))}
    joins = np.zeros((len(pairs), len(numbers)))
    joins[np.arange(len(pairs)), [numbers[p] for p in pairs]] = 1
    summed: Array = scores @ joins
    return summed


def retrained(
    chosen: Tracer, runs: Runs, scores: Array, others: Mapping[int, Subject], seed: int
) -> list[dict[str, Any]]:
    """How edges between components move when the model is trained with another seed."""
    before = between_components(chosen, scores)
    rows = []
    for other, subject in others.items():
        run = tracer(subject, chosen.settings, seed)
        alike = _alike(between_components(run, scores_of(run, runs)), before)
        rows.append({"seed": other, **alike, "against": "this model"})
    return rows
