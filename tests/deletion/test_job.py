"""Jobs from requests to receipts on a small model, and what a kill leaves."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recunlearn.data.catalogue import data_hash, load_interactions
from recunlearn.deletion import receipt, states
from recunlearn.deletion.intake import check_known, renewed, unknown_sentence
from recunlearn.deletion.job import delete_users, dry_run
from recunlearn.deletion.ledger import Ledger
from recunlearn.deletion.policy import LimitSettings, MeasureSettings, Policy
from recunlearn.deletion.request import Request
from recunlearn.deletion.stages import Orders
from recunlearn.foundation.errors import RecunlearnError, UsageError
from recunlearn.foundation.store import file_hash
from recunlearn.studies.keys import keys_for
from recunlearn.studies.scoring import Listener

LAX = LimitSettings(share_left=1.5, over_forgotten=9, quality_drop=1, loss_rise=9)
QUICK = {"SimNPO": {"learning_rate": 0.02, "batch_size": 64, "steps": 60}}


def orders(shop, *, method="SimNPO", limits=LAX, said=None, **options):
    policy = Policy(limits=limits, methods=QUICK, measure=MeasureSettings(users=20, drift_users=10))
    listener = Listener(say=(said if said is not None else []).append)
    verify, out = options.pop("verify", "bound"), options.pop("out", shop.home)
    return Orders(policy, method, verify, out, False, listener, **options)


@pytest.fixture
def run(shop):
    """Carry out requests; returns what was done."""

    def call(*requests, batch=None, checkpoint=None, **options):
        with Ledger(Ledger.default_path(), shop.keys) as ledger:
            done = delete_users(
                shop.settings, requests, orders(shop, **options), ledger, batch=batch, checkpoint=checkpoint
            )
            assert ledger.problems() == []
            return done

    return call


def receipts_hold(shop, checkpoint=None):
    """Number of receipts, after each was verified."""
    with Ledger(Ledger.default_path(), shop.keys) as ledger:
        files = sorted((shop.home / "receipts").glob("*.json"))
        for file in files:
            receipt.verify(file, shop.keys.public, ledger=ledger, checkpoint=checkpoint)
        return len(files)


def test_one_request_from_ledger_to_receipt(shop, run):
    user, before = shop.users[0], data_hash("shop")
    done = run(Request("R-1", user))
    (job,) = done.jobs
    folder = shop.home / job.facts["after"]["folder"]
    assert user not in load_interactions("shop").users
    assert job.facts["before"]["data_hash"] == before != data_hash("shop") == job.facts["after"]["data_hash"]
    assert receipts_hold(shop, folder) == 1
    told = json.loads((shop.home / "receipts" / "R-1.json").read_text())
    assert told["erased"] == shop.keys.of_user("shop")(user)
    figures = told["figures"]
    # (bound - after) / (bound - before)
    bound, start, end = (figures[f"loss/forgotten/{k}"] for k in ("bound", "before", "after"))
    assert figures["share_left"] == pytest.approx((bound - end) / (bound - start))
    assert end > start
    assert told["interactions"]["interactions"] == int((shop.frame["user_id"] == user).sum())
    # the model before is gone, the new one can be loaded and knows the others
    assert not keys_for(shop.settings).model.exists()
    from recunlearn.subjects.recbole.store import load_subject

    subject = load_subject(folder, load_interactions("shop"))
    assert user not in subject.entities
    assert len(subject.entities) == 50
    assert not list((shop.home / "ledger" / "jobs").glob("shop/*"))


def test_the_losses_of_a_receipt_are_those_of_the_models(shop, run):
    from recunlearn.studies.losses import entity_losses, samples
    from recunlearn.subjects.recbole.store import load_subject

    before = load_subject(keys_for(shop.settings).model, load_interactions("shop"))
    rows = np.flatnonzero(before.entities == shop.users[0])
    batches = samples(before, rows, 0)
    (job,) = run(Request("R-1", shop.users[0])).jobs
    figures = job.facts["accepted"]["figures"]
    assert figures["loss/forgotten/before"] == pytest.approx(
        entity_losses(before, before.model, batches, rows).mean(), abs=1e-6
    )
    stranger = before.population_rows(before.model, rows)
    assert figures["loss/forgotten/bound"] == pytest.approx(
        entity_losses(before, stranger, batches, rows).mean(), abs=1e-6
    )


def test_the_same_request_again_does_nothing(shop, run):
    run(Request("R-1", shop.users[0]))
    hashes = data_hash("shop"), (shop.home / "receipts" / "R-1.json").read_bytes()
    again = run(Request("R-1", shop.users[0]))
    assert (again.new, again.known, again.jobs, again.receipts) == (0, 1, [], [])
    assert hashes == (data_hash("shop"), (shop.home / "receipts" / "R-1.json").read_bytes())


def test_a_user_in_two_requests_is_deleted_once(shop, run):
    done = run(Request("R-1", shop.users[0]), Request("R-2", shop.users[0]), Request("R-3", shop.users[1]))
    assert [job.facts["requests"] for job in done.jobs] == [3]
    assert done.jobs[0].facts["plan"]["users"] == 2
    assert receipts_hold(shop) == 3
    late = run(Request("R-4", shop.users[0]))
    assert late.jobs == []
    assert late.notes == ["R-4 was refused: deleted already."]
    assert late.refused == {"R-4": "deleted already"}
    again = run(Request("R-4", shop.users[0]), Request("R-1", shop.users[0]))
    assert (again.refused, again.known) == (late.refused, 2)
    with Ledger(Ledger.default_path(), shop.keys) as ledger:
        assert (ledger.row("R-4").state, ledger.row("R-4").request) == ("refused", None)


def test_a_stream_in_batches_adds_up_its_drift(shop, run):
    done = run(*(Request(f"R-{n}", u) for n, u in enumerate(shop.users[:5])), batch=2)
    assert [job.facts["requests"] for job in done.jobs] == [2, 2, 1]
    drift = [job.facts["drift"]["since_training"] for job in done.jobs]
    steps = [job.facts["accepted"]["figures"]["drift"] for job in done.jobs]
    assert drift == pytest.approx(list(np.cumsum(steps)))
    gone = shop.frame["user_id"].isin(shop.users[:2]).sum() / len(shop.frame)
    assert done.jobs[0].facts["drift"]["deleted"] == pytest.approx(gone)
    assert receipts_hold(shop) == 5
    models = [p.name for p in (shop.home / "models").iterdir() if p.is_dir()]
    assert models == ["shop-BPR-job-00003"]
    from recunlearn.report.deletion_table import stream

    assert [s["jobs"] for s in stream(done.jobs)] == [1, 2, 3]


def test_what_is_not_accepted_is_escalated_to_retraining(shop, run):
    said = []
    strict = LimitSettings(share_left=0, over_forgotten=0)
    (job,) = run(Request("R-1", shop.users[0]), limits=strict, said=said).jobs
    assert [a["method"] for a in job.facts["refused"]] == ["SimNPO"]
    assert job.facts["accepted"]["method"] == "retrain"
    assert job.facts["drift"]["since_training"] == 0
    assert any("SimNPO is not accepted: " in s for s in said)
    with Ledger(Ledger.default_path(), shop.keys) as ledger:
        told = [e["state"] for e in ledger.events("R-1")]
    assert told[2:6] == ["unlearned", "escalated", "unlearned", "verified"]
    assert receipts_hold(shop) == 1


def test_without_an_accepted_method_the_job_fails_and_can_be_retried(shop, run):
    from recunlearn.deletion import policy as p

    strict = LimitSettings(share_left=0, over_forgotten=0)
    plan = p.PlanSettings(escalation=("SimNPO",))
    made = Policy(limits=strict, methods=QUICK, plan=plan, measure=MeasureSettings(users=20, drift_users=10))
    before = data_hash("shop")
    with Ledger(Ledger.default_path(), shop.keys) as ledger:
        asked = Orders(made, "SimNPO", "bound", shop.home, False, Listener())
        done = delete_users(shop.settings, [Request("R-1", shop.users[0])], asked, ledger)
        assert "no method kept to the policy's limits (SimNPO)" in done.failed["job-00001"]
        assert ledger.row("R-1").state == states.FAILED
        assert data_hash("shop") == before
        ledger.retry("R-1")
    assert run().jobs[0].name == "job-00002"
    assert receipts_hold(shop) == 1


def test_retraining_can_be_the_measure(shop, run):
    (job,) = run(Request("R-1", shop.users[-1]), verify="retrain").jobs
    figures = job.facts["accepted"]["figures"]
    assert job.facts["accepted"]["verified"] == "retrain"
    assert "retrained/loss/retrained" in figures
    if "retrained/set_share_left" in figures:
        assert figures["share_left"] == figures["retrained/set_share_left"]


def test_parts_are_erased_by_retraining(shop, run):
    frame, user = shop.frame, shop.users[-1]
    item = str(frame["item_id"][frame["user_id"] == user].iloc[0])
    times = frame["time"][frame["user_id"] == shop.users[-2]].sort_values()
    until = float(times.iloc[3])
    popular = str(frame["item_id"].value_counts().index[0])
    done = run(
        Request("R-1", user, item),
        Request("R-2", shop.users[-2], until=until),
        Request("R-3", None, popular),
        Request("R-4", shop.users[0]),
    )
    assert done.jobs[0].facts["accepted"]["method"] == "retrain"
    assert done.jobs[0].facts["plan"]["reason"].startswith("single interactions have no row")
    left = load_interactions("shop")
    pairs = set(zip(left.users[left.user].tolist(), left.items[left.item].tolist(), strict=True))
    assert (user, item) not in pairs
    assert not any(i == popular for _, i in pairs)
    assert not any(u == shop.users[0] for u, _ in pairs)
    mine = left.users[left.user] == shop.users[-2]
    assert left.time[mine].min() > until
    gone = (
        ((frame["user_id"] == user) & (frame["item_id"] == item))
        | ((frame["user_id"] == shop.users[-2]) & (frame["time"] <= until))
        | (frame["item_id"] == popular)
        | (frame["user_id"] == shop.users[0])
    )
    assert len(left) == int((~gone).sum())
    assert done.jobs[0].facts["plan"]["interactions"] == int(gone.sum())
    assert receipts_hold(shop, shop.home / done.jobs[0].facts["after"]["folder"]) == 4


def test_a_plan_changes_nothing(shop):
    before = data_hash("shop"), sorted(p.name for p in (shop.home / "models").iterdir())
    with Ledger(Ledger.default_path(), shop.keys) as ledger:
        plan = dry_run(shop.settings, [Request("R-1", shop.users[0])], orders(shop), ledger)
        assert ledger.rows() == []
    assert plan.methods == ("SimNPO", "retrain")
    assert plan.seconds > 0
    assert plan.retrain_seconds > 0
    assert "SimNPO forgets 1 of 50 users" in plan.cost
    assert before == (data_hash("shop"), sorted(p.name for p in (shop.home / "models").iterdir()))


def test_a_model_that_was_replaced_under_our_feet_fails_the_job(shop, run, monkeypatch):
    from recunlearn.deletion import job as module

    def die(*_args, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "unlearn", die)
        with pytest.raises(KeyboardInterrupt):
            run(Request("R-1", shop.users[0]))
    model = keys_for(shop.settings).model
    manifest = json.loads((model / "manifest.json").read_text())
    weights = model / "weights.safetensors"
    weights.write_bytes(weights.read_bytes() + b" ")
    (model / "manifest.json").write_text(json.dumps({**manifest, "weights_hash": file_hash(weights)}))
    done = run()
    assert "it was replaced" in done.failed["job-00001"]
    assert shop.users[0] in load_interactions("shop").users


def test_without_a_model_the_sentence_says_what_to_run(shop, run):
    shutil.rmtree(keys_for(shop.settings).model)
    with pytest.raises(UsageError, match=r"There is no trained BPR of 'shop'.*score-users"):
        run(Request("R-1", shop.users[0]))


def test_requests_are_told_apart_by_what_the_data_have(shop):
    asked = [Request("a", shop.users[0]), Request("b", "nobody"), Request("c", shop.users[0], "no item")]
    with Ledger(Ledger.default_path(), shop.keys) as ledger:
        fine, gone, unknown = check_known("shop", asked, ledger)
    assert ([r.reference for r in fine], gone, [r.reference for r in unknown]) == (["a"], [], ["b", "c"])


def test_seconds_are_refused_where_the_data_count_milliseconds(shop, monkeypatch):
    from recunlearn.deletion import intake

    log = load_interactions("shop")
    monkeypatch.setattr(intake, "load_interactions", lambda _: replace(log, time=log.time * 1000))
    with Ledger(Ledger.default_path(), shop.keys) as ledger:
        # 1e9 s lies before every row in milliseconds: all of the user's history would go.
        with pytest.raises(UsageError, match="is in seconds, but the times of 'shop' are not"):
            check_known("shop", [Request("a", shop.users[0], since=1e9)], ledger)
        fine, _, _ = check_known("shop", [Request("a", shop.users[0], since=1e11)], ledger)
    assert [r.reference for r in fine] == ["a"]


def test_a_job_goes_on_to_another_folder_where_its_own_is_gone(shop, run, tmp_path):
    (tmp_path / "gone").write_text("a file where the folder was")
    with pytest.raises(RecunlearnError, match=r"cannot be made|cannot be written"):
        run(Request("R-1", shop.users[0]), out=tmp_path / "gone" / "x")
    with pytest.raises(RecunlearnError, match=r"cannot be made|cannot be written"):
        run()  # not named: it waits for its folder
    done = run(out=tmp_path / "new", moved=True)
    assert done.receipts == [tmp_path / "new" / "receipts" / "R-1.json"]
    assert done.receipts[0].is_file()


def test_a_copy_of_the_home_leaves_the_original_alone(shop, run, monkeypatch):
    run(Request("R-1", shop.users[0]))
    copied = shop.home.with_name("copied")
    shutil.copytree(shop.home, copied)
    before = sorted(p.relative_to(shop.home) for p in shop.home.rglob("*") if p.is_file())
    monkeypatch.setenv("RECUNLEARN_HOME", str(copied))
    done = run(Request("R-2", shop.users[1]), out=copied)
    assert (copied / done.jobs[0].facts["after"]["folder"] / "manifest.json").is_file()
    assert not (copied / "models" / "shop-BPR-job-00001").exists()
    assert sorted(p.relative_to(shop.home) for p in shop.home.rglob("*") if p.is_file()) == before


def test_a_used_reference_is_called_so(shop, run):
    run(Request("R-1", shop.users[0]))
    with Ledger(Ledger.default_path(), shop.keys) as ledger:
        other = [Request("R-1", shop.users[1])]
        assert renewed("shop", other, ledger) == other
        with pytest.raises(UsageError, match="in the ledger already, for another deletion"):
            ledger.receive("shop", other)
    sentence = unknown_sentence([Request("R-2", shop.users[1], "no item")], "shop")
    assert "The user is there, but not with this." in sentence


def test_kills_lose_no_request_and_do_none_twice(home):
    """A short form of what docs/results/deletion.md measures."""
    script = Path(__file__).parents[2] / "benchmarks" / "deletion_kills.py"
    done = subprocess.run(
        [sys.executable, str(script), "--kills", "6", "--requests", "3"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["kills"] == 6
    wrong = ("lost", "twice", "bad_receipts", "ledger_problems", "still_in_data", "ids_in_ledger")
    assert {name: told[name] for name in wrong} == dict.fromkeys(wrong, 0)
