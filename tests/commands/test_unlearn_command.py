"""``unlearn`` end to end on a small log, and what it refuses."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from recunlearn.data.catalogue import load_interactions

RUN = """
dataset = "small"
model = "BPR"
[training]
epochs = 15
params = {embedding_size = 8, learning_rate = 0.02}
"""
QUICK = ("--set", "learning_rate=0.05", "--set", "batch_size=128")


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """Home folder with a log of 60 users, a trained model and a list of users."""
    folder = tmp_path_factory.mktemp("unlearn")
    log = load_interactions("ml-100k")
    rows = (log.user < 60) & (log.item < 200)
    frame = pd.DataFrame({"user_id": log.users[log.user], "item_id": log.items[log.item]})[rows]
    frame.to_csv(folder / "small.csv", index=False)
    (folder / "run.toml").write_text(RUN)
    users = list(dict.fromkeys(frame["user_id"]))
    (folder / "users.csv").write_text("user_id\n" + "\n".join(users[:4]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECUNLEARN_HOME", str(folder / "home"))
        from recunlearn.commands.app import run

        assert run(["data", "add", "small", "--file", str(folder / "small.csv")]) == 0
        arguments = ["unlearn", "--config", str(folder / "run.toml"), "--users", str(folder / "users.csv")]
        assert run([*arguments, "--method", "GradDiff", *QUICK, "--out", str(folder / "first")]) == 0
    (checkpoint,) = [p for p in (folder / "home" / "models").iterdir() if p.is_dir()]
    return SimpleNamespace(folder=folder, users=users, checkpoint=checkpoint)


@pytest.fixture
def unlearn(small, run_cli, monkeypatch):
    """Run ``unlearn`` on the trained model."""
    monkeypatch.setenv("RECUNLEARN_HOME", str(small.folder / "home"))

    def call(*options, users=None, checkpoint=small.checkpoint):
        file = users or small.folder / "users.csv"
        return run_cli("unlearn", "--checkpoint", checkpoint, "--users", file, *options)

    return call


def test_the_new_checkpoint_has_forgotten(small, unlearn, tmp_path):
    done = unlearn("--method", "NPO", *QUICK, "--out", tmp_path / "new", "--format", "json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["method"], told["forgotten"], told["reached"], told["seed"]) == ("NPO", 4, True, 0)
    assert told["settings"]["learning_rate"] == 0.05
    from recunlearn.subjects.recbole.store import load_subject
    from recunlearn.unlearning.goal import MeanLoss

    log = load_interactions("small")
    before, after = load_subject(small.checkpoint, log), load_subject(tmp_path / "new", log)
    rows = np.flatnonzero(np.isin(before.entities, small.users[:4]))
    loss = MeanLoss(before, rows, 0, users=1000, samples=50)
    assert told["losses"]["forgotten"] == pytest.approx(
        {"before": loss(before.model), "after": loss(after.model)}, abs=1e-6
    )
    assert told["losses"]["forgotten"]["after"] > told["losses"]["forgotten"]["before"]
    assert set(told["ranking"]["ndcg@10"]) == {"before", "after"}
    manifest = json.loads((tmp_path / "new" / "manifest.json").read_text())
    assert manifest["history"]["unlearning"]["method"] == "NPO"
    assert manifest["weights_hash"] != before.weights_hash
    assert (tmp_path / "new" / "metrics.csv").is_file()


def test_cost_is_told_before_and_what_was_measured_after(unlearn, small, tmp_path):
    done = unlearn("--method", "SimNPO", *QUICK, "--out", tmp_path / "new")
    assert done.code == 0, done.err
    assert "SimNPO forgets 4 of 60 users" in " ".join(done.err.split())
    for part in ("4 users forgotten", "loss of the forgotten", "loss of the others", "test ndcg@10", "cost"):
        assert part in done.out
    listed = {f'"{user}"' for user in small.users[:4]}
    written = (tmp_path / "new" / "manifest.json").read_text() + (
        tmp_path / "new" / "metrics.csv"
    ).read_text()
    assert not any(user in written for user in listed)


def test_items_that_become_cold_are_told_and_keep_their_numbers(unlearn, small, tmp_path):
    from recunlearn.subjects.recbole.store import load_subject

    log = load_interactions("small")
    before = load_subject(small.checkpoint, log)
    user, item = before.interactions()
    count = np.bincount(item, minlength=len(before.items))
    rarest = np.where(count > 0, count, count.max() + 1).argmin()
    owners = before.entities[user[item == rarest]].tolist()
    (tmp_path / "owners.txt").write_text("\n".join(owners))
    options = ("--method", "NPO", *QUICK, "--out", tmp_path / "new", "--format", "json")
    done = unlearn(*options, users=tmp_path / "owners.txt")
    assert done.code == 0, done.err
    gone = np.isin(before.entities[user], owners)
    cold = len(set(item[gone]) - set(item[~gone]))
    assert json.loads(done.out)["cold_items"] == cold > 0
    assert f"{cold} item" in done.err
    assert load_subject(tmp_path / "new", log).items.tolist() == before.items.tolist()


def test_retraining_forgets_too(unlearn, tmp_path):
    done = unlearn("--method", "retrain", "--out", tmp_path / "new", "--format", "json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["losses"]["forgotten"]["after"] > told["losses"]["forgotten"]["before"]
    assert told["reached"] is None


def test_without_a_folder_the_model_lies_among_the_models(unlearn, small):
    done = unlearn("--method", "GradAscent", *QUICK, "--format", "json")
    assert done.code == 0, done.err
    folder = json.loads(done.out)["folder"]
    assert folder.startswith(str(small.folder / "home" / "models" / "small-BPR-GradAscent-"))
    again = unlearn("--method", "GradAscent", *QUICK, "--format", "json")
    assert json.loads(again.out)["folder"] == folder
    assert not list((small.folder / "home" / "models").glob("*.work"))


def test_a_diverging_loss_is_said(unlearn, tmp_path):
    done = unlearn(
        "--method", "NPO", "--set", "learning_rate=1e30", "--out", tmp_path / "new", "--format", "json"
    )
    assert done.code == 0
    assert "stopped being a number" in done.err
    told = json.loads(done.out)
    assert told["diverged"]
    assert told["losses"]["forgotten"]["after"] == told["losses"]["forgotten"]["before"]


def test_a_target_that_is_not_reached_is_said(unlearn, tmp_path):
    done = unlearn("--method", "NPO", "--set", "steps=2", "--out", tmp_path / "new")
    assert done.code == 0
    said = " ".join(done.err.split())
    assert "did not bring the loss of the forgotten to its target within 2 steps: " in said
    stated = re.search(r"went from (\S+) to (\S+), and the target is (\S+),", said)
    start, reached, target = map(float, stated.groups())
    assert 0 < start <= reached < target
    # what the rule looked at last, not the table's figure, which is of other interactions
    log = pd.read_csv(tmp_path / "new" / "metrics.csv")
    assert reached == pytest.approx(log["level"].iloc[-1], abs=0.005)


BAD = {
    ("--method", "NPOO"): (2, "Unknown unlearning method 'NPOO'. Did you mean NPO?"),
    ("--method", "NPO", "--set", "betta=1"): (
        2,
        "Unknown setting 'betta' in --set of NPO. Did you mean beta?",
    ),
    ("--method", "NPO", "--set", "nonsense"): (2, "--set needs KEY=VALUE"),
    ("--method", "NPO", "--set", "target=0"): (2, "target must be above 0."),
    ("--method", "SISA"): (2, "SISA forgets from several models at once"),
    ("--method", "NPO", "--model", "NeuMF"): (2, "--model cannot go with --checkpoint"),
    ("--method", "NPO", "--format", "csv"): (2, "'csv' is not one of 'table', 'json'"),
    (): (2, "Missing option '--method'"),
}


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_mistakes_get_one_sentence(unlearn, arguments):
    code, sentence = BAD[arguments]
    done = unlearn(*arguments)
    assert done.code == code
    assert sentence in done.err
    assert len([line for line in done.err.splitlines() if line.startswith("error:")]) == 1
    assert done.out == ""


LISTS = {
    "": (1, "holds no users"),
    "nobody\n": (2, "1 user of .* is not in the data set 'small': 'nobody'"),
    "ALL": (2, "All users with training interactions are to be forgotten"),
}


@pytest.mark.parametrize("lines", LISTS, ids=["empty", "unknown", "all"])
def test_lists_that_cannot_be_forgotten(unlearn, small, tmp_path, lines):
    code, sentence = LISTS[lines]
    (tmp_path / "list.txt").write_text("\n".join(small.users) if lines == "ALL" else lines)
    done = unlearn("--method", "NPO", users=tmp_path / "list.txt")
    assert done.code == code
    assert re.search(sentence, done.err)


def test_unknown_users_can_be_skipped(unlearn, small, tmp_path):
    (tmp_path / "list.txt").write_text(f"nobody\n{small.users[0]}\n")
    done = unlearn(
        *("--method", "GradAscent", "--on-missing", "skip", "--out", tmp_path / "new", "--format", "json"),
        *QUICK,
        users=tmp_path / "list.txt",
    )
    assert done.code == 0, done.err
    assert "Warning: not in 'small' and skipped: 1 of" in done.err
    assert json.loads(done.out)["forgotten"] == 1


def test_the_original_is_never_overwritten(unlearn, small, tmp_path):
    done = unlearn("--method", "NPO", "--out", small.checkpoint)
    assert done.code == 2
    assert "is the folder of the original model, which would be lost" in done.err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note.txt").write_text("keep")
    done = unlearn("--method", "NPO", "--out", tmp_path / "mine")
    assert done.code == 2
    assert "exists and holds no unlearned model" in done.err
    assert (tmp_path / "mine" / "note.txt").read_text() == "keep"
    # an unlearned model may be replaced
    done = unlearn("--method", "GradAscent", *QUICK, "--out", small.folder / "first")
    assert done.code == 0, done.err
