"""``benchmark`` end to end on a cut of ml-100k."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from recunlearn.data.catalogue import load_interactions
from recunlearn.studies.benchmark.collection import COLUMNS
from recunlearn.unlearning import methods, registry

REPOSITORY = Path(__file__).parents[2]
CONFIG = """
dataset = "cut"
fraction = 0.06
references = 2
membership = 0
fold_in_steps = 10
trials = 2
most_steps = 20
[training]
epochs = 2
params = {embedding_size = 16}
[circuits]
steps = 4
[anchors]
pool = 40
count = 6
methods = ["GradAscent"]
seeds = 1
most_steps = 20
[methods.SISA]
shards = 2
[[grid]]
models = ["BPR"]
methods = ["GradAscent", "NPO", "retrain", "SISA"]
sets = ["easy", "hard", "random"]
"""


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """Home folder with a data set of 120 users, a settings file, and the results of one run."""
    folder = tmp_path_factory.mktemp("benchmark")
    log = load_interactions("ml-100k")
    rows = (log.user < 120) & (log.item < 200)
    frame = pd.DataFrame({"user_id": log.users[log.user], "item_id": log.items[log.item]})
    frame.assign(rating=log.rating, timestamp=log.time)[rows].to_csv(folder / "cut.csv", index=False)
    (folder / "run.toml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECUNLEARN_HOME", str(folder / "home"))
        from recunlearn.commands.app import run

        assert run(["data", "add", "cut", "--file", str(folder / "cut.csv")]) == 0
        arguments = ["--config", str(folder / "run.toml"), "--out", str(folder / "out"), "--jobs", "1"]
        assert run(["benchmark", *arguments]) == 0
    return folder


@pytest.fixture
def bench(cut, run_cli, monkeypatch):
    """Run ``benchmark`` with a settings file, by default that of the cut, and more arguments."""
    monkeypatch.setenv("RECUNLEARN_HOME", str(cut / "home"))
    return lambda *args, config=cut / "run.toml": run_cli("benchmark", "--config", config, *args)


def figures(folder):
    """The tidy table without what a clock or the memory of a process says."""
    frame = pd.read_csv(folder / "results.csv")
    timed = frame["metric"].isin(["cost/seconds", "cost/of_retraining", "cost/peak_memory"])
    return frame[~timed].reset_index(drop=True)


def test_one_long_table_in_two_forms(cut):
    frame = pd.read_csv(cut / "out" / "results.csv")
    assert tuple(frame.columns) == COLUMNS
    pd.testing.assert_frame_equal(pd.read_parquet(cut / "out" / "results.parquet"), frame)
    ue = frame[frame["metric"] == "ue"]
    assert len(ue) == 12  # 4 methods x 3 sets
    assert ue["value"].between(0, 100).all()
    assert set(frame["unit"][frame["metric"] == "cost/seconds"]) == {"s"}
    touched = frame[frame["metric"] == "cost/shards"]
    assert set(touched["method"]) == {"SISA"}


def test_the_report_is_one_file_that_loads_nothing(cut):
    page = (cut / "out" / "report.html").read_text(encoding="utf-8")
    assert len(page.encode()) < 3_000_000
    assert page.count("data:image/png;base64,") == 3
    assert set(re.findall(r"(?:src|href)\s*=\s*(.{6})", page)) == {'"data:'}
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]*", "", page)
    assert not re.search(r"<script|@import|url\(", page)
    for name in ("GradAscent", "SISA", "retrained reference", "nothing done", "Budgets"):
        assert name in page


def test_the_markdown_has_what_a_paper_has(cut):
    text = (cut / "out" / "table.md").read_text(encoding="utf-8")
    assert "| method | easy | hard | random |" in text
    assert "| method | sets | Δ UE | 95 % | p | Holm | pairs | Δ clip | paper | left | rnd |" in text
    assert "BPR, hard sets" in text
    assert "−14.1" in text
    assert {f.name for f in (cut / "out" / "figures").iterdir()} == {
        "trade-off.png",
        "by-set.png",
        "cost.png",
    }


def test_a_second_run_reads_and_prints_in_every_format(cut, bench):
    before = {f: f.stat().st_mtime_ns for f in (cut / "out" / "cells").iterdir()}
    done = bench("--out", cut / "out", "--format", "csv")
    assert done.code == 0, done.err
    assert done.out == (cut / "out" / "results.csv").read_text()
    assert bench("--out", cut / "out", "--format", "markdown").out.startswith("# Benchmark")
    assert {f: f.stat().st_mtime_ns for f in (cut / "out" / "cells").iterdir()} == before


def test_killed_workers_and_a_killed_run_change_nothing(cut, bench, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, REPOSITORY / "cli.py", "benchmark", "--config", cut / "run.toml", "--out", out]
    environment = {**os.environ, "RECUNLEARN_HOME": str(cut / "home")}
    run = subprocess.Popen([*map(str, command), "--jobs", "2"], env=environment, stderr=subprocess.PIPE)
    try:
        wait_for_cells(out, 1, run)
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        workers = [int(p) for p in children.read_text().split() if is_worker(int(p))]
        if workers:  # none where there is one core
            os.kill(workers[0], signal.SIGKILL)
        wait_for_cells(out, 2, run)
    finally:
        run.kill()
        run.communicate()
    there = {f: f.stat().st_mtime_ns for f in (out / "cells").glob("*.json")}
    done = bench("--out", out, "--jobs", "1")
    assert done.code == 0, done.err
    assert {f: f.stat().st_mtime_ns for f in there} == there
    pd.testing.assert_frame_equal(figures(out), figures(cut / "out"))


def is_worker(process):
    return b"spawn_main" in Path(f"/proc/{process}/cmdline").read_bytes()


def wait_for_cells(out, count, run):
    until = time.monotonic() + 200
    while len(list((out / "cells").glob("*.json"))) < count:
        assert run.poll() is None, run.stderr.read().decode()
        assert time.monotonic() < until
        time.sleep(0.02)


def test_results_of_another_config_are_refused(cut, bench, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text(CONFIG.replace("trials = 2", "trials = 3"))
    before = (cut / "out" / "results.csv").read_bytes()
    done = bench("--out", cut / "out", config=other)
    assert done.code == 2
    assert "which are not mixed" in done.err
    assert done.err.count("\n") == 1
    assert (cut / "out" / "results.csv").read_bytes() == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    refused = bench("--out", tmp_path / "mine")
    assert refused.code == 2
    assert "is not empty and holds no benchmark" in refused.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('"NPO"', '"NPOO"'), "Did you mean NPO?"),
        (('"BPR"', '"BPRR"'), "Did you mean BPR?"),
        (('"hard"', '"hrad"'), "Did you mean hard?"),
        (("shards = 2", "shard = 2"), "Did you mean shards?"),
        (("fraction = 0.06", "fraction = 0.0001"), "means sets of 0 of"),
        (("fraction = 0.06", "fraction = 0.7"), "can be drawn"),
    ],
)
def test_mistakes_are_one_sentence(bench, tmp_path, change, words):
    config = tmp_path / "wrong.toml"
    config.write_text(CONFIG.replace(*change))
    done = bench("--out", tmp_path / "out", config=config)
    assert done.code == 2
    assert words in done.err
    assert done.err.count("\n") == 1


def test_a_dry_run_tells_the_plan_and_makes_nothing(bench, tmp_path):
    done = bench("--out", tmp_path / "out", "--dry-run")
    assert done.code == 0, done.err
    assert "12 cells, nothing run" in done.out
    assert "to be tuned in 2 trials" in done.out
    assert "Expected: about" in done.out
    assert not (tmp_path / "out").exists()


THIRD_PARTY = """
from recunlearn.foundation.errors import UsageError
from recunlearn.unlearning.methods.grad_ascent import grad_ascent
from recunlearn.unlearning.gradient import Gradient, GradientSettings


class HalfAscent(Gradient):
    name = "HalfAscent"

    def forget_loss(self, subject, model, original, batch):
        return grad_ascent(subject.log_likelihood(model, batch)) / 2


class Unable(HalfAscent):
    name = "Unable"

    def unlearn(self, subject, forget, **_):
        raise UsageError("Unable cannot forget anybody.")
"""


def test_a_method_of_ones_own_takes_part_and_an_unable_one_is_listed(bench, tmp_path, monkeypatch):
    (tmp_path / "half_ascent.py").write_text(THIRD_PARTY)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    registry.known.cache_clear()
    try:
        config = tmp_path / "own.toml"
        grid = CONFIG.replace('["GradAscent", "NPO", "retrain", "SISA"]', '["HalfAscent", "Unable"]')
        config.write_text(grid.replace('["easy", "hard", "random"]', '["random"]'))
        done = bench("--out", tmp_path / "out", "--jobs", "1", "--format", "markdown", config=config)
    finally:
        registry.known.cache_clear()
        sys.modules.pop("recunlearn.unlearning.methods.half_ascent", None)
    assert done.code == 0, done.err
    assert re.search(r"\| HalfAscent \| [0-9.]+ \|", done.out)
    assert "| BPR | Unable | Unable cannot forget anybody. |" in done.out
    assert set(pd.read_csv(tmp_path / "out" / "results.csv")["method"]) == {"HalfAscent"}
