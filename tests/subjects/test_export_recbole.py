"""Exports are read by RecBole itself, in a process that does not know this program's classes."""

import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_recbole_subject import make, small_data

from recunlearn.data.catalogue import load_interactions
from recunlearn.data.left_out import keep_rows
from recunlearn.data.storage import write_data_set
from recunlearn.data.tombstones import bury
from recunlearn.foundation import paths
from recunlearn.foundation.errors import CheckpointError, RecunlearnError, UsageError
from recunlearn.subjects.recbole.after_deletion import after_deletion
from recunlearn.subjects.recbole.export import export_recbole
from recunlearn.subjects.recbole.store import save_subject

PLAIN = """
import json, sys, types, warnings
warnings.simplefilter("ignore")
import numpy as np, scipy.sparse, torch
scipy.sparse.dok_matrix._update = lambda matrix, values: matrix._dict.update(values)
for name, kind in (("float", np.float64), ("float_", np.float64), ("bool8", np.bool_), ("long", np.int64)):
    setattr(np, name, kind) if name not in vars(np) else None
sys.modules["ray"] = ray = types.ModuleType("ray")
ray.tune = types.SimpleNamespace()
load = torch.load
torch.load = lambda *a, **k: load(*a, **{**k, "weights_only": False})
from recbole.quick_start import load_data_and_model
from recbole.utils import get_trainer
found = {}
for file in sys.argv[1:]:
    config, model, dataset, train, valid, test = load_data_and_model(file)
    trainer = get_trainer(config["MODEL_TYPE"], config["model"])(config, model)
    trainer.resume_checkpoint(file)
    evaluated = trainer.evaluate(test, load_best_model=False)
    found[file] = {
        "users": list(map(str, dataset.field2id_token["user_id"][1:])),
        "test": {k: float(v) for k, v in evaluated.items()},
        "epoch": trainer.start_epoch,
        "score": float(trainer.best_valid_score),
        "ours": sorted(m for m in sys.modules if m.startswith("recunlearn")),
    }
print(json.dumps(found))
"""


def imported(data):
    """Users and items in order of first appearance, as an import numbers them."""
    return keep_rows(data, np.ones(len(data), dtype=bool))


MODELS = ("NeuMF", "LightGCN", "DeepFM", "SASRec")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Checkpoints before and after a deletion, and what RecBole says about their exports."""
    folder = tmp_path_factory.mktemp("exports")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECUNLEARN_HOME", str(folder / "home"))
        write_data_set(imported(small_data()), paths.data_sets() / "small")
        data, subjects = load_interactions("small"), {}
        for name in MODELS:
            subjects[f"{name}-before"] = make(name, folder, data, epochs=1)
            export_recbole(folder / name, folder / "out" / f"{name}-before.pth")
        bury("small", ["01", "ü 4"], lambda user: f"hash of {len(user)}")
        left = load_interactions("small")
        for name in MODELS:
            before = subjects[f"{name}-before"]
            after = subjects[f"{name}-after"] = after_deletion(before, before.model, left)
            save_subject(after, folder / f"{name}-after")
            export_recbole(folder / f"{name}-after", folder / "out" / f"{name}-after.pth")
    files = sorted((folder / "out").glob("*.pth"))
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, *map(str, files)],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    return {Path(k).stem: v for k, v in told.items()}, subjects, folder


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("model", MODELS)
def test_recbole_finds_the_same_metrics(exported, model, when):
    told, subjects, _ = exported
    found, subject = told[f"{model}-{when}"], subjects[f"{model}-{when}"]
    assert found["ours"] == []
    assert found["epoch"] == subject.epochs
    assert found["score"] == pytest.approx(subject.metrics["valid"][subject.main_metric])
    expected = subject.metrics["test"]
    # RecBole rounds its figures to four places.
    assert {k: found["test"][k] for k in expected} == pytest.approx(expected, abs=6e-5)
    assert len(found["users"]) == (30 if when == "before" else 28)
    assert ("01" in found["users"]) == (when == "before")


def test_no_deleted_id_leaves(exported):
    _, _, folder = exported
    for file in (folder / "out").glob("*-after.pth"):
        with zipfile.ZipFile(file) as archive:
            content = b"".join(archive.read(n) for n in archive.namelist())
        assert "ü 4".encode() not in content
        assert b"recunlearn" not in content
        for table in file.with_name(f"{file.stem}-data").rglob("*.*"):
            assert "ü 4" not in table.read_text(), table


def test_what_is_refused(exported, tmp_path, monkeypatch):
    _, _, folder = exported
    monkeypatch.setenv("RECUNLEARN_HOME", str(folder / "home"))
    with pytest.raises(UsageError, match=r"is a \.pth file"):
        export_recbole(folder / "NeuMF-after", tmp_path / "model.bin")
    with pytest.raises(CheckpointError, match="is no trained model"):
        export_recbole(tmp_path, tmp_path / "model.pth")
    with pytest.raises(CheckpointError, match="other contents"):
        export_recbole(folder / "NeuMF", tmp_path / "model.pth")
    assert list(tmp_path.iterdir()) == []


def test_nothing_but_an_earlier_export_is_replaced(tmp_path):
    write_data_set(imported(small_data()), paths.data_sets() / "small")
    make("BPR", tmp_path, load_interactions("small"), epochs=1)
    target, data = tmp_path / "x.pth", tmp_path / "x-data" / "small"
    data.mkdir(parents=True)
    (data / "small.inter").write_text("mine")
    with pytest.raises(UsageError, match=r"x-data, where more lies than an earlier export wrote"):
        export_recbole(tmp_path / "BPR", target)
    assert (data / "small.inter").read_text() == "mine"
    assert not target.exists()
    (data / "small.inter").unlink()
    data.rmdir()
    export_recbole(tmp_path / "BPR", target)
    written = (data / "small.train.inter").read_bytes()
    export_recbole(tmp_path / "BPR", target)
    assert (data / "small.train.inter").read_bytes() == written
    (data / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="name another file with --out"):
        export_recbole(tmp_path / "BPR", target)
    (tmp_path / "y.pth").mkdir()
    with pytest.raises(UsageError, match=r"y\.pth is a folder"):
        export_recbole(tmp_path / "BPR", tmp_path / "y.pth")
    assert not (tmp_path / "y-data").exists()


def test_ids_that_recbole_would_lose(tmp_path):
    data = small_data()
    users = data.users.copy()
    users[3] = "NA"
    data = replace(data, users=users, user_features=None, item_features=None, name="na")
    write_data_set(imported(data), paths.data_sets() / "na")
    make("BPR", tmp_path, load_interactions("na"), epochs=1)
    with pytest.raises(RecunlearnError, match="id such as NA"):
        export_recbole(tmp_path / "BPR", tmp_path / "x.pth")
    assert not (tmp_path / "x.pth").exists()


def test_tables_of_equal_size_are_told_apart_by_name(tmp_path):
    from recunlearn.subjects.recbole.renumber import renumbered

    class Two(torch.nn.Module):
        def __init__(self, n):
            super().__init__()
            self.user_table, self.item_table = torch.nn.Embedding(n, 2), torch.nn.Embedding(n, 2)

    old, new = Two(4), Two(3)
    before = {"user_id": ["a", "b", "c"], "item_id": ["x", "y", "z"]}
    moved = renumbered(old, new, before, {"user_id": ["c", "a"], "item_id": ["y", "z"]})
    assert torch.equal(moved["user_table.weight"], old.user_table.weight[[0, 3, 1]])
    assert torch.equal(moved["item_table.weight"], old.item_table.weight[[0, 2, 3]])
    with pytest.raises(CheckpointError, match="cannot be told"):
        renumbered(
            torch.nn.Embedding(4, 2),
            torch.nn.Embedding(3, 2),
            before,
            {"user_id": ["c", "a"], "item_id": ["x", "y"]},
        )
    assert np.isfinite(moved["user_table.weight"].detach().numpy()).all()
