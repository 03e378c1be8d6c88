import json

import numpy as np
import pytest

from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.records import (
    RECORDS,
    Anchors,
    CircuitGraph,
    Circuits,
    Evaluation,
    ForgetSet,
    Outcomes,
    load_record,
    save_record,
)

IDS = np.array(["007", "ü 1", "a,b"])


def circuits():
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    values[1] = np.nan
    gap = np.array([0.1, np.nan, 0.0])
    graph = CircuitGraph(
        ("a", "b"), ("source", "output"), (False, False), (0, 1), (0, 0), (1, 1), ("[0]", "[1]"), ("", "")
    )
    return Circuits(IDS, ("a[0] -> b", "a[1] -> b"), values, gap, np.array([4, 0, 1]), {"steps": 16}, graph)


def outcomes():
    after = np.arange(12.0).reshape(2, 2, 3)
    lone = np.array([0.5, 1.5, 2.5])
    return Outcomes(
        IDS,
        ("NPO", "GradDiff"),
        (3, 4),
        lone,
        after,
        np.ones((2, 3)),
        lone + 1,
        {"NPO": 7},
        0.25,
        {"pool": 3},
    )


def anchors():
    hardness = np.array([0.0, np.nan, 1.0])
    measurable = np.array([True, False, True])
    agreement = {"kendall_w_methods": 0.5}
    return Anchors(IDS, hardness, np.array([0]), np.array([2]), measurable, agreement, {"count": 1})


def forget_set():
    return ForgetSet(IDS, np.array([4, 0, 1]), "hard", 2, 7, {"matched": True, "mean_cud": 0.5})


def evaluation():
    lone = np.array([0.5, np.nan, -np.inf])
    figures, reasons = {"ue": 50.0, "loss/unlearned": 1.5}, {"ue/reset": "no user vectors"}
    flags = ("over-forgetting (loss)",)
    return Evaluation(
        IDS, lone, lone, np.ones((2, 3)), lone, lone, lone, figures, reasons, flags, {"seed": 1}
    )


ALL = [circuits, outcomes, anchors, forget_set, evaluation]


@pytest.mark.parametrize("make", ALL)
def test_round_trip(tmp_path, make):
    record = make()
    save_record(record, tmp_path / "r")
    back = load_record(type(record), tmp_path / "r")
    for name, value in vars(record).items():
        got = getattr(back, name)
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(got, value)
            assert got.dtype.kind == value.dtype.kind
        else:
            assert got == value
            assert type(got) is type(value)


def test_every_record_is_tested_here():
    assert set(RECORDS) == {type(make()).__name__ for make in ALL}


def test_hash_of_a_forget_set_is_that_of_its_ids():
    one = forget_set()
    turned = ForgetSet(IDS[::-1], one.n_interactions[::-1], "easy")
    assert one.name == "hard-2"
    assert turned.hash == one.hash
    assert ForgetSet(IDS[:2], one.n_interactions[:2], "hard").hash != one.hash


def test_take_keeps_rows_together():
    taken = circuits().take(np.array([2, 0]))
    assert taken.entities.tolist() == ["a,b", "007"]
    assert taken.values.tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert taken.n_samples.tolist() == [1, 4]


def test_empty_circuits_round_trip(tmp_path):
    none = Circuits(IDS[:0], ("e",), np.zeros((0, 1), np.float32), np.zeros(0), np.zeros(0, np.int64))
    save_record(none, tmp_path / "r")
    assert load_record(Circuits, tmp_path / "r").values.shape == (0, 1)


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r"3 entities and 1 edges need values \[3, 1\].* but got \(2, 1\)"):
        Circuits(IDS, ("e",), np.zeros((2, 1)), np.zeros(3), np.zeros(3, np.int64))
    with pytest.raises(ValueError, match=r"need loss_after \[1, 2, 3\]"):
        Outcomes(IDS, ("NPO",), (0, 1), np.zeros(3), np.zeros((1, 1, 3)), np.zeros((2, 3)), np.zeros(3))


def truncate_arrays(folder):
    path = folder / "arrays.safetensors"
    path.write_bytes(path.read_bytes()[:-3])


def remove_arrays(folder):
    (folder / "arrays.safetensors").unlink()


def truncate_manifest(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text()[: len(path.read_text()) // 2])


def list_manifest(folder):
    (folder / "manifest.json").write_text("[1, 2]")


def edit_manifest(folder, **change):
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


def drop_an_entity(folder):
    edit_manifest(folder, entities=["007"])


def flip_a_bit(folder):
    path = folder / "arrays.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


def break_the_seal(folder):
    (folder / "hashes.json").write_text("[]")


def no_edges_and_no_seal(folder):
    (folder / "hashes.json").unlink()
    edit_manifest(folder, edges=None)


def add_a_field(folder):
    edit_manifest(folder, colour="red")


def a_number_for_a_graph(folder, graph=3):
    (folder / "hashes.json").unlink()
    edit_manifest(folder, graph=graph)


def a_graph_with_columns_missing(folder):
    one = {k: ["x"] for k in ("nodes", "kinds", "attention", "depths", "source", "sink")}
    a_number_for_a_graph(folder, {**one, "source_group": [""], "sink_group": []})


@pytest.mark.parametrize(
    "damage",
    [
        truncate_arrays,
        remove_arrays,
        truncate_manifest,
        list_manifest,
        drop_an_entity,
        add_a_field,
        flip_a_bit,
        break_the_seal,
        no_edges_and_no_seal,
        a_number_for_a_graph,
        a_graph_with_columns_missing,
    ],
)
def test_a_damaged_folder_is_one_sentence_with_the_fix(tmp_path, damage):
    folder = tmp_path / "stored"
    save_record(circuits(), folder)
    damage(folder)
    with pytest.raises(RecunlearnError, match=r"stored.*Delete it and run the command again"):
        load_record(Circuits, folder)


def test_another_kind_of_record_is_refused(tmp_path):
    save_record(anchors(), tmp_path / "stored")
    with pytest.raises(RecunlearnError, match="does not hold Circuits"):
        load_record(Circuits, tmp_path / "stored")
