"""``circuits signatures`` on a stored run that is made up: nothing is trained."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from recunlearn.foundation.records import Anchors, CircuitGraph, Circuits, save_record
from recunlearn.foundation.settings import ScoreSettings, make_settings
from recunlearn.foundation.store import write_json
from recunlearn.studies.keys import keys_for
from recunlearn.studies.scoring import COLUMNS

USERS = 60
CONFIG = """
dataset = "ml-100k"
model = "BPR"
[anchors]
source = "bilevel"
"""
GRAPH = CircuitGraph(
    nodes=("user", "item", "dot", "output"),
    kinds=("source", "source", "product", "output"),
    attention=(False,) * 4,
    depths=(0, 0, 1, 2),
    source=(2, 1, 0, 1),
    sink=(3, 3, 2, 2),
    source_group=("",) * 4,
    sink_group=("",) * 4,
)
EDGES = ("dot -> output", "item -> output", "user -> dot", "item -> dot")


def store(keys, graph=GRAPH, anchors=8):
    """Circuits whose edge past the dot product grows with the user's number, and so does CUD."""
    rng = np.random.default_rng(0)
    hard = np.arange(USERS) / USERS
    values = rng.uniform(0.9, 1.1, size=(USERS, 4))
    values[:, 1] += 3 * hard
    ids = np.array([str(i + 1) for i in range(USERS)])
    zeros, ones = np.zeros(USERS), np.ones(USERS, dtype=int)
    save_record(Circuits(ids, EDGES, values, zeros, ones, graph=graph), keys.circuits)
    rows = np.arange(USERS)
    chosen = Anchors(ids, hard, rows[:anchors], rows[USERS - anchors :], ones.astype(bool))
    save_record(chosen, keys.probe)
    table = pd.DataFrame({name: rng.uniform(size=USERS) for name in COLUMNS})
    is_anchor = (rows < anchors) | (rows >= USERS - anchors)
    table = table.assign(user_id=ids, cud=hard, band="easy", is_anchor=is_anchor)
    keys.scores.mkdir(parents=True)
    table.sample(frac=1, random_state=0).to_parquet(keys.scores / "scores.parquet")
    write_json(keys.scores / "summary.json", {"dataset": "ml-100k", "model": "BPR"})


@pytest.fixture
def keys():
    return keys_for(
        make_settings(ScoreSettings, {"model": "BPR", "anchors": {"source": "bilevel"}}, "the test")
    )


@pytest.fixture
def signatures(run_cli, tmp_path):
    (tmp_path / "run.toml").write_text(CONFIG)
    return lambda *args: run_cli("circuits", "signatures", "--config", tmp_path / "run.toml", *args)


def test_table(keys, signatures):
    store(keys)
    shown = signatures()
    assert (shown.code, shown.err) == (0, "")
    assert "Easy against hard anchors (8 and 8 users)" in shown.out
    # 60 users less 16 anchors: 44 // 5
    assert "Lowest against highest fifth of CUD, anchors left out (8 and 8 users)" in shown.out
    direct = next(line for line in shown.out.splitlines() if line.startswith("direct edges"))
    assert "+1.00 +1.00..+1.00" in direct
    assert "as the paper says" in direct
    assert max(len(line.rstrip()) for line in shown.out.splitlines()) <= 80


def test_json_says_the_same_and_has_no_nan(keys, signatures):
    store(keys)
    found = json.loads(signatures("--format", "json").out, parse_constant=pytest.fail)
    assert found["facts"]["edges"] == 4
    first = found["comparisons"][0]
    direct = next(s for s in first["signatures"] if s["key"] == "direct_share")
    assert direct["delta"] == 1
    assert direct["verdict"] == "as the paper says"
    best = first["edges"][0]
    # exact p of 8 against 8, all pairs alike: 2 / C(16, 8) = 2 / 12870
    assert best["edge"] == "item -> output"
    assert best["p"] == pytest.approx(2 / 12870)
    fifths = found["comparisons"][1]["signatures"]
    assert next(s["delta"] for s in fifths if s["key"] == "direct_share") == 1
    of = {(a["target"], a["key"]): a for a in found["associations"]}
    assert of["CUD", "direct_share"]["n"] == 44
    assert of["CUD", "direct_share"]["rho"] > 0.9
    assert of["measured hardness", "direct_share"]["n"] == 60


def test_markdown_rows_fit_their_headers(keys, signatures):
    store(keys)
    text = signatures("--format", "markdown").out
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("| ")]
        assert len({line.count(" | ") for line in lines}) <= 1
    assert "| direct edges | higher |" in text


def test_out_holds_every_table(keys, signatures, tmp_path):
    store(keys)
    assert signatures("--out", tmp_path / "tables").code == 0
    folder = tmp_path / "tables"
    assert {p.name for p in folder.iterdir()} == {
        *("signatures.json", "signatures.csv", "edges.csv", "overlaps.csv", "associations.csv")
    }
    assert json.loads((folder / "signatures.json").read_text())["facts"]["model"] == "BPR"
    assert len(pd.read_csv(folder / "signatures.csv")) == 12  # two comparisons, six signatures: no attention
    assert "user_id" not in "".join(p.read_text() for p in folder.iterdir())


def test_order_of_the_score_table_does_not_matter(keys, signatures):
    store(keys)
    before = signatures("--format", "json").out
    file = keys.scores / "scores.parquet"
    pd.read_parquet(file).sort_values("user_id").to_parquet(file)
    assert signatures("--format", "json").out == before


def test_too_few_anchors_are_named_beside_what_can_be_compared(keys, signatures):
    store(keys, anchors=5)
    shown = signatures()
    assert shown.code == 0
    assert "too few users for a test: 5 easy, 5 hard, at least 6 each are needed" in shown.out
    assert "(10 and 10 users)" in shown.out
    first = json.loads(signatures("--format", "json").out)["comparisons"][0]
    assert first["signatures"] == first["edges"] == []


def test_nothing_to_compare_is_refused(keys, signatures):
    store(keys, anchors=5)
    table = pd.read_parquet(keys.scores / "scores.parquet")
    table.assign(cud=table["cud"].where(table["cud"] < 0.3)).to_parquet(keys.scores / "scores.parquet")
    shown = signatures()
    assert (shown.code, shown.out) == (2, "")
    assert "Nothing can be compared. Easy against hard anchors: too few users" in shown.err
    assert shown.err.count("\n") == 1


def test_circuits_without_graph_are_refused(keys, signatures):
    store(keys, graph=None)
    shown = signatures()
    assert shown.code == 1
    assert str(keys.circuits) in shown.err
    assert "Delete that folder and run the command again." in shown.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--model", "NeuMFF"), "Did you mean NeuMF?"),
        (("--dataset", "ml-100"), "Did you mean ml-100k?"),
        (("--config", "nowhere.toml"), "does not exist"),
        (("--checkpoint", "nowhere"), "no trained model"),
        (("--format", "csv"), "csv"),
        (("--modle", "BPR"), "Did you mean --model?"),
    ],
)
def test_mistakes_are_one_sentence(run_cli, args, said):
    shown = run_cli("circuits", "signatures", *args)
    assert shown.code in (1, 2)
    assert said in shown.err
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1


def test_a_stored_run_is_read_without_torch(keys, tmp_path):
    store(keys)
    (tmp_path / "run.toml").write_text(CONFIG)
    code = (
        "import sys; from recunlearn.commands.app import run; "
        f"code = run(['circuits', 'signatures', '--config', {str(tmp_path / 'run.toml')!r}]); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
