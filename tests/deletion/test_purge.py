"""A canary user goes through everything that is stored, is purged, and is found nowhere afterwards."""

import hashlib
import hmac
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from recunlearn.data.catalogue import load_interactions
from recunlearn.data.tombstones import Erasure, is_deleted, is_tombstone, survivors
from recunlearn.deletion import inventory
from recunlearn.deletion import purge as purging
from recunlearn.deletion.inventory import KINDS, Stored, stored, unknown
from recunlearn.deletion.purge import purge
from recunlearn.deletion.scan import scan
from recunlearn.deletion.wanted import rows_of
from recunlearn.foundation import paths
from recunlearn.foundation.errors import CheckpointError, UsageError
from recunlearn.foundation.records import Anchors, Circuits, Outcomes, load_record, save_record

CANARY = "canary-7f3a"
RUN = """
dataset = "small"
model = "BPR"
[training]
epochs = 4
params = {embedding_size = 4, learning_rate = 0.02}
[anchors]
pool = 20
count = 4
methods = ["GradAscent", "NPO"]
seeds = 1
retrain_seeds = 2
[circuits]
steps = 2
"""


def key(user):
    return hmac.new(b"secret", user.encode(), hashlib.sha256).hexdigest()


def plant(folder):
    """A log of 48 users, one of them the canary, with times."""
    log = load_interactions("ml-100k")
    rows = np.flatnonzero((log.user < 48) & (log.item < 150))
    users = np.where(log.user == 5, CANARY, np.char.add("u", log.users.astype(str)[log.user]))
    frame = pd.DataFrame({"user_id": users, "item_id": log.items[log.item], "timestamp": log.time})
    frame.iloc[rows].to_csv(folder / "small.csv", index=False)


def after(folder, checkpoint):
    """The unlearned checkpoint on the data without the canary."""
    from recunlearn.subjects.recbole.after_deletion import after_deletion
    from recunlearn.subjects.recbole.store import load_subject, save_subject

    log = load_interactions("small")
    subject = load_subject(checkpoint, log)
    new = after_deletion(subject, subject.model, survivors(log, [Erasure(CANARY)]))
    save_subject(new, folder)
    return folder


@pytest.fixture(scope="session")
def used(tmp_path_factory):
    """Home folder in which every command was run on a log with the canary."""
    folder = tmp_path_factory.mktemp("purge")
    plant(folder)
    (folder / "run.toml").write_text(RUN)
    (folder / "users.csv").write_text(f"user_id\n{CANARY}\nu7\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECUNLEARN_HOME", str(folder / "home"))
        from recunlearn.commands.app import run

        config, users = ["--config", str(folder / "run.toml")], ["--users", str(folder / "users.csv")]
        assert run(["data", "add", "small", "--file", str(folder / "small.csv")]) == 0
        assert run(["score-users", *config]) == 0
        assert run(["explain-user", "u7", *config, "--picture", "svg"]) == 0
        assert run(["unlearn", *config, *users, "--method", "GradAscent", "--set", "batch_size=64"]) == 0
        (model,) = [p for p in paths.models().iterdir() if p.is_dir() and "GradAscent" not in p.name]
        new = after(paths.models() / "small-BPR-after", model)
    return SimpleNamespace(folder=folder, home=folder / "home", model=model.name, new=new.name)


@pytest.fixture
def copied(used, home):
    """A copy of that home for one test."""
    shutil.copytree(used.home, home)
    return SimpleNamespace(home=home, model=paths.models() / used.model, new=paths.models() / used.new)


def leave_over(home):
    """What kills at bad moments leave behind: half a file, half a folder, a journal, shards, parts."""
    (home / "cache" / "scores" / ".abc.123.tmp").mkdir()
    (home / "cache" / "scores" / ".abc.123.tmp" / "scores.csv").write_text(f"user_id\n{CANARY}\n")
    (home / "data" / ".small.xyz.old").mkdir()
    (home / "data" / ".small.xyz.old" / "log.txt").write_text(CANARY)
    (home / "exports" / "small-BPR-x-data").mkdir(parents=True)
    (home / "exports" / "small-BPR-x-data" / "small.inter").write_text(f"user_id:token\n{CANARY}\n")
    (home / "models" / "small-NeuMF-0123.work").mkdir()
    (home / "models" / "small-NeuMF-0123.work" / "last.ckpt").write_text(CANARY)
    for place in ("models", "own/abc", "membership/references-1"):
        (home / "cache" / "benchmark" / place).mkdir(parents=True)
        (home / "cache" / "benchmark" / place / "x.safetensors").write_text(CANARY)


def test_the_canary_is_found_nowhere_afterwards(copied):
    leave_over(copied.home)
    rows = rows_of(load_interactions("small"), [CANARY])
    before = scan(copied.home, [CANARY], rows=rows)
    assert {Path(f.path).parts[0] for f in before} == {"cache", "data", "exports", "models", "results"}
    assert any(f.kind == "rows" for f in before)
    report = purge("small", [CANARY], keep=[copied.new], key=key)
    assert scan(copied.home, [CANARY], rows=rows) == []
    assert is_deleted("small", CANARY, key)
    assert (copied.new / "manifest.json").is_file()
    assert not copied.model.exists()
    assert unknown() == []
    kinds = Counter(place.rsplit("/", 1)[0] for place in report.rewritten)
    assert kinds == {"data": 1, "cache/circuits": 1, "cache/scores": 1, "results": 1, **_in_pool(report)}
    assert f"models/{copied.model.name}" in report.removed
    assert any(p.endswith("small-NeuMF-0123.work") for p in report.removed)
    assert any("small.csv" in place for place in report.outside)
    assert CANARY not in json.dumps(report.to_plain())


def _in_pool(report):
    """The pool of the probe is drawn: the canary may be in it."""
    return Counter(p.rsplit("/", 1)[0] for p in report.rewritten if p.startswith("cache/probe/"))


def test_the_new_checkpoint_is_scored_afterwards(copied, used, run_cli):
    purge("small", [CANARY], keep=[copied.new], key=key)
    done = run_cli(
        "score-users", "--config", used.folder / "run.toml", "--checkpoint", copied.new, "--format", "csv"
    )
    assert done.code == 0, done.err
    assert "deleted" not in done.out
    assert len(done.out.splitlines()) == 1 + len(load_interactions("small").users) == 48
    run = ["--config", used.folder / "run.toml", "--checkpoint", copied.new]
    for command in (
        ["explain-user", "u7", "--picture", "none"],
        ["circuits", "signatures", "--out", copied.home / "s"],
    ):
        done = run_cli(*command, *run)
        assert done.code == 0, done.err


def test_the_same_purge_again_reports_the_same(copied):
    first = purge("small", [CANARY], keep=[copied.new], key=key)
    files = {p: p.stat().st_mtime_ns for p in copied.home.rglob("*") if p.is_file()}
    assert purge("small", [CANARY], keep=[copied.new], key=key) == first
    assert {p: p.stat().st_mtime_ns for p in copied.home.rglob("*") if p.is_file()} == files


@pytest.mark.parametrize("moment", [0, 3])
def test_a_killed_purge_is_completed(copied, used, monkeypatch, moment):
    """Killed before its n-th step; the second call does the rest and reports both."""
    whole = purge("small", [CANARY], keep=[copied.new], key=key)
    shutil.rmtree(copied.home)
    shutil.copytree(used.home, copied.home)
    steps = iter(range(100))
    treat = purging._treat

    def dying(*args):
        if args[1] != "keep" and next(steps) == moment:
            raise KeyboardInterrupt
        treat(*args)

    with monkeypatch.context() as patch:
        patch.setattr(purging, "_treat", dying)
        with pytest.raises(KeyboardInterrupt):
            purge("small", [CANARY], keep=[copied.new], key=key)
    assert purge("small", [CANARY], keep=[copied.new], key=key) == whole
    assert scan(copied.home, [CANARY]) == []


def test_another_data_set_keeps_what_is_its_own(copied):
    shutil.copytree(copied.home / "data" / "small", copied.home / "data" / "other")
    kept = {
        s.path for s in stored() if s.owner == "small" and s.kind.name in ("model", "circuits", "score table")
    }
    assert len(kept) >= 4
    report = purge("other", [CANARY], key=key)
    assert report.rewritten == ("data/other",)
    assert all(path.exists() for path in kept)
    assert CANARY in load_interactions("small").users


def test_a_single_rating_takes_what_was_made_with_it(copied):
    log = load_interactions("small")
    item = str(log.items[log.item[log.users[log.user] == "u7"][0]])
    purge("small", [], key=key, erasures=[Erasure("u7", item)])
    assert "u7" in load_interactions("small").users
    assert not [s for s in stored() if s.kind.name in ("model", "circuits", "score table", "exported tables")]


def test_what_is_refused(copied):
    with pytest.raises(CheckpointError, match="still has a user to purge"):
        purge("small", [CANARY], keep=[copied.model], key=key)
    with pytest.raises(UsageError, match="1 of the users to delete are not in the data set"):
        purge("small", ["nobody"], key=key)
    with pytest.raises(UsageError, match="Unknown data set"):
        purge("smal", [CANARY], key=key)
    assert CANARY in load_interactions("small").users
    assert copied.model.exists()


def test_rows_of_records_go_one_by_one(tmp_path):
    """Users a, b, c; b goes, and what belongs to a and c stays in place."""
    from recunlearn.deletion.rewriting import MustGoError, record_actions

    who = np.array(["a", "b", "c"])
    three = np.arange(3, dtype=np.float32)
    save_record(Circuits(who, ("e",), three[:, None], three, np.arange(3), {}), tmp_path / "circuits")
    losses = [three, three + np.zeros((2, 1, 1), np.float32), three + np.zeros((1, 1), np.float32), three]
    save_record(Outcomes(who, ("m", "n"), (0,), *losses), tmp_path / "outcomes")
    flags = np.ones(3, dtype=bool)
    save_record(Anchors(who, three, np.array([0]), np.array([2]), flags), tmp_path / "anchors")
    save_record(Anchors(who, three, np.array([1]), np.array([2]), flags), tmp_path / "chosen")
    for name in ("circuits", "outcomes", "anchors"):
        for act in record_actions(tmp_path / name, {"b"}):
            act()
        assert record_actions(tmp_path / name, {"b"}) == []
    assert load_record(Circuits, tmp_path / "circuits").values.tolist() == [[0], [2]]
    assert load_record(Outcomes, tmp_path / "outcomes").loss_after.tolist() == [[[0, 2]], [[0, 2]]]
    anchors = load_record(Anchors, tmp_path / "anchors")
    assert (anchors.easy.tolist(), anchors.hard.tolist()) == ([0], [1])
    assert anchors.entities[anchors.hard].tolist() == ["c"]
    with pytest.raises(MustGoError):
        record_actions(tmp_path / "chosen", {"b"})


PLACES = {
    ("home", "keys"),
    ("home", "ledger"),
    ("home", "results"),
    ("cache", "benchmark"),
    ("cache", "validity"),
    ("cache", "ml-100k-hash.json"),
    ("cache", "name"),  # circuits, probe and scores, in studies/keys.py
    ("deletions", "purges"),
}
"""Places below the home that the code names; anything below ``models`` and ``data`` is of their kinds."""


def test_a_new_place_in_the_home_must_be_in_the_inventory():
    """A new place fails here: give it a kind in ``deletion/inventory.py``, then name it above."""
    package = Path(inventory.__file__).parents[1]
    call = re.compile(r"\bpaths\.(home|cache|deletions)\(\)\s*/\s*(?:f?\"([^\"/{]+)|(\w+))")
    found = set()
    for file in package.rglob("*.py"):
        text = file.read_text()
        found |= {(root, literal or name) for root, literal, name in call.findall(text)}
        if "from recunlearn.foundation.paths import" in text:
            assert file.name == "delete_users.py", f"{file}: write paths.home(), so that this test sees it"
    assert found - {("deletions", "f")} == PLACES


def test_kinds_are_told_apart(home):
    for place, kind in (
        ("models/small-BPR-1.work/shards/x", "work folder"),
        ("models/small-BPR-1/manifest.json", "model"),
        ("cache/probe/abc.parts/d/x", "probe parts"),
        ("cache/probe/abc/manifest.json", "anchors"),
        ("ledger/jobs/small-BPR-scores.parquet", "scores that stand"),
    ):
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        (home / place).write_text("{}")
        path = home / Path(*Path(place).parts[: len(Path(KINDS[0].place).parts) + (place[0] in "cl")])
        found = [s.kind.name for s in stored() if s.path == path]
        assert found == [kind], place
    (home / "surprise").mkdir()
    (home / "surprise" / "x.csv").write_text("")
    assert unknown() == [home / "surprise" / "x.csv"]


@pytest.mark.parametrize(
    ("work", "owner"),
    [("shop-eu-BPR-1.work", "shop-eu"), ("shop-BPR-1.work", "shop"), ("gone-BPR-1.work", None)],
)
def test_a_work_folder_belongs_to_the_longest_name(home, work, owner):
    for name in ("shop", "shop-eu"):
        (home / "data" / name).mkdir(parents=True)
    (home / "models" / work).mkdir(parents=True)
    kind = next(k for k in KINDS if k.name == "work folder")
    assert Stored(home / "models" / work, kind).owner == owner


def test_tombstones_stay_in_the_kept_id_map(copied):
    purge("small", [CANARY], keep=[copied.new], key=key)
    users = json.loads((copied.new / "idmap.json").read_text())["users"]
    assert sum(map(is_tombstone, users)) == 1
