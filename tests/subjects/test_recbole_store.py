"""Checkpoints of our own, training that resumes after a kill, and every way in which they can be broken."""

import copy
import errno
import json
import multiprocessing
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_recbole_subject import make, small_data

from recunlearn.foundation.errors import CheckpointError, RecunlearnError, UsageError
from recunlearn.foundation.settings import ScoreSettings, TrainingSettings
from recunlearn.subjects.recbole import store, training
from recunlearn.subjects.recbole.bundle import make_bundle
from recunlearn.subjects.recbole.resume import Journal
from recunlearn.subjects.recbole.store import load_subject, train_subject


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    return make("NeuMF", folder), folder / "NeuMF"


@pytest.fixture
def copied(saved, tmp_path):
    return shutil.copytree(saved[1], tmp_path / "copy")


def weights(model):
    return model.state_dict()


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[k], two[k]) for k in one)


def test_a_loaded_model_is_the_trained_one(saved):
    subject, folder = saved
    loaded = load_subject(folder, small_data())
    assert same(weights(loaded.model), weights(subject.model))
    assert dict(loaded.describe()) == dict(subject.describe())
    assert loaded.metrics == subject.metrics
    assert loaded.popularity_metrics == subject.popularity_metrics
    assert loaded.entities.tolist() == subject.entities.tolist()


def test_checkpoint_holds_weights_manifest_and_id_map_only(saved):
    subject, folder = saved
    assert sorted(p.name for p in folder.iterdir()) == ["idmap.json", "manifest.json", "weights.safetensors"]
    id_map = json.loads((folder / "idmap.json").read_text())
    assert id_map["users"] == subject.entities.tolist()
    manifest = (folder / "manifest.json").read_text()
    assert str(folder.parent) not in manifest
    assert not any(user in manifest for user in subject.entities if user.startswith("ü"))
    assert not folder.with_name("NeuMF.work").exists()


def test_graph_models_come_back_with_their_graph(tmp_path):
    subject = make("LightGCN", tmp_path)
    loaded = load_subject(tmp_path / "LightGCN", small_data())
    one, two = (next(s.batches(batch_size=400)) for s in (subject, loaded))
    assert torch.equal(subject.log_likelihood(subject.model, one), loaded.log_likelihood(loaded.model, two))


@pytest.mark.parametrize("name", ["weights.safetensors", "manifest.json", "idmap.json"])
def test_missing_file(copied, name):
    (copied / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        load_subject(copied, small_data())


def test_truncated_weights(copied):
    path = copied / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match="truncated or was altered"):
        load_subject(copied, small_data())


def test_tampered_weights(copied):
    path = copied / "weights.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"its hash is not the one in manifest\.json"):
        load_subject(copied, small_data())


def test_weights_of_another_model(copied, tmp_path):
    make("BPR", tmp_path)
    path = copied / "weights.safetensors"
    shutil.copy(tmp_path / "BPR" / path.name, path)
    manifest = json.loads((copied / "manifest.json").read_text())
    manifest["weights_hash"] = store.file_hash(path)
    (copied / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="do not fit the model NeuMF"):
        load_subject(copied, small_data())


def test_broken_manifest(copied):
    (copied / "manifest.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read as JSON"):
        load_subject(copied, small_data())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kind": "other"}, "does not describe a trained recommender"),
        ({"format": None}, r"another version \(format None"),
        ({"params": []}, "has no usable params"),
        ({"seed": "a", "data": 3}, "has no usable data and seed"),
        ({"metrics": {"test": []}}, "has no usable metrics"),
        ({"popularity_metrics": {"test": {"ndcg@10": "x"}}}, "has no usable popularity_metrics"),
    ],
)
def test_a_manifest_with_other_values_is_refused(copied, change, sentence):
    path = copied / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CheckpointError, match=sentence + ".* Delete the folder .*copy and run"):
        load_subject(copied, small_data())


def test_other_data(saved):
    with pytest.raises(CheckpointError, match="trained on the data set 'small' with other contents"):
        load_subject(saved[1], small_data(seed=1))


def test_changed_id_map(copied):
    id_map = json.loads((copied / "idmap.json").read_text())
    id_map["users"][:2] = id_map["users"][1::-1]
    (copied / "idmap.json").write_text(json.dumps(id_map))
    with pytest.raises(CheckpointError, match="numbers users or items differently"):
        load_subject(copied, small_data())


def test_unknown_device():
    with pytest.raises(UsageError, match="Allowed: auto, cpu, cuda"):
        store.resolve_device("gpu")
    with pytest.raises(UsageError, match="is not available"):
        store.resolve_device("cuda:99")


class Killed(BaseException):
    """Stands for a kill between two epochs."""


def settings(model, **params):
    return ScoreSettings(model=model, seed=3, training=TrainingSettings(params=params, epochs=4))


@pytest.mark.parametrize(
    "chosen",
    [
        settings(
            "NeuMF", mf_embedding_size=4, mlp_embedding_size=4, mlp_hidden_size=[8, 4], dropout_prob=0.5
        ),
        settings("SASRec", hidden_size=4, inner_size=8, MAX_ITEM_LIST_LENGTH=5),
        settings("MultiVAE", latent_dimension=4, mlp_hidden_size=[8]),
    ],
    ids=lambda s: s.model,
)
@pytest.mark.parametrize("epoch", [1, 3])
def test_resumed_training_equals_uninterrupted(chosen, epoch, tmp_path, monkeypatch):
    whole = train_subject(small_data(), chosen, folder=tmp_path / "whole")
    record = Journal.record

    def dies(self, *args):
        record(self, *args)
        if self.epoch == epoch:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "record", dies)
        with pytest.raises(Killed):
            train_subject(small_data(), chosen, folder=tmp_path / "cut")
    assert not (tmp_path / "cut").exists()
    assert (tmp_path / "cut.work" / "last.ckpt").is_file()
    torch.rand(7)
    resumed = train_subject(small_data(), chosen, folder=tmp_path / "cut")
    assert same(weights(resumed.model), weights(whole.model))
    manifests = [json.loads((tmp_path / n / "manifest.json").read_text()) for n in ("whole", "cut")]
    assert manifests[0] == manifests[1]


def test_journal_of_other_settings_or_damaged_is_ignored(tmp_path):
    work = tmp_path / "m.work"
    work.mkdir()
    (work / "last.ckpt").write_bytes(b"no checkpoint")
    chosen = settings("BPR", embedding_size=4)
    one = train_subject(small_data(), chosen, folder=tmp_path / "m")
    two = train_subject(small_data(), chosen, folder=tmp_path / "n")
    assert same(weights(one.model), weights(two.model))


def test_a_disk_that_fills_up_while_training_is_named(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(RecunlearnError, match=r"The disk is full: .*last\.ckpt"):
        train_subject(small_data(), settings("BPR", embedding_size=4), folder=tmp_path / "m")
    assert not list(tmp_path.rglob("*.tmp"))


def _train_until_killed(folder, started):
    record = Journal.record

    def tell(self, *args):
        record(self, *args)
        if self.epoch == 2:
            started.set()
            signal.pause()

    Journal.record = tell
    train_subject(small_data(), settings("BPR", embedding_size=4), folder=folder)


def test_a_killed_process_leaves_nothing_half_written_and_resumes(tmp_path):
    context = multiprocessing.get_context("spawn")
    started = context.Event()
    process = context.Process(target=_train_until_killed, args=(tmp_path / "m", started))
    process.start()
    assert started.wait(60)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert [p.name for p in tmp_path.iterdir()] == ["m.work"]
    resumed = train_subject(small_data(), settings("BPR", embedding_size=4), folder=tmp_path / "m")
    whole = train_subject(small_data(), settings("BPR", embedding_size=4), folder=tmp_path / "whole")
    assert same(weights(resumed.model), weights(whole.model))


def test_ctrl_c_stays_ctrl_c(tmp_path, monkeypatch):
    """Lightning would exit(1) and leave the signal ignored."""
    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(Journal, "record", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        train_subject(small_data(), settings("BPR", embedding_size=4), folder=tmp_path / "m")
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_loss_that_is_no_number_is_one_sentence(tmp_path):
    with pytest.raises(RecunlearnError, match="no longer a number"):
        train_subject(small_data(), settings("BPR", learning_rate=1e30, learner="sgd"), folder=tmp_path / "m")


def test_early_stopping_keeps_the_best_weights(monkeypatch):
    """Scores .1 .3 .2 .2: with patience 2 the fourth epoch is the last, the second epoch's weights stay."""
    scores = iter([0.1, 0.3, 0.2, 0.2, 0.9])
    monkeypatch.setattr(training, "evaluate", lambda *_: {"ndcg@10": next(scores)})
    bundle = make_bundle(small_data(), settings("BPR", embedding_size=4))
    fitted = training.fit(bundle, epochs=9, patience=2)
    assert (len(fitted.losses), fitted.best_epoch) == (4, 2)
    again = training.fit(bundle, epochs=2, patience=None)
    assert same(weights(again.model), weights(fitted.model))


def test_a_split_without_validation_rows_trains_all_epochs():
    data = small_data()
    everything = replace(data, split=(data.item == 0).astype("int8") * 2)
    fitted = training.fit(make_bundle(everything, settings("BPR", embedding_size=4)), epochs=2, patience=5)
    assert fitted.best_epoch == 2
    assert fitted.valid == [{}, {}]


def test_popularity_is_beaten_or_not_judged(saved):
    subject = copy.copy(saved[0])
    subject.metrics, subject.popularity_metrics = {"test": {"ndcg@10": 0.2}}, {"test": {"ndcg@10": 0.1}}
    assert subject.beats_popularity()
    subject.metrics = {"test": {"ndcg@10": 0.1}}
    assert not subject.beats_popularity()
    subject.metrics = {"test": {}}
    assert subject.beats_popularity()


def test_progress_goes_to_stderr(tmp_path, capfd):
    train_subject(small_data(), settings("FEARec", hidden_size=4), folder=tmp_path / "m", progress=True)
    assert capfd.readouterr().out == ""


def test_a_place_that_cannot_be_written_is_told_before_training(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.setattr(store, "fit", lambda *a, **k: pytest.fail("trained"))
    with pytest.raises(RecunlearnError, match="cannot be made"):
        train_subject(small_data(), ScoreSettings(model="BPR"), folder=tmp_path / "file" / "m")
