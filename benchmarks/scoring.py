"""Scoring all users of ML-1M against a training epoch, and peak memory against scoring a tenth of them.

    python benchmarks/scoring.py PATH/ml-1m.zip [--model NeuMF] [--steps 16] [--epochs 3]

Both sides as ``score-users`` runs them: training with one thread, tracing on every core. Memory: peak
resident size of a fresh process each. Prints one JSON line.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def prepare(archive: str, folder: Path, model: str, epochs: int) -> list[float]:
    """Train ``epochs`` epochs and save; returns seconds of each epoch (evaluation not counted)."""
    import torch

    from recunlearn.data.ml_1m import read_ml_1m
    from recunlearn.foundation.settings import ScoreSettings, TrainingSettings
    from recunlearn.subjects.recbole.bundle import make_bundle
    from recunlearn.subjects.recbole.store import train_subject
    from recunlearn.subjects.recbole.training import fit

    torch.set_num_threads(1)
    interactions = read_ml_1m(Path(archive))
    settings = ScoreSettings(dataset="ml-1m", model=model, training=TrainingSettings(epochs=1))
    train_subject(interactions, settings, folder=folder)
    bundle = make_bundle(interactions, settings)
    times = []
    for _ in range(epochs):
        began = time.perf_counter()
        fit(bundle, epochs=1, patience=None, progress=False, title="")
        times.append(time.perf_counter() - began)
    return times


def scoring(archive: str, folder: Path, share: float, steps: int) -> dict[str, float]:
    """Trace a share of the users in this process."""
    from recunlearn.circuits.tracing import trace, tracer
    from recunlearn.data.ml_1m import read_ml_1m
    from recunlearn.foundation.settings import CircuitSettings
    from recunlearn.subjects.recbole.store import load_subject

    subject = load_subject(folder, read_ml_1m(Path(archive)))
    run = tracer(subject, CircuitSettings(steps=steps))
    entities = np.arange(0, len(subject.entities), round(1 / share))
    run.attribute(next(subject.batches(batch_size=256)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    circuits = trace(run, entities)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n = int(circuits.n_samples.sum())
    return {"seconds": seconds, "interactions": n, "peak_mb": peak / 1024, "before_mb": before / 1024}


def child(arguments: list[str]) -> dict[str, float]:
    out = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    return json.loads(out.stdout.splitlines()[-1])


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("archive")
    options.add_argument("--model", default="NeuMF")
    options.add_argument("--steps", type=int, default=16)
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options.add_argument("--share", type=float, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.share:
        print(json.dumps(scoring(given.archive, given.folder, given.share, given.steps)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        epochs = prepare(given.archive, folder, given.model, given.epochs)
        common = [given.archive, "--folder", str(folder), "--steps", str(given.steps), "--share"]
        tenth, whole = child([*common, "0.1"]), child([*common, "1"])
    epoch = statistics.median(epochs)
    print(
        json.dumps(
            {
                "model": given.model,
                "steps": given.steps,
                "scoring_to_epoch": round(whole["seconds"] / epoch, 3),
                "peak_memory_to_tenth": round(whole["peak_mb"] / tenth["peak_mb"], 3),
                "epoch_seconds": [round(t, 1) for t in epochs],
                "whole": {k: round(v, 1) for k, v in whole.items()},
                "tenth": {k: round(v, 1) for k, v in tenth.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
