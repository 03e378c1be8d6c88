"""``explain-user`` on a stored run that was made by hand, and end to end on a small log."""

import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from recunlearn.data.catalogue import load_interactions
from recunlearn.difficulty.cud import score
from recunlearn.foundation.records import Anchors, CircuitGraph, Circuits, save_record
from recunlearn.foundation.settings import AnchorSettings, ScoreSettings
from recunlearn.foundation.store import write_json, write_seal
from recunlearn.studies.keys import keys_for

GRAPH = CircuitGraph(
    nodes=("user", "item", "gmf", "output"),
    kinds=("source", "source", "product", "output"),
    attention=(False,) * 4,
    depths=(0, 0, 1, 2),
    source=(0, 0, 1, 1, 2),
    sink=(2, 2, 2, 2, 3),
    source_group=("[0]", "[1]", "[0]", "[1]", ""),
    sink_group=("",) * 5,
)
EDGES = ("user[0] -> gmf", "user[1] -> gmf", "item[0] -> gmf", "item[1] -> gmf", "gmf -> output")
RUN = ScoreSettings(model="BPR", anchors=AnchorSettings(source="bilevel"))
RATED = ScoreSettings(model="BPR", min_rating=5, anchors=AnchorSettings(source="bilevel"))


def store(settings, users):
    """Write the records of a run as its stages do; user 0 has no interaction, 1 to 5 are anchors."""
    keys, n = keys_for(settings), len(users)
    values = np.random.default_rng(0).normal(size=(n, len(EDGES))).astype(np.float32)
    values[0] = np.nan
    samples = np.arange(n)
    circuits = Circuits(users, EDGES, values, np.zeros(n, np.float32), samples, graph=GRAPH)
    anchors = Anchors(users, np.zeros(n), np.array([1, 2, 3]), np.array([4, 5]), np.ones(n, dtype=bool))
    save_record(circuits, keys.circuits)
    save_record(anchors, keys.probe)
    scores = score(circuits, anchors, settings.similarity, draws=5)
    table = pd.DataFrame({"user_id": users.astype(object), "n_interactions": samples, **columns(scores)})
    keys.scores.mkdir(parents=True)
    table.sort_values("cud", ascending=False, na_position="last").to_parquet(keys.scores / "scores.parquet")
    write_json(keys.scores / "summary.json", {"model": "BPR", "dataset": settings.dataset, "warnings": []})
    write_seal(keys.scores)
    return table.set_index("user_id")


def columns(scores):
    names = ("cud", "percentile", "band", "cud_low", "cud_high", "s_easy", "s_hard", "is_anchor")
    return {name: getattr(scores, name) for name in names}


@pytest.fixture(scope="session")
def forged(tmp_path_factory):
    """Home folder with two stored runs, all users and only some of them, and the tables."""
    home = tmp_path_factory.mktemp("forged") / "home"
    users = load_interactions("ml-100k").users
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECUNLEARN_HOME", str(home))
        table = store(RUN, users)
        store(RATED, users[:-1])
    return SimpleNamespace(home=home, table=table, users=users)


@pytest.fixture
def explain(forged, run_cli, monkeypatch):
    """Run ``explain-user`` on the stored run."""
    monkeypatch.setenv("RECUNLEARN_HOME", str(forged.home))
    return lambda *args: run_cli("explain-user", "--model", "BPR", "--anchors", "bilevel", *args)


def test_contributions_add_up_to_the_stored_score(forged, explain):
    for user in forged.users[[1, 4, 200]]:
        done = explain(user, "--format", "json", "--picture", "none")
        assert done.code == 0, done.err
        data = json.loads(done.out)
        stored = forged.table.loc[user]
        assert data["start"] + sum(e["contribution"] for e in data["edges"]) == pytest.approx(stored["cud"])
        assert (data["cud"], data["band"]) == (pytest.approx(stored["cud"]), stored["band"])
        assert data["rank"] == (forged.table["cud"] > stored["cud"]).sum() + 1
        assert data["anchor"] == {1: "easy", 4: "hard"}.get(list(forged.users).index(user), "")
        assert (data["picture"], data["user_id"]) == (None, user)


def test_table_and_picture(forged, explain, tmp_path):
    user = forged.users[200]
    done = explain(user, "--out", tmp_path / "o")
    assert done.code == 0, done.err
    assert f"User {user} " in done.out
    assert "user[0] -> gmf" in done.out
    assert "input -> interaction" in done.out
    (picture,) = (tmp_path / "o").iterdir()
    rank = (forged.table["cud"] > forged.table.loc[user, "cud"]).sum() + 1
    assert picture.name == f"circuit-rank-{rank}-of-942.png"
    assert str(picture) in done.out


def test_pictures_without_a_folder_lie_with_the_results_and_never_in_the_cache(forged, explain):
    before = sorted((forged.home / "cache").rglob("*"))
    done = explain(forged.users[200], "--picture", "svg")
    assert done.code == 0, done.err
    assert [p.parent for p in forged.home.rglob("*.svg")] == [forged.home / "results" / "ml-100k-BPR"]
    assert sorted((forged.home / "cache").rglob("*")) == before


def test_a_stored_run_is_explained_without_torch(forged):
    code = (
        "import sys; from recunlearn.commands.app import run; "
        f"code = run(['explain-user', '{forged.users[9]}', '--model', 'BPR', '--anchors', 'bilevel']); "
        "heavy = {'torch', 'lightning', 'recbole', 'captum'} & set(sys.modules); print(code, sorted(heavy))"
    )
    environment = {**os.environ, "RECUNLEARN_HOME": str(forged.home)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.strip().endswith("0 []"), done.stderr


def test_help_offers_what_identifies_a_run(run_cli):
    done = run_cli("explain-user", "--help")
    assert done.code == 0
    assert all(option in done.out for option in ("--checkpoint", "--similarity", "--steps", "--picture"))
    assert "--on-missing" not in done.out


def test_an_unknown_user_is_named_with_a_near_miss(explain):
    done = explain("0405")
    assert done.code == 2
    assert "User '0405' is not in the data set 'ml-100k', which has 943 users. Did you mean 405?" in done.err
    assert "'0405' and '405' are two users" in done.err
    assert done.out == ""


def test_an_unknown_user_is_refused_before_anything_is_trained(explain, forged):
    done = explain("no-such-user", "--seed", "77")
    assert done.code == 2
    assert "'no-such-user' is not in the data set 'ml-100k'" in done.err
    assert not (forged.home / "models").exists()


def test_users_without_a_score_are_told_why(forged, explain):
    absent = explain(forged.users[0])
    assert absent.code == 2
    assert "has no score: none of its interactions is in the training part" in absent.err
    filtered = explain(forged.users[-1], "--min-rating", "5")
    assert filtered.code == 2
    assert "the minimum rating leaves it without an interaction" in filtered.err


BAD = {
    ("405", "--format", "csv"): "'csv' is not one of 'table', 'json'",
    ("405", "--picture", "pdf"): "'pdf' is not one of 'png', 'svg', 'none'",
    ("405", "--checkpoint", "nowhere"): "nowhere is no trained model",
    ("405", "--dataset", "ml-1k"): "Unknown data set 'ml-1k'. Did you mean ml-100k?",
    ("405", "--set", "nonsense"): "--set needs KEY=VALUE",
    ("405", "406"): "unexpected extra argument",
    (): "Missing argument 'ID'",
}


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_arguments_get_one_sentence(explain, arguments):
    done = explain(*arguments)
    assert done.code in (1, 2)
    assert BAD[arguments] in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert done.out == ""


def test_a_folder_that_is_a_file_is_refused(explain, tmp_path):
    (tmp_path / "file").write_text("")
    done = explain("405", "--out", tmp_path / "file")
    assert done.code == 1
    assert "file is a file, but --out needs a folder" in done.err


def test_circuits_of_an_older_version_are_named(forged, run_cli, monkeypatch, tmp_path):
    shutil.copytree(forged.home, tmp_path / "copy")
    monkeypatch.setenv("RECUNLEARN_HOME", str(tmp_path / "copy"))
    folder = keys_for(RUN).circuits
    (folder / "hashes.json").unlink()
    write_json(
        folder / "manifest.json", {**json.loads((folder / "manifest.json").read_text()), "graph": None}
    )
    done = run_cli("explain-user", "405", "--model", "BPR", "--anchors", "bilevel")
    assert done.code == 1
    assert "before circuits carried their graph. Delete that folder" in done.err


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """Home folder with a log of 60 users, and a settings file for a run of seconds."""
    folder = tmp_path_factory.mktemp("explain")
    log = load_interactions("ml-100k")
    rows = (log.user < 60) & (log.item < 200)
    frame = pd.DataFrame({"user_id": log.users[log.user], "item_id": log.items[log.item]})[rows]
    frame.to_csv(folder / "small.csv", index=False)
    (folder / "run.toml").write_text(
        'dataset = "small"\nmodel = "BPR"\n[training]\nepochs = 1\nparams = {embedding_size = 8}\n'
        '[circuits]\nsteps = 2\n[anchors]\npool = 20\ncount = 3\nmethods = ["GradDiff"]\nseeds = 1\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECUNLEARN_HOME", str(folder / "home"))
        from recunlearn.commands.app import run

        assert run(["data", "add", "small", "--file", str(folder / "small.csv")]) == 0
    return SimpleNamespace(folder=folder, user=str(frame["user_id"].iloc[0]))


def test_a_run_that_is_missing_is_made_and_what_is_lost_is_made_again(small, run_cli, monkeypatch):
    monkeypatch.setenv("RECUNLEARN_HOME", str(small.folder / "home"))
    arguments = ("explain-user", small.user, "--config", small.folder / "run.toml", "--picture", "none")
    first = run_cli(*arguments, "--format", "json")
    assert first.code == 0, first.err
    data = json.loads(first.out)
    assert data["start"] + sum(e["contribution"] for e in data["edges"]) == pytest.approx(data["cud"])
    assert sum(data["layers"].values()) == pytest.approx(data["cud"] - data["start"])
    (stored,) = (small.folder / "home" / "cache" / "circuits").iterdir()
    shutil.rmtree(stored)
    again = run_cli(*arguments, "--format", "json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["sentence"] == data["sentence"]
    assert stored.is_dir()
