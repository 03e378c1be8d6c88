"""``score-users`` end to end on a cut of ml-100k."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

from recunlearn.data.catalogue import load_interactions
from recunlearn.foundation.store import seal_holds
from recunlearn.studies.scoring import COLUMNS

CONFIG = """
dataset = "cut"
model = "BPR"
[training]
epochs = 3
params = {embedding_size = 16}
[circuits]
steps = 4
[anchors]
pool = 60
count = 6
methods = ["GradDiff", "NPO"]
seeds = 2
"""


@pytest.fixture(scope="session")
def cut(tmp_path_factory):
    """Home folder with a data set of 120 users, a settings file, and the results of one run."""
    folder = tmp_path_factory.mktemp("score")
    log = load_interactions("ml-100k")
    rows = (log.user < 120) & (log.item < 300)
    frame = pd.DataFrame({"user_id": log.users[log.user], "item_id": log.items[log.item]})
    frame = frame.assign(rating=log.rating, timestamp=log.time)[rows]
    frame = pd.concat(
        [frame, pd.DataFrame({"user_id": ["007"], "item_id": ["242"], "rating": [4], "timestamp": [1]})]
    )
    frame.to_csv(folder / "cut.csv", index=False)
    (folder / "run.toml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECUNLEARN_HOME", str(folder / "home"))
        from recunlearn.commands.app import run

        assert run(["data", "add", "cut", "--file", str(folder / "cut.csv")]) == 0
        code = run(["score-users", "--config", str(folder / "run.toml"), "--out", str(folder / "out")])
        assert code == 0
    return folder


@pytest.fixture
def score(cut, run_cli, monkeypatch):
    """Run ``score-users`` with the settings of the cut and more arguments."""
    monkeypatch.setenv("RECUNLEARN_HOME", str(cut / "home"))
    return lambda *args: run_cli("score-users", "--config", cut / "run.toml", *args)


@pytest.fixture
def copied(cut, tmp_path, monkeypatch):
    """A copy of the home folder that a test may damage."""
    shutil.copytree(cut / "home", tmp_path / "copy")
    monkeypatch.setenv("RECUNLEARN_HOME", str(tmp_path / "copy"))
    return tmp_path / "copy"


def test_table_holds_every_user_with_a_score(cut):
    table = pd.read_csv(cut / "out" / "scores.csv", dtype={"user_id": str})
    assert list(table.columns) == [*COLUMNS, "predicted_residual_GradDiff", "predicted_residual_NPO"]
    assert "007" in set(table["user_id"])
    assert table["user_id"].is_unique
    scored = table[table["cud"].notna()]
    assert len(scored) == len(table) > 100
    assert scored["cud"].between(0, 1).all()
    assert scored["cud"].is_monotonic_decreasing
    assert (scored["cud_low"] <= scored["cud_high"]).all()
    assert (
        (scored["cud_low"] <= scored["cud"] + 0.05) & (scored["cud"] <= scored["cud_high"] + 0.05)
    ).mean() > 0.9
    assert scored["is_anchor"].sum() == 12
    expected = np.select(
        [scored["percentile"] < 100 / 3, scored["percentile"] < 200 / 3], ["easy", "medium"], "hard"
    )
    assert (scored["band"] == expected).all()
    by_rank = (scored["cud"].rank() - 1) / (len(scored) - 1) * 100
    np.testing.assert_allclose(scored["percentile"], by_rank)


def test_hard_anchors_score_above_easy_ones(cut):
    """Anchors are compared with the others of their side only, so this is no identity."""
    table = pd.read_csv(cut / "out" / "scores.csv")
    anchors = table[table["is_anchor"]].sort_values("cud", ascending=False)
    assert anchors["cud"].head(6).mean() > anchors["cud"].tail(6).mean()


def test_predicted_residual_has_an_interval_and_its_quality_in_the_summary(cut):
    table = pd.read_csv(cut / "out" / "scores.csv")
    names = ["predicted_residual", "residual_low", "residual_high"]
    names += ["predicted_residual_GradDiff", "predicted_residual_NPO"]
    known = json.loads((cut / "out" / "summary.json").read_text())["predicted_residual"]
    assert known["reason"] is None
    assert table[names].notna().all(axis=None)
    assert (table["residual_low"] <= table["predicted_residual"]).all()
    assert (table["predicted_residual"] <= table["residual_high"]).all()
    assert 30 <= known["users"] <= 60
    assert 0 <= known["coverage"] <= 1
    assert set(known["methods"]) == {"GradDiff", "NPO"}


def test_csv_parquet_and_json_agree(cut):
    csv = pd.read_csv(cut / "out" / "scores.csv", dtype={"user_id": str})
    parquet = pd.read_parquet(cut / "out" / "scores.parquet")
    rows = json.loads((cut / "out" / "scores.json").read_text())
    assert csv["user_id"].tolist() == parquet["user_id"].tolist() == [r["user_id"] for r in rows]
    np.testing.assert_allclose(csv["cud"], parquet["cud"])
    np.testing.assert_allclose(csv["cud"], [r["cud"] for r in rows], atol=1e-9)


def test_summary_says_what_made_the_scores(cut):
    summary = json.loads((cut / "out" / "summary.json").read_text())
    assert summary["settings"]["circuits"]["steps"] == 4
    assert summary["positives"] == "every interaction"
    assert set(summary["spearman"]) == {
        "n_interactions",
        "mean_item_popularity",
        "loss",
        "personalisation_gap",
    }
    assert {"kendall_w_methods", "kendall_w_seeds"} <= set(summary["anchors"])
    assert summary["traced_interactions"] > 1000


def test_n_interactions_counts_training_interactions_of_the_log(cut, monkeypatch):
    monkeypatch.setenv("RECUNLEARN_HOME", str(cut / "home"))
    log = load_interactions("cut")
    total = pd.Series(log.users[log.user]).value_counts()
    table = pd.read_csv(cut / "out" / "scores.csv", dtype={"user_id": str}).set_index("user_id")
    share = table["n_interactions"] / total.reindex(table.index)
    assert share.max() <= 1
    assert table["n_interactions"].sum() / total.sum() == pytest.approx(0.8, abs=0.03)


def test_second_call_reads_and_shows_the_asked_for_users(cut, score, tmp_path):
    (tmp_path / "users.txt").write_text("007\n196\n")
    first = score("--users", tmp_path / "users.txt", "--format", "csv", "--out", tmp_path / "o")
    assert first.code == 0, first.err
    rows = first.out.strip().splitlines()
    assert rows[0].startswith(",".join(COLUMNS))
    assert [r.split(",")[0] for r in rows[1:]] == ["007", "196"]
    table = score("--users", tmp_path / "users.txt", "--out", tmp_path / "o")
    assert "Asked for" in table.out
    assert "Kendall's W between methods" in table.out
    assert str(tmp_path / "o") in "".join(table.out.split())  # a long path is folded


def test_second_call_imports_no_torch(cut):
    code = (
        "import sys; from recunlearn.commands.app import run; "
        f"code = run(['score-users', '--config', {str(cut / 'run.toml')!r}, '--out', {str(cut / 'x')!r}]); "
        "heavy = {'torch', 'lightning', 'recbole', 'captum'} & set(sys.modules); print(code, sorted(heavy))"
    )
    environment = {**os.environ, "RECUNLEARN_HOME": str(cut / "home")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.strip().endswith("0 []"), done.stderr


def test_python_gives_the_same_table(cut, monkeypatch):
    monkeypatch.setenv("RECUNLEARN_HOME", str(cut / "home"))
    import recunlearn

    table = recunlearn.score_users(
        "cut",
        "BPR",
        training={"epochs": 3, "params": {"embedding_size": 16}},
        circuits={"steps": 4},
        anchors={"pool": 60, "count": 6, "methods": ["GradDiff", "NPO"], "seeds": 2},
    )
    pd.testing.assert_frame_equal(table, pd.read_parquet(cut / "out" / "scores.parquet"))


def test_a_checkpoint_is_scored_without_training(cut, score, tmp_path):
    folder = next(p for p in (cut / "home" / "models").iterdir() if (p / "manifest.json").is_file())
    done = score("--checkpoint", folder, "--out", tmp_path / "o")
    assert done.code == 0, done.err
    a, b = (pd.read_parquet(f / "scores.parquet") for f in (tmp_path / "o", cut / "out"))
    np.testing.assert_allclose(a["cud"], b["cud"], atol=1e-6)
    unnamed = score("--checkpoint", folder)
    assert f"results/cut-{folder.name}" in unnamed.out.replace("\n", "").replace(" ", "")


def test_an_altered_copy_does_not_read_the_scores_of_the_original(cut, score, tmp_path):
    folder = next(p for p in (cut / "home" / "models").iterdir() if (p / "manifest.json").is_file())
    shutil.copytree(folder, tmp_path / "copy")
    assert score("--checkpoint", tmp_path / "copy", "--out", tmp_path / "o").code == 0
    weights = tmp_path / "copy" / "weights.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    altered = score("--checkpoint", tmp_path / "copy", "--out", tmp_path / "o")
    assert altered.code == 1
    assert "weights.safetensors is truncated or was altered" in altered.err
    weights.unlink()
    assert "weights.safetensors is missing" in score("--checkpoint", tmp_path / "copy").err


def test_unknown_users_are_refused_or_skipped(cut, score, tmp_path):
    (tmp_path / "users.txt").write_text("9999\n196\n")
    refused = score("--users", tmp_path / "users.txt", "--out", tmp_path / "o")
    assert refused.code == 2
    assert "1 users" not in refused.err
    assert "'9999'" in refused.err
    assert "not in the data set 'cut'" in refused.err
    assert refused.out == ""
    assert not (tmp_path / "o").exists()
    skipped = score("--users", tmp_path / "users.txt", "--on-missing", "skip", "--format", "json")
    assert skipped.code == 0
    assert [r["user_id"] for r in json.loads(skipped.out)] == ["196"]


def test_unknown_users_are_refused_before_anything_is_trained(cut, score, tmp_path):
    (tmp_path / "users.txt").write_text("7777\n")
    done = score("--users", tmp_path / "users.txt", "--seed", "99")
    assert done.code == 2
    assert "'7777'" in done.err
    assert len([p for p in (cut / "home" / "models").iterdir() if (p / "manifest.json").is_file()]) == 1


def test_an_unknown_method_is_refused_before_anything_is_trained(cut, run_cli, monkeypatch, tmp_path):
    monkeypatch.setenv("RECUNLEARN_HOME", str(cut / "home"))
    (tmp_path / "m.toml").write_text('dataset = "cut"\nseed = 77\n[anchors]\nmethods = ["GradDif"]\n')
    done = run_cli("score-users", "--config", tmp_path / "m.toml")
    assert done.code == 2
    assert "Unknown unlearning method 'GradDif'. Did you mean GradDiff?" in done.err
    assert "Training" not in done.err


BAD_OPTIONS = {
    ("--model", "NeuMFF"): "Did you mean NeuMF?",
    ("--dataset", "ml-1k"): "Unknown data set 'ml-1k'",
    ("--set", "embeding_size=3"): "Did you mean embedding_size?",
    ("--set", "embedding_size=big"): "must be a whole number such as",
    ("--steps", "1"): "--steps",
    ("--learning_rate=9",): "--set learning_rate=VALUE",
    ("--device", "tpu"): "Allowed are auto, cpu, cuda, cuda:0, cuda:1, ..., but got 'tpu'",
    ("--checkpoint", "nowhere"): "nowhere is no trained model",
    ("--config", "nowhere.toml"): "nowhere.toml does not exist",
    ("--similarity", "dice"): "dice",
}


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=" ".join)
def test_bad_options_get_one_sentence_and_exit_2_or_1(score, options):
    done = score(*options, "--seed", "5")
    assert done.code in (1, 2)
    assert BAD_OPTIONS[options] in done.err
    assert done.out == ""
    assert "Traceback" not in done.err


def test_a_tampered_model_is_refused(cut, copied, run_cli):
    folder = next(p for p in (copied / "models").iterdir() if (p / "manifest.json").is_file())
    weights = load_file(folder / "weights.safetensors")
    name = next(iter(weights))
    weights[name] = weights[name] + 1
    save_file(weights, folder / "weights.safetensors")
    done = run_cli("score-users", "--config", cut / "run.toml", "--steps", "3")
    assert done.code == 1
    assert "truncated or was altered" in done.err


def test_a_model_of_other_data_is_refused(cut, copied, run_cli, tmp_path):
    frame = pd.read_csv(cut / "cut.csv", dtype=str)
    frame.iloc[:-50].to_csv(tmp_path / "other.csv", index=False)
    assert run_cli("data", "add", "other", "--file", tmp_path / "other.csv").code == 0
    folder = next(p for p in (copied / "models").iterdir() if (p / "manifest.json").is_file())
    done = run_cli("score-users", "--checkpoint", folder, "--dataset", "other", "--config", cut / "run.toml")
    assert done.code == 1
    assert "was trained on the data set 'cut'" in done.err


def test_interrupted_while_unlearning_goes_on_with_the_same_command(cut, copied, run_cli, monkeypatch):
    from recunlearn.studies import score_stages

    arguments = ("score-users", "--config", cut / "run.toml", "--seed", "0", "--steps", "3")
    with monkeypatch.context() as patch:
        patch.setattr(score_stages, "choose_anchors", _interrupt)
        stopped = run_cli(*arguments)
    assert stopped.code == 130
    assert "Traceback" not in stopped.err
    assert not list((copied / "cache").rglob("*.tmp"))
    done = run_cli(*arguments)
    assert done.code == 0, done.err


def _flip(path):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("file", ["summary.json", "scores.parquet"])
@pytest.mark.parametrize("harm", [_flip, lambda p: p.write_bytes(p.read_bytes()[:-9]), lambda p: p.unlink()])
def test_damaged_scores_are_made_again(cut, copied, run_cli, file, harm):
    arguments = ("score-users", "--config", cut / "run.toml", "--format", "csv")
    before = run_cli(*arguments)
    for stored in (copied / "cache" / "scores").iterdir():
        harm(stored / file)
    again = run_cli(*arguments)
    assert (again.code, again.out) == (0, before.out), again.err
    assert [seal_holds(s) for s in (copied / "cache" / "scores").iterdir()].count(True) == 1


def _interrupt(*_args, **_options):
    raise KeyboardInterrupt


def test_a_disk_that_fills_up_between_two_tables_leaves_none(cut, copied, run_cli, monkeypatch, tmp_path):
    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_json", full)
    done = run_cli("score-users", "--config", cut / "run.toml", "--out", tmp_path / "o")
    assert done.code == 1
    assert "disk is full" in done.err
    assert list((tmp_path / "o").iterdir()) == []


def test_too_many_anchors_are_refused_before_the_training(cut, score, tmp_path):
    config = tmp_path / "many.toml"
    config.write_text((cut / "run.toml").read_text().replace("count = 6", "count = 60"))
    done = score("--config", config, "--seed", "98")
    assert done.code == 2
    assert "Anchor count must be between 1 and" in done.err
    assert not list((cut / "home" / "models").glob("*.work"))


def test_a_checkpoint_and_what_makes_another_model_contradict(score, cut):
    folder = next(p for p in (cut / "home" / "models").iterdir() if (p / "manifest.json").is_file())
    done = score("--checkpoint", folder, "--model", "NeuMF", "--epochs", "3")
    assert done.code == 2
    assert "--model, --epochs cannot go with --checkpoint" in done.err


def test_an_out_folder_that_cannot_be_one_is_refused_first(score, tmp_path):
    (tmp_path / "file").write_text("")
    done = score("--out", tmp_path / "file" / "x", "--seed", "97")
    assert done.code == 1
    assert "file is a file, but --out needs a folder" in done.err
    assert "Tracing" not in done.err


def test_a_full_disk_is_one_sentence_and_leaves_nothing(cut, copied, run_cli, monkeypatch, tmp_path):
    from recunlearn.foundation import store

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "fsync", full)
    done = run_cli("score-users", "--config", cut / "run.toml", "--out", tmp_path / "o")
    assert done.code == 1
    assert "disk is full" in done.err
    assert list((tmp_path / "o").iterdir()) == []
