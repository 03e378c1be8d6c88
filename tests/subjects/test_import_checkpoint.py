"""Import of RecBole's checkpoints: real ones from its own trainer, and files that must be refused."""

import collections
import io
import pickle
import shutil
import struct
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from recbole_runs import LABELLED, TINY_SASREC, Config, MySettings, Run, cut

from recunlearn.data.splits import take_rows
from recunlearn.data.tombstones import Erasure, is_tombstone, survivors
from recunlearn.foundation.errors import CheckpointError
from recunlearn.subjects.recbole import unpickler
from recunlearn.subjects.recbole.after_deletion import after_deletion
from recunlearn.subjects.recbole.compat import importing
from recunlearn.subjects.recbole.import_checkpoint import import_checkpoint
from recunlearn.subjects.recbole.store import load_subject, save_subject
from recunlearn.subjects.recbole.unpickler import read_checkpoint_file

CASES = {
    "BPR": {"kind": Config, "valid_metric": "NDCG@20", "learning_rate": 0.01},
    "LightGCN": {"learning_rate": 0.01, "seed": 7, "val_interval": {"rating": "[3,inf)"}},
    "SASRec": {**TINY_SASREC, "learning_rate": 0.01},
    "DeepFM": {**LABELLED, "learning_rate": 0.01},
}
RATED = {"load_col": {"inter": ["user_id", "item_id", "rating", "timestamp"]}}


def pairs(part):
    """User and item numbers of a part; RecBole's loaders sort some parts."""
    return sorted(zip(*(part.inter_feat[k].tolist() for k in ("user_id", "item_id")), strict=True))


def data_for(model):
    return cut(2_000 if model == "SASRec" else 8_000)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Checkpoint of a model that RecBole trained and saved, with its run."""
    made = {}

    def get(model):
        if model not in made:
            folder = tmp_path_factory.mktemp(model)
            options = CASES[model]
            columns = RATED if "val_interval" in options else {}
            run = Run(data_for(model), folder, model, **{**columns, "epochs": 2, **options}).fit(saved=True)
            made[model] = run.folder / run.trainer.saved_model_file, run
        return made[model]

    return get


@pytest.mark.parametrize("model", CASES)
def test_a_real_checkpoint_becomes_one_of_ours(written, model, tmp_path):
    file, run = written(model)
    data = data_for(model)
    subject = import_checkpoint(file, data, folder=tmp_path / "model")
    loaded = load_subject(tmp_path / "model", data)
    theirs = run.trainer.best_valid_score
    check = loaded.describe()["imported"]
    assert (check["stored"], check["file"]) == (theirs, file.name)
    assert check["got"] == pytest.approx(theirs, abs=1e-4)
    with importing():
        stored = torch.load(file, weights_only=False)["state_dict"]
    for state in (subject.model.state_dict(), loaded.model.state_dict()):
        assert all(torch.equal(state[k], v) for k, v in stored.items())
    assert loaded.entities.tolist() == run.parts[0].field2id_token["user_id"][1:].tolist()
    for name, part in zip(("train", "valid", "test"), run.parts, strict=True):
        assert pairs(getattr(loaded.bundle, name)) == pairs(part)
    rows = loaded.bundle.train.rows
    numbers = loaded.bundle.train.inter_feat["user_id"].numpy() - 1
    assert (data.users[data.user[rows]] == loaded.entities[numbers]).all()
    manifest = (tmp_path / "model" / "manifest.json").read_text()
    assert str(run.folder) not in manifest
    counted = np.bincount(torch.cat([b.entity for b in loaded.batches(batch_size=512)]).numpy())
    assert counted.tolist() == np.trim_zeros(loaded.n_samples(), "b").tolist()


def other_order(data):
    return take_rows(data, np.arange(len(data))[::-1])


def fewer_rows(data):
    return take_rows(data, np.arange(6_000))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            other_order,
            r"not accepted: its stored validation score ndcg@20 is 0\.\d+, but on 'ml-100k' it scores",
        ),
        (fewer_rows, r"trained on other data than 'ml-100k': its table user_embedding.weight has the shape"),
    ],
)
def test_other_data_are_refused(written, tmp_path, change, sentence):
    with pytest.raises(CheckpointError, match=sentence):
        import_checkpoint(written("BPR")[0], change(data_for("BPR")), folder=tmp_path / "model")
    assert not (tmp_path / "model").exists()


def rewritten(file, target, change):
    """Copy of a checkpoint in which ``change(content)`` was applied before saving."""
    with importing():
        content = torch.load(file, weights_only=False)
    change(content)
    torch.save(content, target, pickle_protocol=4)
    return target


def permute_items(content):
    table = content["state_dict"]["item_embedding.weight"]
    order = torch.randperm(len(table) - 1, generator=torch.Generator().manual_seed(0)) + 1
    table[1:] = table[order]


def other_seed(content):
    content["config"].final_config_dict["seed"] = 1


def without_score(content):
    content["best_valid_score"] = -np.inf


def random_negatives(content):
    content["config"].final_config_dict["eval_args"]["mode"] = "uni100"


def other_metric(content):
    content["config"].final_config_dict["valid_metric"] = "GAUC"


def without_state(content):
    del content["state_dict"]


def text_for_a_table(content):
    content["state_dict"]["item_embedding.weight"] = "text"


def another_table(content):
    content["state_dict"]["more"] = torch.ones(1)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (permute_items, "not accepted: its stored validation score"),
        (other_seed, "not accepted: its stored validation score"),
        (without_score, "saved without validation, so nothing shows that it belongs to 'ml-100k'"),
        (random_negatives, "mode 'uni100', which cannot be repeated here"),
        (other_metric, "validated by gauc in mode 'full', which cannot be repeated here"),
        (without_state, "holds no trained model of RecBole"),
        (text_for_a_table, "holds no trained model of RecBole"),
        (another_table, "more is unknown to the installed RecBole"),
    ],
)
def test_changed_checkpoints_are_refused(written, tmp_path, change, sentence):
    file = rewritten(written("BPR")[0], tmp_path / "changed.pth", change)
    with pytest.raises(CheckpointError, match=sentence):
        import_checkpoint(file, data_for("BPR"), folder=tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_settings_that_contain_themselves_are_left_out(written, tmp_path):
    def change(content):
        knot = [1]
        knot.append(knot)
        laughs = ["ha"]
        for _ in range(40):
            laughs = [laughs, laughs]
        content["config"].final_config_dict |= {"knot": knot, "laughs": laughs}

    file = rewritten(written("BPR")[0], tmp_path / "changed.pth", change)
    subject = import_checkpoint(file, data_for("BPR"), folder=tmp_path / "model")
    assert "knot" not in subject.bundle.config.final_config_dict


def test_a_users_own_field_names_are_understood(tmp_path):
    data = cut(4_000)
    run = Run(data, tmp_path, "BPR", epochs=1).fit(saved=True)

    def rename(content):
        values = content["config"].final_config_dict
        values |= {"USER_ID_FIELD": "customer", "load_col": {"inter": ["customer", "item_id", "timestamp"]}}

    file = rewritten(tmp_path / run.trainer.saved_model_file, tmp_path / "renamed.pth", rename)
    subject = import_checkpoint(file, data, folder=tmp_path / "model")
    assert "user_id" in subject.bundle.train.inter_feat


@pytest.mark.parametrize("kept", [0, 10, 1_000, -1, -40])
def test_truncated_files_are_told(written, tmp_path, kept):
    file = tmp_path / "cut.pth"
    file.write_bytes(written("BPR")[0].read_bytes()[:kept])
    with pytest.raises(CheckpointError, match=r"cut.pth is not a whole checkpoint of torch 1.6 or later"):
        read_checkpoint_file(file)


def test_a_flipped_bit_is_told(written, tmp_path):
    data = bytearray(written("BPR")[0].read_bytes())
    with zipfile.ZipFile(written("BPR")[0]) as archive:
        largest = max(archive.infolist(), key=lambda r: r.file_size)
    data[largest.header_offset + 5_000] ^= 1
    file = tmp_path / "flipped.pth"
    file.write_bytes(data)
    with pytest.raises(CheckpointError, match="not a whole checkpoint"):
        read_checkpoint_file(file)


def test_the_old_format_and_other_files_are_told(tmp_path):
    old = tmp_path / "old.pth"
    torch.save({"a": torch.ones(2)}, old, _use_new_zipfile_serialization=False)
    other = tmp_path / "book.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("sheet.xml", "<a/>")
    with pytest.raises(CheckpointError, match=r"in the old format, or another kind of file"):
        read_checkpoint_file(old)
    with pytest.raises(CheckpointError, match=r"a zip file, but not one that torch\.save wrote"):
        read_checkpoint_file(other)
    with pytest.raises(CheckpointError, match="does not exist"):
        read_checkpoint_file(tmp_path / "none.pth")
    with pytest.raises(CheckpointError, match="is a folder"):
        read_checkpoint_file(tmp_path)


def zipped(folder, pickled, *, records=(), **options):
    """A file like torch.save's with ``pickled`` as its description."""
    file = folder / "made.pth"
    with zipfile.ZipFile(file, "w", **options) as archive:
        archive.writestr("made/data.pkl", pickled)
        for name, data in records:
            archive.writestr(f"made/data/{name}", data)
    return file


def test_compressed_records_and_impossible_sizes_are_refused(tmp_path):
    bomb = zipped(tmp_path, pickle.dumps(b"0" * 10_000_000), compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match="compressed or encrypted"):
        read_checkpoint_file(bomb)
    file = zipped(tmp_path, pickle.dumps(1), records=[("0", b"1" * 999)])
    raw = bytearray(file.read_bytes())
    where = raw.rfind(b"PK\x01\x02")
    raw[where + 20 : where + 28] = struct.pack("<II", 1 << 30, 1 << 30)
    file.write_bytes(raw)
    with pytest.raises(CheckpointError, match="claim to be larger than the file"):
        read_checkpoint_file(file)


def text(value):
    return pickle.SHORT_BINUNICODE + bytes([len(value)]) + value.encode()


def named(module, name):
    """STACK_GLOBAL of a name."""
    return text(module) + text(name) + pickle.STACK_GLOBAL


def called(function, *arguments):
    return function + pickle.MARK + b"".join(arguments) + pickle.TUPLE + pickle.REDUCE


START, END = pickle.PROTO + b"\x04", pickle.STOP


def attacks(canary):
    """Pickles that would make the file ``canary`` (or reach further) in an unrestricted unpickler."""
    command, code = f"touch {canary}", f"open({str(canary)!r}, 'w')"
    inert = called(named("recbole.utils.enum_type", "ModelType"), pickle.BININT1 + b"\x01")
    ordered = called(named("collections", "OrderedDict"))
    settings = pickle.EMPTY_DICT + pickle.MARK + text("config")
    return {
        "os.system": called(named("os", "system"), text(command)),
        "posix.system": called(named("posix", "system"), text(command)),
        "GLOBAL opcode": pickle.GLOBAL + b"posix\nsystem\n" + pickle.MARK + text(command) + b"tR",
        "builtins.eval": called(named("builtins", "eval"), text(code)),
        "builtins.exec": called(named("builtins", "exec"), text(code)),
        "builtins.getattr": called(named("builtins", "getattr"), named("os", "path"), text("os")),
        "builtins.__import__": called(named("builtins", "__import__"), text("os")),
        "subprocess.Popen": called(named("subprocess", "Popen"), text(command)),
        "torch.load": called(named("torch", "load"), text(str(canary))),
        "torch.hub": called(named("torch.hub", "load"), text("a/b"), text("c")),
        "functools.partial": called(named("functools", "partial"), named("os", "system"), text(command)),
        "operator.attrgetter": called(named("operator", "attrgetter"), text("system")),
        "dotted name": called(named("torch", "serialization.os.system"), text(command)),
        "dotted inert name": called(named("recbole.utils", "utils.os.system"), text(command)),
        "odd module": called(named("recbole.\nos", "system"), text(command)),
        "real recbole function": called(named("os.recbole.", "system"), text(command)),
        "INST": pickle.MARK + text(command) + pickle.INST + b"os\nsystem\n",
        "OBJ": pickle.MARK + named("recbole.config", "Config") + text(command) + pickle.OBJ,
        "extension": pickle.EXT1 + b"\x01",
        "text persistent id": pickle.PERSID + b"storage\n",
        "persistent id": text("no tuple") + pickle.BINPERSID,
        "NEWOBJ_EX": named("recbole.config", "Config") + b")}" + pickle.NEWOBJ_EX,
        "bytearray of 8 exabytes": pickle.BYTEARRAY8 + struct.pack("<Q", 1 << 62),
        "REDUCE on an inert object": called(inert, text(command)),
        "REDUCE on a text": called(text("os.system"), text(command)),
        "REDUCE on a storage type": called(named("torch", "FloatStorage"), text(command)),
        "REDUCE without a tuple": named("recbole.config", "Config") + text(command) + pickle.REDUCE,
        "BUILD on a class": named("recbole.config", "Config") + pickle.EMPTY_DICT + pickle.BUILD,
        "BUILD on a function": named("torch._utils", "_rebuild_tensor_v2") + b"}" + pickle.BUILD,
        "BUILD on a list": pickle.EMPTY_LIST + pickle.EMPTY_DICT + pickle.BUILD,
        "SETITEM of an inert object": inert + text("a") + text("b") + pickle.SETITEM,
        "SETITEMS of a list": pickle.EMPTY_LIST + pickle.MARK + text("a") + text("b") + pickle.SETITEMS,
        "APPEND to an inert object": inert + text("a") + pickle.APPEND,
        "APPENDS to a dictionary": ordered + pickle.MARK + text("a") + pickle.APPENDS,
        "memo of a refused name": named("os", "system")
        + pickle.MEMOIZE
        + pickle.POP
        + pickle.BINGET
        + b"\x00",
        "memo that is missing": pickle.BINGET + b"\x07",
        "settings class that is called": settings + called(named("os", "system"), text(command)),
        "numpy object": called(
            named("numpy._core.multiarray", "scalar"),
            called(named("numpy", "dtype"), text("O8")),
            pickle.SHORT_BINBYTES + b"\x01a",
        ),
        "stack underflow": pickle.REDUCE,
    }


NAMES = tuple(attacks("canary"))


@pytest.mark.parametrize("name", NAMES)
def test_hostile_pickles_do_nothing(tmp_path, name, monkeypatch):
    def never(*_):
        raise AssertionError("something was imported or looked up")

    monkeypatch.setattr(pickle._Unpickler, "find_class", never)
    file = zipped(tmp_path, START + attacks(tmp_path / "canary")[name] + END)
    with pytest.raises(CheckpointError, match=r"made.pth is (refused|damaged)"):
        read_checkpoint_file(file)
    assert not (tmp_path / "canary").exists()


def test_the_canary_would_be_made(tmp_path):
    # The same bytes in Python's own unpickler: without the restriction the attack works.
    pickle.loads(START + attacks(tmp_path / "canary")["os.system"] + END)
    assert (tmp_path / "canary").exists()


def test_a_refused_name_is_named(tmp_path):
    file = zipped(tmp_path, START + attacks("canary")["builtins.eval"] + END)
    with pytest.raises(CheckpointError, match=r"it asks for 'builtins.eval', which .* add --trust-pickle"):
        read_checkpoint_file(file)


def test_a_class_in_the_place_of_the_settings_stays_inert(tmp_path):
    head = pickle.EMPTY_DICT + pickle.MARK + text("config")
    made = zipped(tmp_path, START + head + named("os", "system") + b")" + pickle.NEWOBJ + b"u" + END)
    loaded = read_checkpoint_file(made)
    assert isinstance(loaded["config"], unpickler.Inert)
    with pytest.raises(CheckpointError, match="holds no trained model of RecBole"):
        import_checkpoint(made, cut(100), folder=tmp_path / "model")


def tensor_pickle(offset, size, stride, numel=6, key="0"):
    """A pickle of one float32 tensor over a storage of six numbers."""

    storage = object()

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            return ("storage", torch.FloatStorage, key, "cpu", numel) if obj is storage else None

    class Described:
        def __reduce__(self):
            arguments = (storage, offset, size, stride, False, collections.OrderedDict())
            return torch._utils._rebuild_tensor_v2, arguments

    stream = io.BytesIO()
    Pickler(stream, protocol=4).dump(Described())
    return stream.getvalue()


def test_a_tensor_is_a_view_of_its_storage(tmp_path):
    numbers = np.arange(6, dtype="<f4").tobytes()
    made = zipped(tmp_path, tensor_pickle(1, (2, 2), (2, 1)), records=[("0", numbers)])
    assert read_checkpoint_file(made).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "arguments",
    [
        (0, (7,), (1,)),
        (5, (2,), (1,)),
        (0, (2, 2), (5, 1)),
        (-1, (2,), (1,)),
        (0, (2,), (-1,)),
        (0, (1 << 40,), (0,)),
        (0, (2, 2), (1,)),
        (0, ("2",), (1,)),
        (0, (6,), (1,), 7),
        (0, (6,), (1,), 6, "../data.pkl"),
        (0, (6,), (1,), 6, "none"),
    ],
)
def test_tensors_beyond_their_storage_are_refused(tmp_path, arguments):
    numbers = np.arange(6, dtype="<f4").tobytes()
    made = zipped(tmp_path, tensor_pickle(*arguments), records=[("0", numbers)])
    with pytest.raises(CheckpointError, match=r"refused|damaged"):
        read_checkpoint_file(made)


def test_trust_pickle_reads_what_torch_reads(written, tmp_path):
    assert not torch.is_anomaly_enabled()
    subject = import_checkpoint(
        written("LightGCN")[0], data_for("LightGCN"), folder=tmp_path / "model", trust_pickle=True
    )
    assert subject.describe()["imported"]["valid_metric"] == "mrr@10"
    assert not torch.is_anomaly_enabled()


def test_the_command(run_cli, written, tmp_path, home):
    from recunlearn.data.storage import write_data_set

    write_data_set(replace(data_for("BPR"), name="part"), home / "data" / "part")
    file = shutil.copy(written("BPR")[0], tmp_path / "model.pth")
    done = run_cli("import-checkpoint", file, "--dataset", "part", "--out", tmp_path / "model")
    assert (done.code, done.err) == (0, "")
    assert "Imported BPR into" in done.out
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == [
        "idmap.json",
        "manifest.json",
        "weights.safetensors",
    ]
    refused = run_cli("import-checkpoint", file, "--dataset", "ml-100k", "--out", tmp_path / "other")
    assert refused.code == 1
    assert refused.err.count("\n") == 1
    assert not (tmp_path / "other").exists()
    taken = run_cli("import-checkpoint", file, "--dataset", "part", "--out", tmp_path)
    assert taken.code == 2
    assert "is no model of this program" in taken.err
    missing = run_cli("import-checkpoint", tmp_path / "no.pth", "--dataset", "part")
    assert missing.code == 1


def test_optimiser_and_settings_are_read_too(written):
    loaded = read_checkpoint_file(written("SASRec")[0])
    assert loaded["config"].name == f"{MySettings.__module__}.MySettings"
    assert loaded["config"].get("final_config_dict")["hidden_size"] == 16
    assert loaded["optimizer"]["param_groups"][0]["lr"] == 0.01


@pytest.mark.parametrize("model", CASES)
def test_an_imported_model_follows_its_data_through_a_deletion(written, model, tmp_path):
    """Users go, and everybody else keeps numbers, scores and the parts that RecBole drew for their rows."""
    file, _ = written(model)
    data = data_for(model)
    before = import_checkpoint(file, data, folder=tmp_path / "before")
    gone = before.entities[[3, 40]].tolist()
    left = survivors(data, [Erasure(user) for user in gone])
    after = after_deletion(before, before.model, left)
    save_subject(after, tmp_path / "after")
    loaded = load_subject(tmp_path / "after", left)
    for now in (after, loaded):
        assert sum(map(is_tombstone, now.entities)) == 2
        for name in ("train", "valid", "test"):
            then = [p for p in pairs(getattr(before.bundle, name)) if p[0] not in (4, 41)]
            assert pairs(getattr(now.bundle, name)) == then
    alive = np.flatnonzero(after.n_samples())[:20]
    scores = [s.item_scores(s.model, alive) for s in (before, after, loaded)]
    if model != "LightGCN":  # its propagation is that of the graph without the deleted
        kept = torch.from_numpy(np.isin(before.items, left.items))
        torch.testing.assert_close(scores[1][:, kept], scores[0][:, kept])
    assert torch.equal(scores[1], scores[2])
    again = after_deletion(loaded, loaded.model, survivors(left, [Erasure(str(after.entities[7]))]))
    assert sum(map(is_tombstone, again.entities)) == 3
    if model != "SASRec":
        assert len(again.bundle.train) < len(after.bundle.train)
    (tmp_path / "after" / "split.safetensors").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"split\.safetensors is missing or damaged"):
        load_subject(tmp_path / "after", left)
