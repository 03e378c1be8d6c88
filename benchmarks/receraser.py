"""RecEraser against the same model trained whole, and what one deletion costs; one JSON line a case.

    python benchmarks/receraser.py [data:model ...]

Models, shards and results are kept in RECUNLEARN_HOME, so that a killed run goes on.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from recunlearn.data.catalogue import load_interactions
from recunlearn.foundation.paths import home
from recunlearn.foundation.settings import ScoreSettings
from recunlearn.foundation.store import read_json, write_json
from recunlearn.subjects.recbole.evaluation import evaluate
from recunlearn.subjects.recbole.store import load_subject, train_subject
from recunlearn.unlearning import make

CASES = ("ml-100k:BPR", "ml-100k:LightGCN", "ml-1m:BPR")
SHARDS = 10
PROCESSES = 1
"""All costs are those of one process with one thread."""


def subject_of(data, model, folder):
    interactions = load_interactions(data)
    if not (folder / "model").is_dir():
        began = time.perf_counter()
        train_subject(interactions, ScoreSettings(dataset=data, model=model), folder=folder / "model")
        write_json(folder / "seconds.json", time.perf_counter() - began)
    return load_subject(folder / "model", interactions), read_json(folder / "seconds.json")


def quality(subject, model):
    return evaluate(subject.bundle, model, "test")[subject.main_metric]


def measure(data, model, folder):
    subject, whole_seconds = subject_of(data, model, folder)
    typical = int(np.argsort(subject.n_samples(), kind="stable")[len(subject.entities) // 2])
    forget, shards = np.array([typical]), {"shards": SHARDS, "processes": PROCESSES}
    sisa = make("SISA", shards).original(subject, folder=folder / "sisa")
    method, place = make("RecEraser", shards), folder / "receraser"
    began = time.perf_counter()
    original = method.original(subject, folder=place)
    full = time.perf_counter() - began
    if not (folder / "full.json").is_file():
        write_json(folder / "full.json", full)
    full = read_json(folder / "full.json")
    cost, done = method.cost(subject, forget), method.unlearn(subject, forget, folder=place)
    before, after = quality(subject, original), quality(subject, done.model)
    return {
        "case": f"{data}:{model}",
        "metric": subject.main_metric,
        "whole": round(quality(subject, subject.model), 4),
        "receraser": round(before, 4),
        "receraser_to_whole": round(before / quality(subject, subject.model), 3),
        "sisa": round(quality(subject, sisa), 4),
        "after_deletion": round(after, 4),
        "whole_seconds": round(whole_seconds, 1),
        "full_seconds": round(full, 1),
        "shards_touched": done.shards,
        "shards_expected": cost.shards,
        "shard_seconds": round(done.parts["shards"], 1),
        "aggregator_seconds": round(done.parts["combination"], 1),
        "deletion_to_full": round(done.seconds / full, 3),
    }


def main(cases):
    torch.set_num_threads(1)
    for case in cases or CASES:
        data, model = case.split(":")
        folder = Path(home()) / "benchmarks" / "receraser" / case.replace(":", "-")
        result = folder / "result.json"
        if not result.is_file():
            write_json(result, measure(data, model, folder))
        print(json.dumps(read_json(result)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
