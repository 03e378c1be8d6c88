"""Drift over a stream of deletions: what the ledger tells against the distance from models trained anew.

    python benchmarks/deletion_stream.py --requests 16

Deletes users of a scored model one by one with one method and prints one JSON line: at a quarter, half, three
quarters and the end the ledger's drift, the distance (mean Jensen-Shannon distance of all item scores) from
models trained on what is left, and how far two of those are from each other. Works in a copy of the home.
"""

import argparse
import json
import os
import shutil
import tempfile
import time

METHOD = "SimNPO"


def main():
    """Delete, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--model", default="NeuMF")
    parser.add_argument("--requests", type=int, default=16)
    asked = parser.parse_args()
    from recunlearn.foundation.paths import home

    with tempfile.TemporaryDirectory(prefix="stream-") as folder:
        shutil.copytree(home(), f"{folder}/home")
        os.environ["RECUNLEARN_HOME"] = f"{folder}/home"
        told = stream(asked.dataset, asked.model, asked.requests)
    print(json.dumps({"dataset": asked.dataset, "model": asked.model, "method": METHOD, **told}))


def stream(dataset, model, count):
    """Delete every n-th user, one job each, and measure at the quarters."""
    import numpy as np
    import torch

    from recunlearn.data.catalogue import load_interactions
    from recunlearn.deletion.job import delete_users
    from recunlearn.deletion.ledger import Ledger
    from recunlearn.deletion.policy import LimitSettings, PlanSettings, Policy
    from recunlearn.deletion.request import Request
    from recunlearn.deletion.signing import default_folder, make_keys, read_keys
    from recunlearn.deletion.stages import Orders
    from recunlearn.foundation.paths import home
    from recunlearn.foundation.settings import ScoreSettings
    from recunlearn.studies.scoring import Listener

    torch.set_num_threads(1)
    if not default_folder().exists():
        make_keys()
    settings = ScoreSettings(dataset=dataset, model=model)
    everybody = load_interactions(dataset).users
    users = everybody[np.linspace(0, len(everybody) - 1, count).astype(int)].tolist()
    lax = LimitSettings(share_left=2, over_forgotten=9, quality_drop=1, loss_rise=9)
    policy = Policy(limits=lax, plan=PlanSettings(escalation=()))
    orders = Orders(policy, METHOD, "bound", home(), False, Listener())
    marks, seconds, methods = [], [], {}
    with Ledger(Ledger.default_path(), read_keys()) as ledger:
        for number, user in enumerate(users, 1):
            began = time.process_time()
            (job,) = delete_users(settings, [Request(f"R-{number}", user)], orders, ledger).jobs
            seconds.append(time.process_time() - began)
            used = job.facts["accepted"]["method"]
            methods[used] = methods.get(used, 0) + 1
            if number in {-(-count * part // 4) for part in (1, 2, 3, 4)}:
                marks.append({"requests": number, **job.facts["drift"], **measured(job, settings)})
    return {"methods": methods, "cpu_seconds_a_request": round(float(np.median(seconds)), 2), "marks": marks}


def measured(job, settings):
    """Distances of a job's model from two models trained on the data as they are now, and their figures."""
    import numpy as np

    from recunlearn.data.catalogue import load_interactions
    from recunlearn.evaluation.distances import jensen_shannon, log_probabilities
    from recunlearn.foundation.paths import home
    from recunlearn.subjects.recbole.evaluation import per_user
    from recunlearn.subjects.recbole.store import load_subject

    subject = load_subject(home() / job.facts["after"]["folder"], load_interactions(settings.dataset))
    anew = [subject.retrain(np.zeros(0, dtype=np.int64), seed=seed) for seed in (1, 2)]
    rows = np.flatnonzero(subject.n_samples() > 0)[::9]
    scores = [log_probabilities(subject.item_scores(m, rows).numpy()) for m in (subject.model, *anew)]

    def apart(a, b):
        return round(float(np.sqrt(jensen_shannon(scores[a], scores[b])).mean()), 4)

    main = subject.main_metric
    figures = [float(np.nanmean(per_user(subject.bundle, m)[main])) for m in (subject.model, *anew)]
    return {
        "distance_to_retrained": round((apart(0, 1) + apart(0, 2)) / 2, 4),
        "retrained_apart": apart(1, 2),
        main: round(figures[0], 4),
        f"{main}_retrained": round(sum(figures[1:]) / 2, 4),
    }


if __name__ == "__main__":
    main()
