"""Kill ``delete-users`` with signal 9 at random moments over a stream of requests, and check what is left.

    python benchmarks/deletion_kills.py --kills 200 --requests 50

Prints one JSON line: kills by the state that the job was in, requests lost, done twice, receipts that do not
verify. Every life is a fork of a process that has the imports behind it, so that kills hit the work. Where a
stream is through before all kills are dealt, the next one begins on a fresh copy of data and model.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

DATASET, MODEL = "shop", "BPR"
TRAINING = {"epochs": 40, "params": {"embedding_size": 8, "learning_rate": 0.03}}
LIVES = (0.05, 1.5)
"""Seconds of a life, as multiples of the time that one request takes."""


def settings():
    """Run whose model is unlearned."""
    from recunlearn.foundation.settings import ScoreSettings

    return ScoreSettings(dataset=DATASET, model=MODEL, training=TRAINING)


def stream(users):
    """Carry out one request a job for every user, in this process."""
    from recunlearn.deletion.job import delete_users
    from recunlearn.deletion.ledger import Ledger
    from recunlearn.deletion.policy import LimitSettings, MeasureSettings, Policy
    from recunlearn.deletion.request import Request
    from recunlearn.deletion.signing import read_keys
    from recunlearn.deletion.stages import Orders
    from recunlearn.foundation.paths import home
    from recunlearn.studies.scoring import Listener

    policy = Policy(
        limits=LimitSettings(share_left=1.5, over_forgotten=9, quality_drop=1, loss_rise=9),
        measure=MeasureSettings(users=20, drift_users=10),
        methods={"SimNPO": {"learning_rate": 0.02, "batch_size": 64, "steps": 40}},
    )
    orders = Orders(policy, "SimNPO", "bound", home(), False, Listener())
    requests = [Request(f"R-{n}", user) for n, user in enumerate(users)]
    with Ledger(Ledger.default_path(), read_keys()) as ledger:
        delete_users(settings(), requests, orders, ledger, batch=1)


def make_home(count):
    """Keys, data of ``2 * count`` users of ml-100k (80 at least) and a trained model, in RECUNLEARN_HOME."""
    import pandas as pd

    from recunlearn.commands.app import run
    from recunlearn.data.catalogue import load_interactions
    from recunlearn.foundation.paths import home
    from recunlearn.studies.keys import keys_for
    from recunlearn.subjects.recbole.store import train_subject

    log = load_interactions("ml-100k")
    rows = (log.user < max(80, 2 * count)) & (log.item < 150)
    home().mkdir(parents=True, exist_ok=True)
    file = home().with_suffix(".csv")
    pairs = {"user_id": log.users[log.user][rows], "item_id": log.items[log.item][rows]}
    pd.DataFrame(pairs).to_csv(file, index=False)
    if run(["data", "add", DATASET, "--file", str(file)]) or run(["keys", "init"]):
        sys.exit("the data set could not be made")
    train_subject(load_interactions(DATASET), settings(), folder=keys_for(settings()).model)


def life(work, *arguments, seconds=None):
    """Run ``work`` in a fork, killed after ``seconds``; returns whether it came to its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            sys.stdout = sys.stderr
            work(*arguments)
            code = 0
        finally:
            os._exit(code)
    end = time.monotonic() + (1e9 if seconds is None else seconds)
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            if status:
                sys.exit(f"a life ended by itself with status {status}")
            return True
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def examine(users):
    """Write what is wrong after a stream into ``verdict.json``."""
    from recunlearn.data.catalogue import load_interactions
    from recunlearn.deletion import receipt
    from recunlearn.deletion.ledger import Ledger
    from recunlearn.deletion.signing import read_keys
    from recunlearn.foundation.errors import RecunlearnError
    from recunlearn.foundation.paths import home

    keys, bad = read_keys(), 0
    with Ledger(Ledger.default_path(), keys) as ledger:
        rows = {row.reference: row for row in ledger.rows(DATASET)}
        events = {name: [e["state"] for e in ledger.events(name)] for name in rows}
        for name in rows:
            try:
                receipt.verify(receipt.receipt_path(home(), name), keys.public, ledger=ledger)
            except RecunlearnError:
                bad += 1
        wanted = {f"R-{n}" for n in range(len(users))}
        verdict = {
            "lost": len(wanted - {n for n, row in rows.items() if row.state == "closed"}),
            "twice": sum(told.count("closed") > 1 or told.count("verified") > 1 for told in events.values()),
            "bad_receipts": bad,
            "ledger_problems": len(ledger.problems()),
            "still_in_data": len(set(users) & set(load_interactions(DATASET).users.tolist())),
            "ids_in_ledger": sum(row.request is not None for row in rows.values()),
        }
    home().with_suffix(".json").write_text(json.dumps(verdict))


def state_of_job(keys):
    """State of the job that a kill hit."""
    from recunlearn.deletion.ledger import Ledger

    with Ledger(Ledger.default_path(), keys) as ledger:
        job = ledger.job_under_way(DATASET)
    return "between jobs" if job is None else job.state


def main():
    """Deal the kills and print the verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    import recunlearn.deletion.job  # noqa: F401  (before the forks)
    from recunlearn.data.catalogue import load_interactions
    from recunlearn.deletion.signing import read_keys

    chance, hit, began = random.Random(asked.seed), Counter(), time.monotonic()
    totals, streams = Counter(), 0
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        os.environ["RECUNLEARN_HOME"] = f"{folder}/first"
        life(make_home, asked.requests)
        users = load_interactions(DATASET).users.tolist()[: asked.requests]
        shutil.copytree(f"{folder}/first", f"{folder}/timed")
        os.environ["RECUNLEARN_HOME"] = f"{folder}/timed"
        start = time.monotonic()
        life(stream, users[:2])
        one = (time.monotonic() - start) / 2
        while sum(hit.values()) < asked.kills:
            streams += 1
            os.environ["RECUNLEARN_HOME"] = f"{folder}/stream-{streams}"
            shutil.copytree(f"{folder}/first", f"{folder}/stream-{streams}")
            while not life(
                stream,
                users,
                seconds=one * chance.uniform(*LIVES) if sum(hit.values()) < asked.kills else None,
            ):
                hit[state_of_job(read_keys())] += 1
            life(examine, users)
            totals.update(json.loads(Path(f"{folder}/stream-{streams}.json").read_text()))
    told = {"kills": sum(hit.values()), "hit": dict(hit), "streams": streams, "requests": asked.requests}
    seconds = {"seconds_a_request": round(one, 2), "seconds": round(time.monotonic() - began)}
    print(json.dumps({**told, **dict(totals), **seconds}))


if __name__ == "__main__":
    main()
