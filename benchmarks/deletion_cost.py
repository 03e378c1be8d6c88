"""One deletion request from ledger to receipt, against training anew.

    python benchmarks/deletion_cost.py --dataset ml-1m --user 101

Prints one JSON line: seconds (wall and CPU) of the whole request (loading, plan, unlearning, verification,
erasure, purge, receipt, its verification) and of a retraining alone, and their ratio. Both run in one
process, one after the other, so that imports count for neither. Works in a copy of the home.
"""

import argparse
import json
import os
import shutil
import tempfile
import time

import torch


def main():
    """Time both and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="ml-1m")
    parser.add_argument("--model", default="NeuMF")
    parser.add_argument("--user", default="101")
    parser.add_argument("--method", default="SimNPO")
    parser.add_argument("--pth", action="store_true", help="with the export for RecBole")
    asked = parser.parse_args()
    from recunlearn.foundation.paths import home

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="cost-") as folder:
        shutil.copytree(home(), f"{folder}/home")
        os.environ["RECUNLEARN_HOME"] = f"{folder}/home"
        wall, cpu = retraining(asked)
        done = time.perf_counter(), time.process_time()
        job = deletion(asked)
        took = time.perf_counter() - done[0], time.process_time() - done[1]
    told = {
        "dataset": asked.dataset,
        "model": asked.model,
        "method": job.facts["accepted"]["method"],
        "refused": [a["method"] for a in job.facts["refused"]],
        "pth": asked.pth,
        "share_left": round(job.facts["accepted"]["figures"]["share_left"], 3),
        "quality_drop": round(job.facts["accepted"]["figures"]["quality_drop"], 4),
        "deletion_seconds": round(took[0], 1),
        "deletion_cpu": round(took[1], 1),
        "retraining_seconds": round(wall, 1),
        "retraining_cpu": round(cpu, 1),
        "ratio": round(took[0] / wall, 4),
        "ratio_cpu": round(took[1] / cpu, 4),
    }
    print(json.dumps(told))


def retraining(asked):
    """Wall and CPU seconds of training without one user."""
    import numpy as np

    from recunlearn.data.catalogue import load_interactions
    from recunlearn.foundation.settings import ScoreSettings
    from recunlearn.studies.keys import keys_for
    from recunlearn.subjects.recbole.store import load_subject

    keys = keys_for(ScoreSettings(dataset=asked.dataset, model=asked.model))
    subject = load_subject(keys.model, load_interactions(asked.dataset))
    began = time.perf_counter(), time.process_time()
    subject.retrain(np.flatnonzero(subject.entities == asked.user), seed=0)
    return time.perf_counter() - began[0], time.process_time() - began[1]


def deletion(asked):
    """Job that one request made, its receipt verified."""
    from recunlearn.deletion import receipt
    from recunlearn.deletion.job import delete_users
    from recunlearn.deletion.ledger import Ledger
    from recunlearn.deletion.policy import Policy
    from recunlearn.deletion.request import Request
    from recunlearn.deletion.signing import default_folder, make_keys, read_keys
    from recunlearn.deletion.stages import Orders
    from recunlearn.foundation.paths import home
    from recunlearn.foundation.settings import ScoreSettings
    from recunlearn.report.receipt_html import html
    from recunlearn.studies.scoring import Listener

    if not default_folder().exists():
        make_keys()
    settings = ScoreSettings(dataset=asked.dataset, model=asked.model)
    orders = Orders(Policy(), asked.method, "bound", home(), asked.pth, Listener(), draw=html)
    keys = read_keys()
    with Ledger(Ledger.default_path(), keys) as ledger:
        done = delete_users(settings, [Request("R-1", asked.user)], orders, ledger)
        folder = home() / done.jobs[0].facts["after"]["folder"]
        receipt.verify(done.receipts[0], keys.public, ledger=ledger, checkpoint=folder)
    return done.jobs[0]


if __name__ == "__main__":
    main()
