"""``purge`` and ``purge --scan`` on the command line."""

import json
import os

import pytest

CANARY = "canary-7f3a"
LOG = f"""user_id,item_id,timestamp
ann,a,1
{CANARY},a,2
{CANARY},b,3
{CANARY},c,4
bob,b,5
405,c,6
"""


@pytest.fixture
def shop(home, tmp_path, run_cli):
    """A data set with a canary, keys, and a list of who must go."""
    (tmp_path / "log.csv").write_text(LOG)
    (tmp_path / "users.csv").write_text(f"user_id\n{CANARY}\n")
    assert run_cli("data", "add", "shop", "--file", tmp_path / "log.csv").code == 0
    assert run_cli("keys", "init").code == 0
    return tmp_path


def test_a_purge_and_its_proof(shop, home, run_cli):
    users = ["--users", shop / "users.csv"]
    before = run_cli("purge", "--scan", home, *users, "--rows", shop / "log.csv", "--format", "json")
    assert before.code == 1
    kinds = {f["kind"] for f in json.loads(before.out)["findings"]}
    assert kinds == {"id", "rows"}
    done = run_cli("purge", *users, "--dataset", "shop", "--format", "json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert (report["rewritten"], report["removed"]) == (["data/shop"], [])
    assert any(str(shop / "log.csv") in place for place in report["outside"])
    assert CANARY not in done.out + done.err
    after = run_cli("purge", "--scan", home, *users, "--rows", shop / "log.csv")
    assert after.code == 0, after.out
    assert "0 files hold one" in after.err
    again = run_cli("purge", *users, "--dataset", "shop")
    assert again.code == 0
    assert "data/shop" in again.out


def test_an_old_log_does_not_bring_the_deleted_back(shop, run_cli):
    add = ("data", "add", "shop", "--file", shop / "log.csv", "--force")
    assert run_cli("purge", "--users", shop / "users.csv", "--dataset", "shop").code == 0
    refused = run_cli(*add)
    assert refused.code == 1
    assert "1 users of the log were deleted from 'shop' before" in refused.err
    from recunlearn.data.catalogue import load_interactions

    assert run_cli(*add, "--deleted", "drop").code == 0
    assert CANARY not in load_interactions("shop").users
    assert run_cli(*add, "--deleted", "keep").code == 0
    assert CANARY in load_interactions("shop").users


def test_ids_are_shown_on_request_only(shop, run_cli):
    (shop / "short.csv").write_text(f"user_id\n{CANARY}\n405\n")
    done = run_cli("purge", "--scan", shop / "log.csv", "--users", shop / "short.csv")
    assert done.code == 1
    assert CANARY not in done.out + done.err
    assert "1 ids are short" in done.err
    shown = run_cli("purge", "--scan", shop / "log.csv", "--users", shop / "short.csv", "--show-ids")
    assert CANARY in shown.out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--dataset", "shpo"], "Unknown data set 'shpo'"),
        ([], "A purge needs --dataset"),
        (["--dataset", "shop", "--show-ids"], "neither --rows nor --show-ids"),
        (["--scan", "nowhere"], "does not exist"),
        (["--scan", ".", "--keep", "x"], "--keep goes with a purge"),
    ],
)
def test_usage(shop, run_cli, options, sentence):
    done = run_cli("purge", "--users", shop / "users.csv", *options)
    assert done.code == 2
    assert sentence in done.err


def test_a_model_to_keep_must_be_one(shop, run_cli):
    done = run_cli("purge", "--users", shop / "users.csv", "--dataset", "shop", "--keep", shop / "nowhere")
    assert done.code == 1
    assert "nowhere is no trained model" in done.err
    from recunlearn.data.catalogue import load_interactions

    assert CANARY in load_interactions("shop").users


def test_an_unknown_user_and_missing_keys(shop, home, run_cli):
    (shop / "users.csv").write_text("user_id\nnobody\n")
    done = run_cli("purge", "--users", shop / "users.csv", "--dataset", "shop")
    assert (done.code, done.out) == (2, "")
    assert "are not in the data set 'shop'" in done.err
    done = run_cli("purge", "--users", shop / "users.csv", "--dataset", "shop", "--keys", shop / "none")
    assert done.code == 1
    assert "keys init" in done.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_home(shop, home, run_cli):
    (home / "data").chmod(0o500)
    done = run_cli("purge", "--users", shop / "users.csv", "--dataset", "shop")
    (home / "data").chmod(0o700)
    assert done.code == 1
    assert "cannot be written" in done.err


def test_a_full_disk_is_said(shop, home, run_cli, monkeypatch):
    import errno

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("recunlearn.data.tombstones.write_data_set", full)
    done = run_cli("purge", "--users", shop / "users.csv", "--dataset", "shop")
    assert done.code == 1
    assert "disk is full" in done.err
