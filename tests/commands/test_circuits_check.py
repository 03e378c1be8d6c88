"""``circuits check`` from the command line, on a small cut of ml-100k."""

import json

import pandas as pd
import pytest

from recunlearn.data.catalogue import load_interactions

CONFIG = """
dataset = "cut"
model = "BPR"
[training]
epochs = 2
params = {embedding_size = 8}
[circuits]
steps = 4
[anchors]
pool = 20
count = 4
"""


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """Folder with a home, a settings file, and what one check wrote."""
    folder = tmp_path_factory.mktemp("check")
    log = load_interactions("ml-100k")
    rows = (log.user < 60) & (log.item < 200)
    frame = pd.DataFrame({"user_id": log.users[log.user], "item_id": log.items[log.item]})[rows]
    frame.to_csv(folder / "cut.csv", index=False)
    (folder / "run.toml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECUNLEARN_HOME", str(folder / "home"))
        from recunlearn.commands.app import run

        assert run(["data", "add", "cut", "--file", str(folder / "cut.csv")]) == 0
        arguments = ["--config", str(folder / "run.toml"), "--out", str(folder / "out"), "--samples", "30"]
        assert run(["circuits", "check", *arguments]) == 0
    return folder


@pytest.fixture
def check(cut, run_cli, monkeypatch):
    monkeypatch.setenv("RECUNLEARN_HOME", str(cut / "home"))
    return lambda *args: run_cli("circuits", "check", "--config", cut / "run.toml", *args)


def test_json_has_the_point_estimate_and_its_interval(check, cut):
    done = check("--samples", "30", "--format", "json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    low, high = found["interval"]
    assert -1 <= low <= found["spearman_exact"] <= high <= 1
    assert (found["model"], found["dataset"], found["samples"]) == ("BPR", "cut", 30)
    assert "Training" not in done.err  # the model of the first run
    assert found == json.loads((cut / "out" / "check.json").read_text())


def test_files(cut):
    edges = pd.read_csv(cut / "out" / "edges.csv", keep_default_na=False)
    summary = json.loads((cut / "out" / "check.json").read_text())
    assert len(edges) == summary["edges"]
    assert (cut / "out" / "check.png").read_bytes().startswith(b"\x89PNG")


def test_table(check):
    done = check("--samples", "10", "--steps", "8", "--edge-score", "conductance", "--baseline", "zero")
    assert done.code == 0, done.err
    for words in (
        "exact ablation",
        "random, mean of 10",
        "complement",
        "conductance, 8 steps, baseline zero",
    ):
        assert words in " ".join(done.out.split())


def test_a_checkpoint_gives_the_same(check, cut):
    (folder,) = (cut / "home" / "models").glob("cut-BPR-*")
    done = check("--checkpoint", folder, "--samples", "30", "--format", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {**json.loads((cut / "out" / "check.json").read_text())} | {
        "model_folder": str(folder)
    }


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("--samples", "0"), 2, "at least 1 sample, but got --samples 0"),
        (("--model", "NeuMFF"), 2, "Did you mean NeuMF?"),
        (("--model", "Pop"), 2, "not trained by gradient descent"),
        (("--dataset", "nowhere"), 2, "nowhere"),
        (("--edge-score", "eapig"), 2, "eap-ig"),
        (("--steps", "1"), 2, "--steps"),
        (("--sinks", "unit"), 2, "Unknown option --sinks. Other commands have it, such as score-users"),
        (("--checkpoint", "nothing-here"), 1, "is no trained model"),
    ],
)
def test_mistakes_get_one_sentence(check, args, code, words):
    done = check(*args)
    assert done.code == code
    assert words in done.err
    assert len([line for line in done.err.splitlines() if line.startswith("error: ")]) == 1
    assert "Traceback" not in done.err
    assert done.out == ""


def test_a_checkpoint_of_other_data_is_refused(check, cut):
    (folder,) = (cut / "home" / "models").glob("cut-BPR-*")
    done = check("--checkpoint", folder, "--dataset", "ml-100k")
    assert done.code == 1
    assert "ml-100k" in done.err


def test_a_checkpoint_has_its_model_already(check, cut):
    (folder,) = (cut / "home" / "models").glob("cut-BPR-*")
    done = check("--checkpoint", folder, "--model", "NeuMF")
    assert done.code == 2
    assert "--model cannot go with --checkpoint" in done.err


def test_a_folder_that_cannot_be_is_refused_before_anything_runs(check, tmp_path):
    (tmp_path / "file").write_text("")
    done = check("--out", tmp_path / "file")
    assert done.code == 1
    assert "is a file, but --out needs a folder" in done.err


def test_files_are_written_all_or_none(check, cut, tmp_path, monkeypatch):
    from recunlearn.report import circuit_check_figure

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(circuit_check_figure, "save_figure", full)
    done = check("--out", tmp_path, "--samples", "5")
    assert done.code == 1
    assert "The disk is full" in done.err
    assert not list(tmp_path.iterdir())


def test_no_anchors_are_asked_for(check, cut, tmp_path):
    more = tmp_path / "more.toml"
    more.write_text(CONFIG.replace("epochs = 2", "epochs = 1").replace("count = 4", "count = 400"))
    done = check("--config", more, "--samples", "5", "--format", "json")
    assert done.code == 0, done.err
