import json

import numpy as np
import pandas as pd
import pytest

from recunlearn.commands.requested import read_users
from recunlearn.data.catalogue import load_interactions
from recunlearn.foundation.errors import DataError
from recunlearn.foundation.settings import ScoreSettings
from recunlearn.foundation.store import write_json
from recunlearn.studies.forget_sets import load_sets, read_scores
from recunlearn.studies.keys import keys_for


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    n = 300
    counts = np.maximum(rng.lognormal(4, 0.8, n), 1).astype(int)
    frame = pd.DataFrame(
        {
            "user_id": [f"0{i}" for i in range(n)],
            "n_interactions": counts,
            "cud": rng.random(n),
            "is_anchor": np.arange(n) < 20,
            "mean_item_popularity": rng.gamma(5, 20, n),
        }
    )
    frame.loc[n - 1, ["n_interactions", "cud", "mean_item_popularity"]] = [0, np.nan, np.nan]
    return frame


@pytest.fixture
def scores(table, tmp_path):
    folder = tmp_path / "scores"
    folder.mkdir()
    table.to_csv(folder / "scores.csv", index=False)
    return folder


def test_sets_are_written_with_a_manifest(scores, table, tmp_path, run_cli):
    done = run_cli("forget-sets", "--scores", scores, "--out", tmp_path / "sets", "--fraction", "0.05")
    assert done.code == 0, done.err
    manifest = json.loads((tmp_path / "sets" / "manifest.json").read_text())
    assert [s["name"] for s in manifest["sets"]][:4] == ["easy-0", "easy-1", "easy-2", "hard-0"]
    assert {s["users"] for s in manifest["sets"]} == {15}  # 299 active users · .05 = 14.95
    totals = [s["interactions"] for s in manifest["sets"]]
    assert max(totals) <= 1.05 * min(totals)
    loaded = load_sets(tmp_path / "sets")
    anchors = set(table["user_id"][table["is_anchor"]])
    for one, entry in zip(loaded, manifest["sets"], strict=True):
        assert one.hash == entry["hash"]
        assert not anchors & set(one.entities)
        assert read_users(tmp_path / "sets" / entry["file"]) == one.entities.tolist()
    assert "easy-0" in done.out
    assert not any(f" {user} " in done.out + done.err for user in loaded[0].entities)


def test_same_seed_same_files_and_other_formats_read_alike(scores, table, tmp_path, run_cli):
    table.to_parquet(tmp_path / "one.parquet", index=False)
    table.sample(frac=1, random_state=1).to_json(tmp_path / "one.json", orient="records")
    manifests = []
    for source in (scores / "scores.csv", scores, tmp_path / "one.parquet", tmp_path / "one.json"):
        done = run_cli("forget-sets", "--scores", source, "--out", tmp_path / "sets", "--format", "json")
        assert done.code == 0, done.err
        manifests.append([s["hash"] for s in json.loads(done.out)["sets"]])
    assert all(m == manifests[0] for m in manifests)
    other = run_cli(
        "forget-sets", "--scores", scores, "--out", tmp_path / "o", "--seed", 1, "--format", "json"
    )
    assert not set(manifests[0]) & {s["hash"] for s in json.loads(other.out)["sets"]}


def test_own_list(scores, tmp_path, run_cli):
    listed = tmp_path / "mine.txt"
    listed.write_text("025\n030\n")
    done = run_cli("forget-sets", "--scores", scores, "--users", listed, "--out", tmp_path / "sets")
    assert done.code == 0, done.err
    (own,) = load_sets(tmp_path / "sets")
    assert sorted(own.entities) == ["025", "030"]
    assert own.stratum == "own"


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ("03\n025\n", "1 of the 2 listed users are anchors"),
        ("025\nnobody\n", "1 of the 2 users in"),
        ("0299\n", "have no training interaction"),
        ("\n".join(f"0{i}" for i in range(300)), "names all 299 users"),
        ("", "holds no users"),
    ],
)
def test_own_lists_that_cannot_be_used(scores, tmp_path, run_cli, ids, words):
    listed = tmp_path / "mine.txt"
    listed.write_text(ids)
    done = run_cli("forget-sets", "--scores", scores, "--users", listed, "--out", tmp_path / "sets")
    assert done.code in (1, 2)
    assert words in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "sets").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--fraction", "0.0001"], "rounds to zero"),
        (["--fraction", "0.9"], "may hold at most"),
        (["--strata", "easy,hrad"], "Did you mean hard?"),
        (["--strata", ""], "Name each stratum once"),
        (["--model", "BPR"], "--model cannot go with --scores"),
    ],
)
def test_mistakes_are_one_sentence(scores, tmp_path, run_cli, options, words):
    done = run_cli("forget-sets", "--scores", scores, "--out", tmp_path / "sets", *options)
    assert done.code == 2
    assert words in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "sets").exists()


def test_no_folder_and_no_table(scores, tmp_path, run_cli):
    assert "--out is missing" in run_cli("forget-sets", "--scores", scores).err
    for path, words in (
        (tmp_path / "absent.csv", "holds no score table"),
        (tmp_path, "holds no score table"),
        (scores / "other.txt", "is no score table"),
    ):
        (scores / "other.txt").write_text("x")
        done = run_cli("forget-sets", "--scores", path, "--out", tmp_path / "sets")
        assert done.code == 1
        assert words in done.err


def test_a_table_without_its_columns_is_named(tmp_path):
    (tmp_path / "scores.csv").write_text("user_id,cud\n1,0.5\n")
    with pytest.raises(
        DataError, match="columns n_interactions, is_anchor, mean_item_popularity are missing"
    ):
        read_scores(tmp_path)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("", "is a score table without users"),
        ("1,5,0.5,False,3\n1,5,0.5,False,3\n", "1 of its rows repeat a user"),
        ("1,5,0.5,False,3\n2,many,0.5,False,3\n", "n_interactions is 'many' in row 2, but a count"),
        ("1,,0.5,False,3\n", "n_interactions is '' in row 1"),
        ("1,-5,0.5,False,3\n", "n_interactions is '-5' in row 1"),
        ("1,5,hard,False,3\n", "cud is 'hard' in row 1, but a number"),
        ("1,5,inf,False,3\n", "cud is 'inf' in row 1"),
        ("1,5,0.5,False,much\n", "mean_item_popularity is 'much' in row 1"),
    ],
)
def test_a_table_that_was_spoilt_by_hand_is_refused(tmp_path, rows, words):
    head = "user_id,n_interactions,cud,is_anchor,mean_item_popularity\n"
    (tmp_path / "scores.csv").write_text(head + rows)
    with pytest.raises(DataError, match=words):
        read_scores(tmp_path)


def test_users_without_a_score_and_a_popularity_are_read(tmp_path):
    head = "user_id,n_interactions,cud,is_anchor,mean_item_popularity\n"
    (tmp_path / "scores.csv").write_text(head + "1,5,0.5,False,3\n2,0,,False,\n")
    assert read_scores(tmp_path)[0]["cud"].isna().tolist() == [False, True]


def test_changed_sets_are_refused(scores, tmp_path, run_cli):
    folder = tmp_path / "sets"
    run_cli("forget-sets", "--scores", scores, "--out", folder, "--strata", "easy", "--draws", "1")
    file = folder / "easy-0.csv"
    file.write_text(file.read_text().rsplit("\n", 2)[0] + "\n")
    with pytest.raises(DataError, match="was changed after it was drawn"):
        load_sets(folder)
    file.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        load_sets(folder)
    write_json(folder / "manifest.json", {"sets": 3})
    with pytest.raises(DataError, match="describes no forget sets"):
        load_sets(folder)


def test_probed_users_are_avoided_and_counted(scores, table, tmp_path, run_cli, home):
    settings = ScoreSettings()
    keys = keys_for(settings)
    pool = table["user_id"][50:100].tolist()
    write_json(keys.probe / "manifest.json", {"entities": pool})
    summary = {"dataset": "ml-100k", "model": "NeuMF", "settings": settings.model_dump(mode="json")}
    write_json(scores / "summary.json", {**summary, "model_folder": str(keys.model)})
    done = run_cli("forget-sets", "--scores", scores, "--out", tmp_path / "sets", "--format", "json")
    found = json.loads(done.out)
    assert found["scores"]["model"] == "NeuMF"
    assert [s["probed"] for s in found["sets"]] == [0] * 15
    assert not any(set(pool) & set(one.entities) for one in load_sets(tmp_path / "sets"))
    write_json(scores / "summary.json", {**summary, "model_folder": "elsewhere"})
    again = json.loads(
        run_cli("forget-sets", "--scores", scores, "--out", tmp_path / "o", "--format", "json").out
    )
    assert [s["probed"] for s in again["sets"]] == [None] * 15


def test_sets_of_a_run_and_of_its_exported_table_are_the_same(tmp_path, run_cli):
    log = load_interactions("ml-100k")
    rows = (log.user < 100) & (log.item < 200)
    frame = pd.DataFrame({"user_id": log.users[log.user], "item_id": log.items[log.item]})[rows]
    frame.to_csv(tmp_path / "cut.csv", index=False)
    (tmp_path / "run.toml").write_text(
        'dataset = "cut"\nmodel = "BPR"\n[training]\nepochs = 2\nparams = {embedding_size = 8}\n'
        '[circuits]\nsteps = 4\n[anchors]\npool = 30\ncount = 5\nmethods = ["GradDiff"]\nseeds = 1\n'
    )
    assert run_cli("data", "add", "cut", "--file", tmp_path / "cut.csv").code == 0
    made = run_cli(
        "forget-sets", "--config", tmp_path / "run.toml", "--out", tmp_path / "a", "--fraction", 0.1
    )
    assert made.code == 0, made.err
    exported = run_cli("score-users", "--config", tmp_path / "run.toml", "--out", tmp_path / "scores")
    assert exported.code == 0, exported.err
    read = run_cli("forget-sets", "--scores", tmp_path / "scores", "--out", tmp_path / "b", "--fraction", 0.1)
    assert read.code == 0, read.err
    first, second = (json.loads((tmp_path / f / "manifest.json").read_text()) for f in "ab")
    assert first == second
    assert {s["probed"] for s in first["sets"]} != {None}
    assert {s["anchors"] for s in first["sets"]} == {0}


@pytest.mark.parametrize("fraction", ["0", "2", "nan"])
@pytest.mark.parametrize("command", [("forget-sets",), ("tofu", "forget-sets", "--model", "any")])
def test_an_impossible_fraction_is_refused_before_anything_is_scored(run_cli, tmp_path, command, fraction):
    done = run_cli(*command, "--out", tmp_path / "sets", "--fraction", fraction)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: The fraction must lie between 0 and 1, but got {fraction}.\n"
