"""``delete-users``, ``keys``, ``verify`` and ``requests`` from the command line."""

import json
import os
import shutil
from types import SimpleNamespace

import pandas as pd
import pytest

from recunlearn.data.catalogue import data_hash, load_interactions

RUN = """
dataset = "small"
model = "BPR"
[training]
epochs = 40
params = {embedding_size = 8, learning_rate = 0.03}
"""
POLICY = """
[limits]
share_left = 1.5
over_forgotten = 9
quality_drop = 1
loss_rise = 9
[measure]
users = 20
drift_users = 10
[methods.SimNPO]
learning_rate = 0.02
batch_size = 64
"""


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Home with a small log, its model and keys."""
    folder = tmp_path_factory.mktemp("delete-users")
    log = load_interactions("ml-100k")
    rows = (log.user < 40) & (log.item < 120)
    frame = pd.DataFrame({"user_id": log.users[log.user], "item_id": log.items[log.item]})[rows]
    frame.to_csv(folder / "small.csv", index=False)
    (folder / "run.toml").write_text(RUN)
    (folder / "policy.toml").write_text(POLICY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECUNLEARN_HOME", str(folder / "home"))
        from recunlearn.commands.app import run
        from recunlearn.foundation.settings import ScoreSettings, make_settings, read_toml
        from recunlearn.studies.keys import keys_for
        from recunlearn.subjects.recbole.store import train_subject

        assert run(["data", "add", "small", "--file", str(folder / "small.csv")]) == 0
        assert run(["keys", "init"]) == 0
        settings = make_settings(ScoreSettings, read_toml(folder / "run.toml"), "run.toml")
        train_subject(load_interactions("small"), settings, folder=keys_for(settings).model)
    return SimpleNamespace(folder=folder, users=list(dict.fromkeys(frame["user_id"])))


@pytest.fixture
def delete(trained, home, run_cli, tmp_path):
    """Run ``delete-users`` in a home of its own."""
    shutil.copytree(trained.folder / "home", home)

    def call(*arguments, requests=None):
        if requests is not None:
            (tmp_path / "requests.csv").write_text(requests)
            arguments = ("--requests", tmp_path / "requests.csv", *arguments)
        options = ("--config", trained.folder / "run.toml", "--policy", trained.folder / "policy.toml")
        return run_cli("delete-users", *arguments, *options, "--method", "SimNPO", "--no-pth")

    return call


def test_from_a_file_to_receipts(delete, trained, run_cli, home, tmp_path):
    first, second = trained.users[:2]
    text = f"user_id,reference,requested_at\n{first},R-1,2026-03-01\n{second},R-2,\n"
    plan = delete("--dry-run", requests=text)
    assert plan.code == 0, plan.err
    assert "SimNPO, then retrain: named on the command line" in plan.out
    assert not (home / "receipts").exists()
    done = delete("--out", tmp_path / "out", "--format", "json", requests=text)
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["new"], told["known"], told["jobs"][0]["requests"]) == (2, 0, 2)
    written = done.out + "".join(p.read_text() for p in (tmp_path / "out" / "receipts").iterdir())
    assert f'"{first}"' not in written
    checked = run_cli("verify", tmp_path / "out/receipts/R-1.json", "--checkpoint", told["jobs"][0]["model"])
    assert checked.code == 0, checked.err
    assert checked.out.count("\n") == 1
    assert "signature valid" in checked.out
    assert "model the one that was made" in checked.out
    auditor = run_cli("verify", tmp_path / "out/receipts/R-2.json", "--public", home / "keys" / "public.pem")
    assert "chain intact (follows R-1.json)" in auditor.out
    again = delete(requests=text)
    assert again.code == 0
    assert "every request is closed" in again.out
    listed = run_cli("requests", "list", "--format", "json")
    assert [r["state"] for r in json.loads(listed.out)] == ["closed", "closed"]
    shown = run_cli("requests", "show", "R-1", "--ids")
    assert "intact" in shown.out
    exported = run_cli("requests", "export", "--out", tmp_path / "requests-out.csv")
    assert exported.code == 0
    assert list(pd.read_csv(tmp_path / "requests-out.csv")["reference"]) == ["R-1", "R-2"]


def test_what_is_served_afterwards_is_the_last_job_s_model(delete, trained, run_cli):
    gone, there = trained.users[:2]
    assert delete(gone).code == 0
    options = ("--config", trained.folder / "run.toml", "-k", "3", "--format", "json")
    left = run_cli("recommend", "--user", there, *options)
    assert left.code == 0, left.err
    assert json.loads(left.out)["source"] == "model"
    deleted = run_cli("recommend", "--user", gone, *options)
    assert json.loads(deleted.out)["source"] == "popular"
    assert "was deleted" in deleted.err
    refused = run_cli("recommend", "--user", gone, "--strangers", "error", *options)
    assert refused.code != 0
    assert "Traceback" not in refused.err


def test_a_refused_request_has_an_exit_code_each_time(delete, trained):
    assert delete(requests=f"user_id,reference\n{trained.users[0]},R-1\n").code == 0
    for _ in range(2):
        refused = delete(
            "--format",
            "json",
            requests=f"user_id,reference\n{trained.users[0]},R-1\n{trained.users[0]},R-2\n",
        )
        assert refused.code == 1
        assert json.loads(refused.out)["refused"] == {"R-2": "deleted already"}


def test_a_failed_request_is_not_called_closed(delete, trained, run_cli, tmp_path):
    strict = '[plan]\nescalation = ["SimNPO"]\n[limits]\nshare_left = 0\nover_forgotten = 0\n'
    lenient = (trained.folder / "policy.toml").read_text()
    text = f"user_id,reference\n{trained.users[0]},R-1\n"
    try:
        (trained.folder / "policy.toml").write_text(strict + lenient[lenient.index("[measure]") :])
        assert delete(requests=text).code == 1
    finally:
        (trained.folder / "policy.toml").write_text(lenient)
    options = (
        "--config",
        trained.folder / "run.toml",
        "--policy",
        trained.folder / "policy.toml",
        "--no-pth",
    )
    asked = ("delete-users", "--requests", tmp_path / "requests.csv", *options, "--method", "SimNPO")
    again = run_cli(*asked)
    assert again.code == 1
    assert "every request is closed" not in again.out
    assert "requests retry R-1" in " ".join(again.out.split())
    assert run_cli("requests", "retry", "R-1").code == 0
    assert run_cli(*asked).code == 0


def test_a_tampered_receipt_has_an_exit_code(delete, trained, run_cli, home):
    assert delete(trained.users[0]).code == 0
    (file,) = (home / "receipts").glob("*.json")
    file.write_text(file.read_text().replace('"seed": 0', '"seed": 1'))
    found = run_cli("verify", file)
    assert found.code == 3
    assert found.err.startswith("error: TAMPERED")


def test_a_receipt_is_verified_beside_a_ledger_that_cannot_be_written(
    delete, trained, run_cli, home, monkeypatch
):
    assert delete(trained.users[0]).code == 0
    (file,) = (home / "receipts").glob("*.json")
    ledger = home / "ledger" / "ledger.sqlite"
    before = ledger.read_bytes(), sorted(p.name for p in ledger.parent.iterdir())

    def refuse(*_):
        raise AssertionError("opened for writing")

    monkeypatch.setattr("recunlearn.deletion.database.connect", refuse)
    found = run_cli("verify", file)
    assert (found.code, "chain intact" in found.out) == (0, True), found.err
    assert run_cli("requests", "list").code == 0
    assert run_cli("requests", "show", file.stem).code == 0
    assert (ledger.read_bytes(), sorted(p.name for p in ledger.parent.iterdir())) == before


def wrong(trained):
    user = trained.users[0]
    return {
        ("nobody",): (2, "1 request names nothing that the data set 'small' has: 'nobody'"),
        ("=cmd()",): (2, "looks like a formula"),
        (user, "--batch", "0"): (2, "--batch"),
        tuple(trained.users): (1, "No interaction of 'small' would be left"),
        ("--verify", "hope"): (2, "'hope' is not one of"),
    }


@pytest.mark.parametrize("number", range(5))
def test_mistakes_get_one_sentence_and_change_nothing(delete, trained, home, number):
    arguments, (code, sentence) = list(wrong(trained).items())[number]
    before = data_hash("small")
    done = delete(*arguments)
    assert (done.code, done.err.count("error:")) == (code, 1)
    assert sentence in done.err
    assert data_hash("small") == before
    ledger = home / "ledger" / "ledger.sqlite"
    assert not ledger.is_file() or b"nobody" not in ledger.read_bytes()


def test_unknown_users_can_be_skipped(delete, trained):
    done = delete("--on-missing", "skip", requests=f"user_id\nnobody\n{trained.users[0]}\n")
    assert done.code == 0, done.err
    assert "skipped: 1 requests" in done.err
    assert trained.users[0] not in load_interactions("small").users


def test_without_keys_the_sentence_says_what_to_run(delete, trained, home):
    shutil.rmtree(home / "keys")
    done = delete(trained.users[0])
    assert done.code == 1
    assert "Make keys once with: keys init" in done.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_forbidden_folder_is_refused_before_anything_happens(delete, trained, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    done = delete(trained.users[0], "--out", tmp_path / "locked" / "out")
    assert done.code == 1
    assert "cannot be written" in done.err


def test_a_full_disk_leaves_a_job_that_goes_on(delete, trained, home, monkeypatch):
    import errno

    from recunlearn.foundation import store

    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = data_hash("small")
    with monkeypatch.context() as patch:
        patch.setattr(store, "_sync", full)
        done = delete(trained.users[0])
    assert done.code == 1
    assert "The disk is full" in done.err
    assert data_hash("small") == before
    assert delete().code == 0
    assert len(list((home / "receipts").glob("*.json"))) == 1


def test_a_receipt_is_checked_with_keys_that_lie_elsewhere(delete, trained, run_cli, home, tmp_path):
    assert delete(trained.users[0]).code == 0
    (receipt,) = (home / "receipts").glob("*.json")
    shutil.move(home / "keys", tmp_path / "keys")
    shutil.move(home / "ledger", tmp_path / "ledger")  # an auditor has none
    assert run_cli("verify", receipt).code == 1
    assert run_cli("verify", receipt, "--keys", tmp_path / "keys").code == 0


def test_a_plan_refuses_what_no_checkpoint_can_hold(delete, trained, run_cli, home):
    done = run_cli("delete-users", trained.users[0], "--dataset", "small", "--method", "SISA", "--dry-run")
    assert done.code == 2
    assert "SISA forgets from several models at once" in done.err
    assert not (home / "ledger").exists()


def test_keys_are_made_once(run_cli, home):
    assert run_cli("keys", "init").code == 0
    again = run_cli("keys", "init")
    assert again.code == 2
    assert "exists already" in again.err


def test_requests_without_a_ledger(run_cli):
    done = run_cli("requests", "list")
    assert done.code == 2
    assert "There is no ledger" in done.err
    done = run_cli("requests", "list", "--state", "clsed")
    assert "Did you mean closed?" in done.err
