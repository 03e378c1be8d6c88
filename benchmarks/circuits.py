"""Cost of edge attribution against the same number of bare forward + backward passes to the sources.

    python benchmarks/circuits.py [--models NeuMF DeepFM ...] [--samples 4096] [--steps 16] [--repeats 7]

Prints one JSON line a model: medians of interleaved runs, each side at its own best chunk size, same threads.
``bare``: plain autograd through the model as RecBole has it, embedding outputs as leaves, no interception.
``bare_shortcut``: the same by the shortcut that edges are computed by, where a model has one. ``captum_ig``:
Captum's IntegratedGradients of the sources alone (no edges). ``captum_path``: Captum driving the edges.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from recunlearn.circuits.captum_path import CaptumEdgeAttribution, source_attributions
from recunlearn.circuits.interception import frozen
from recunlearn.circuits.subject import Metric
from recunlearn.circuits.tracing import tracer
from recunlearn.data.catalogue import load_interactions
from recunlearn.foundation.settings import CircuitSettings, ScoreSettings, TrainingSettings
from recunlearn.subjects.contract import Batch, Subject
from recunlearn.subjects.recbole.store import train_subject

CHUNKS = {"SASRec": (8, 16, 32, 64, 128)}
DEFAULT_CHUNKS = (128, 256, 512, 1024, 2048, 4096)


def bare(subject: Subject, batch: Batch, steps: int, metric: Metric) -> Callable[[int], None]:
    """Forward and backward to the embedding outputs for every path point of every sample."""
    leaves: list[Tensor] = []

    def leaf(_m: nn.Module, _i: object, out: Tensor) -> Tensor:
        leaves.append(out.detach().requires_grad_())
        return leaves[-1]

    def run(chunk: int) -> None:
        handles = [
            m.register_forward_hook(leaf) for m in subject.model.modules() if isinstance(m, nn.Embedding)
        ]
        with frozen(subject.model):
            for at in range(0, len(batch), chunk):
                leaves.clear()
                value = metric(subject.model, batch[at : at + chunk].tile(steps))
                torch.autograd.grad(value.sum(), leaves)
        for h in handles:
            h.remove()

    return run


def contenders(subject: Subject, batch: Batch, steps: int) -> dict[str, Callable[[int], None]]:
    """Every side as a function of the chunk size."""
    first = tracer(subject, CircuitSettings(steps=steps)).engine
    sides: dict[str, Callable[[int], None]] = {"bare": bare(subject, batch, steps, first.metric)}
    if first.hints.shortcut is not None:
        sides["bare_shortcut"] = bare(subject, batch, steps, first.traced)
    for score in ("eap-ig", "conductance"):
        sides[score] = lambda chunk, m=score: first.attribute(
            batch, n_steps=steps, method=m, internal_batch_size=chunk
        )
    driven = CaptumEdgeAttribution(subject, first.plan)
    sides["captum_path"] = lambda chunk: driven.attribute(batch, n_steps=steps, internal_batch_size=chunk)
    sides["captum_ig"] = lambda chunk: [
        source_attributions(first, batch[at : at + chunk], steps) for at in range(0, len(batch), chunk)
    ]
    return sides


def seconds(run: Callable[[int], None], chunk: int) -> float:
    began = time.perf_counter()
    run(chunk)
    return time.perf_counter() - began


def measure(model: str, samples: int, steps: int, repeats: int) -> dict[str, object]:
    interactions = load_interactions("ml-100k")
    settings = ScoreSettings(model=model, training=TrainingSettings(epochs=1))
    with tempfile.TemporaryDirectory() as folder:
        subject = train_subject(interactions, settings, folder=Path(folder) / "model")
    samples = 512 if model == "SASRec" else samples
    batch = next(subject.batches(batch_size=samples))
    sides = contenders(subject, batch, steps)
    chunks = CHUNKS.get(model, DEFAULT_CHUNKS)
    best = {}
    for name, run in sides.items():
        run(chunks[0])
        times = {c: min(seconds(run, c) for _ in range(3)) for c in chunks}
        best[name] = min(times, key=times.__getitem__)
    times = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            times[name].append(seconds(run, best[name]))
    median = {name: statistics.median(t) for name, t in times.items()}
    ratios = {
        name: round(statistics.median(a / b for a, b in zip(t, times["bare"], strict=True)), 3)
        for name, t in times.items()
        if name != "bare"
    }
    edges = len(tracer(subject, CircuitSettings()).plan.edges)
    return {
        "model": model,
        "samples": samples,
        "steps": steps,
        "edges": edges,
        "threads": torch.get_num_threads(),
        "ratio_to_bare": ratios,
        "best_chunk": best,
        "milliseconds": {name: round(1e3 * t, 1) for name, t in median.items()},
        "repeats": repeats,
        "torch": torch.__version__,
    }


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--models", nargs="+", default=["NeuMF", "DeepFM", "SASRec", "BPR"])
    options.add_argument("--samples", type=int, default=4096)
    options.add_argument("--steps", type=int, default=16)
    options.add_argument("--repeats", type=int, default=7)
    options.add_argument("--threads", type=int)
    given = options.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    for model in given.models:
        print(json.dumps(measure(model, given.samples, given.steps, given.repeats)), flush=True)


if __name__ == "__main__":
    main()
