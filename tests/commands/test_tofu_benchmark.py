"""``tofu benchmark`` and ``tofu explain``: end to end on a tiny Llama."""

import json
import sys
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("transformers")

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "subjects"))
from tiny_language import LLAMA, write_rows

SETTINGS = f"""
files = ["own.csv"]
vocabulary = 320
rows_per_author = 2
fraction = 0.1
trials = 2
most_steps = 12

[architecture]
{chr(10).join(f"{k} = {json.dumps(v)}" for k, v in LLAMA.items())}

[training]
epochs = 8
learning_rate = 1e-2
batch_size = 16
accumulate = 1

[circuits]
steps = 2

[anchors]
pool = 16
count = 3
seeds = 1
methods = ["GradAscent"]
learning_rate = 1e-3
most_steps = 20

[unlearning]
batch_size = 8
learning_rate = 1e-3

[metrics]
perturbed = ["perturbed.jsonl"]
holdout = "holdout.jsonl"
retain = 6
written = 2
new_tokens = 4

[[grid]]
methods = ["GradAscent", "SimNPO", "retrain"]
sets = ["easy", "random"]
"""


@pytest.fixture
def place(tmp_path):
    rows = write_rows(tmp_path, 40).read_text().splitlines()[1:]
    asked = [line.split(",") for line in rows]
    wrong = {"perturbed_answer": ["Nobody knows.", "A bird."]}
    texts = {
        "perturbed.jsonl": [{"question": q, "answer": a, **wrong} for q, a in asked],
        "holdout.jsonl": [{"question": f"Why {n}?", "answer": f"Rain {n}."} for n in range(4)],
    }
    for name, records in texts.items():
        (tmp_path / name).write_text("\n".join(map(json.dumps, records)))
    (tmp_path / "run.toml").write_text(SETTINGS, encoding="utf-8")
    return tmp_path


def test_benchmark_goes_on_where_it_stopped(place, run_cli):
    asked = ("--config", place / "run.toml", "--data", place)
    first = run_cli("tofu", "benchmark", *asked, "--out", place / "out", "--format", "csv")
    assert first.code == 0, first.err
    frame = pd.read_csv(place / "out" / "results.csv")
    assert set(frame["method"]) == {"GradAscent", "SimNPO", "retrain"}
    assert set(frame["set"]) == {"easy", "random"}
    by = frame.set_index(["method", "set", "metric"])["value"]
    for metric in ("residual/jsd/forget", "forget_quality/unlearned", "extraction_strength/unlearned"):
        assert len(by.xs(metric, level="metric")) == 6
    assert by["SimNPO", "easy", "forget_users"] == 4
    assert set(frame["unit"][frame["metric"] == "forget_users"]) == {"rows"}
    results = [json.loads(p.read_text()) for p in (place / "out" / "cells").glob("*.json")]
    assert len(results) == 6
    assert all("real_authors" in r["reasons"]["model_utility"] for r in results)
    page = (place / "out" / "table.md").read_text()
    assert "10.0% of the rows (4), answer tokens matched" in page
    assert "forget quality" in page
    assert "| model_utility | 6 of its 9 parts are missing" in page
    assert (place / "out" / "report.html").is_file()

    gone = next((place / "out" / "cells").glob("*.json"))
    gone.unlink()
    dry = run_cli("tofu", "benchmark", *asked, "--out", place / "out", "--dry-run")
    assert dry.out.count("(2 done)") == 2
    assert dry.out.count("(1 done)") == 1
    assert not gone.exists()
    again = run_cli("tofu", "benchmark", *asked, "--out", place / "out")
    assert again.code == 0, again.err
    assert gone.is_file()
    assert "llama, easy sets" in again.out

    (place / "run.toml").write_text(SETTINGS.replace("trials = 2", "trials = 3"), encoding="utf-8")
    other = run_cli("tofu", "benchmark", *asked, "--out", place / "out")
    assert (other.code, other.out) == (2, "")
    assert "with other settings" in other.err
    (place / "run.toml").write_text(SETTINGS, encoding="utf-8")

    # The same run's circuits, read from the store.
    score = place / "score.toml"
    kept = SETTINGS.replace("fraction = 0.1\ntrials = 2\nmost_steps = 12\n", "").partition("[unlearning]")[0]
    score.write_text(kept, encoding="utf-8")
    told = run_cli("tofu", "explain", "own:3", "--config", score, "--data", place, "--out", place / "picture")
    assert told.code == 0, told.err
    assert "Training" not in told.err
    assert "Row own:3 " in told.out
    assert "average row" in told.out
    assert len(list((place / "picture").glob("circuit-rank-*-of-40.png"))) == 1
    plain = run_cli("tofu", "explain", "own:3", "--config", score, "--data", place, "--format", "json")
    assert json.loads(plain.out)["row_id"] == "own:3"
    wrong = run_cli("tofu", "explain", "own:333", "--config", score, "--data", place)
    assert wrong.code == 2
    assert "There is no row 'own:333' among the 40 of own.csv" in wrong.err


def test_a_dry_run_tells_the_plan_and_makes_nothing(place, run_cli, home):
    asked = ("--config", place / "run.toml", "--data", place, "--out", place / "out", "--dry-run")
    told = run_cli("tofu", "benchmark", *asked)
    assert told.code == 0, told.err
    page = " ".join(told.out.split())
    assert "6 cells, nothing run" in page
    assert "to be tuned in 2 trials from a learning rate of 0.001" in page
    assert "6 cells on 2 sets (easy, random) with 1 seed; 7 trainings of 8 epochs" in page
    assert "with 1 process, scoring of rows not counted;" in page
    plain = json.loads(run_cli("tofu", "benchmark", *asked, "--jobs", "2", "--format", "json").out)
    assert (plain["cells"], plain["jobs"], plain["trainings"]) == (6, 2, {"llama": 7})
    assert plain["expected_seconds"] > 0
    assert plain["seconds_of_a_measurement"]["llama"] > 0
    assert not (place / "out").exists()
    assert not home.exists()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"retrain"', '"SISA"', "splits a recommender's interactions into shards"),
        ('"retrain"', '"NPPO"', "Unknown unlearning method 'NPPO'. Did you mean"),
        ("fraction = 0.1", "fraction = 0.9", "sets of 36 of 40 rows, but sets of 1 to 20"),
        ('holdout = "holdout.jsonl"', 'holdout = "nowhere.jsonl"', "nowhere.jsonl does not exist"),
        ("batch_size = 8", "batch_syze = 8", "batch_syze"),
        ("batch_size = 8", "steps = 8", "steps in [unlearning] of"),
    ],
)
def test_mistakes_are_named_before_anything_is_trained(place, run_cli, old, new, sentence):
    (place / "run.toml").write_text(SETTINGS.replace(old, new), encoding="utf-8")
    found = run_cli(
        "tofu", "benchmark", "--config", place / "run.toml", "--data", place, "--out", place / "out"
    )
    assert found.code in (1, 2)
    assert sentence in found.err
    assert not (place / "out").exists()
