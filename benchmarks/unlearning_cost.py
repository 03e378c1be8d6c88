"""What unlearning costs beside retraining: one JSON line of seconds and ratios for a trained model.

    OMP_NUM_THREADS=1 python benchmarks/unlearning_cost.py FOLDER [--fraction 0.01] [--methods NPO,SimNPO]

FOLDER is a trained model. Seconds are of one process with one thread, everything included: stating the cost,
teachers, looks at the target, merge. ``cpu`` counts the seconds that the process really computed, which other
work on the machine does not change.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from recunlearn.data.catalogue import load_interactions
from recunlearn.foundation.seeds import uniform
from recunlearn.foundation.store import read_json
from recunlearn.subjects.recbole.store import load_subject
from recunlearn.unlearning import Unlearned, make

METHODS = "GradAscent,GradDiff,NPO,SimNPO,UNDIAL,E2URec"


def timed(run: Callable[[], Unlearned]) -> tuple[Unlearned, dict[str, float]]:
    """Result, and wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = run()
    return found, {
        "wall": round(time.perf_counter() - wall, 2),
        "cpu": round(time.process_time() - cpu, 2),
    }


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fraction", type=float, default=0.01)
    parser.add_argument("--methods", default=METHODS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    manifest = read_json(arguments.folder / "manifest.json")
    subject = load_subject(arguments.folder, load_interactions(manifest["data"]), device="cpu")
    known = np.flatnonzero(subject.n_samples() > 1)
    order = np.argsort(uniform(known.astype(np.uint64), 0))
    forget = np.sort(known[order[: round(arguments.fraction * len(subject.entities))]])

    def request(name: str) -> Unlearned:
        method = make(name)
        method.cost(subject, forget)
        return method.unlearn(subject, forget)

    _, retrain = timed(lambda: request("retrain"))
    line = {
        "model": manifest["model"],
        "data": manifest["data"],
        "forgotten": len(forget),
        "retrain": retrain,
    }
    for name in arguments.methods.split(","):
        found, seconds = timed(lambda name=name: request(name))
        share = round(seconds["cpu"] / retrain["cpu"], 4)
        line[name] = {**seconds, "steps": found.steps, "reached": found.reached, "share": share}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
