import errno
import hashlib
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recunlearn.foundation import store
from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.store import (
    atomic_file,
    atomic_folder,
    content_hash,
    read_json,
    refuse_unwritable,
    write_json,
)

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def full_disk(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_file_is_replaced_on_success_and_leaves_nothing_beside_it(tmp_path):
    target = tmp_path / "new" / "a.txt"
    for text in ("old", "new"):
        with atomic_file(target) as temporary:
            temporary.write_text(text)
    assert target.read_text() == "new"
    assert names(target.parent) == ["a.txt"]


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt])
def test_file_keeps_its_old_content_when_the_writer_stops(tmp_path, stop):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(stop), atomic_file(target) as temporary:
        temporary.write_text("half of the n")
        raise stop
    assert target.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt])
def test_folder_keeps_its_old_content_when_the_writer_stops(tmp_path, stop):
    target = tmp_path / "model"
    target.mkdir()
    (target / "weights").write_text("old")
    with pytest.raises(stop), atomic_folder(target) as temporary:
        (temporary / "weights").write_text("half of the n")
        raise stop
    assert (target / "weights").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_folder_replaces_the_whole_old_one(tmp_path):
    target = tmp_path / "model"
    for name in ("first", "second"):
        with atomic_folder(target) as temporary:
            (temporary / name).write_text("x")
    assert names(target) == ["second"]
    assert names(tmp_path) == ["model"]


def test_folder_comes_back_when_the_last_rename_fails(tmp_path, monkeypatch):
    target = tmp_path / "model"
    target.mkdir()
    (target / "weights").write_text("old")
    real, calls = os.replace, []

    def replace(source, destination):
        calls.append(destination)
        # 1: the old folder steps aside, 2: the new one takes its place, 3: the old one comes back.
        if len(calls) == 2:
            full_disk()
        real(source, destination)

    monkeypatch.setattr(store.os, "replace", replace)
    with pytest.raises(RecunlearnError, match="disk is full"), atomic_folder(target) as temporary:
        (temporary / "weights").write_text("new")
    assert (target / "weights").read_text() == "old"
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize("writer", [atomic_file, atomic_folder])
def test_full_disk_is_one_sentence_with_the_fix(tmp_path, monkeypatch, writer):
    monkeypatch.setattr(store.os, "fsync", full_disk)
    with (
        pytest.raises(RecunlearnError, match=r"disk is full: .*out.* Nothing was changed.*RECUNLEARN_HOME"),
        writer(tmp_path / "out") as temporary,
    ):
        (temporary / "a" if temporary.is_dir() else temporary).write_text("x")
    assert names(tmp_path) == []


def test_full_disk_is_recognised_in_the_text_of_a_rust_library(tmp_path):
    with pytest.raises(RecunlearnError, match="disk is full"), atomic_file(tmp_path / "out"):
        raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")


def test_forbidden_folder_is_one_sentence(tmp_path):
    with (
        pytest.raises(RecunlearnError, match=r"cannot be written \(Permission denied\).*folder you own"),
        atomic_file(tmp_path / "out"),
    ):
        raise PermissionError(errno.EACCES, "Permission denied")


def test_json_round_trip_and_broken_json(tmp_path):
    path = tmp_path / "a.json"
    value = {"id": "007 ü", "list": [1, None, 2.5]}
    write_json(path, value)
    assert read_json(path) == value
    path.write_text(path.read_text()[:-5])
    with pytest.raises(RecunlearnError, match=r"a\.json cannot be read as JSON"):
        read_json(path)
    with pytest.raises(RecunlearnError, match="does not exist"):
        read_json(tmp_path / "b.json")


@given(st.dictionaries(st.text(), plain, min_size=2), st.randoms())
def test_hash_does_not_depend_on_the_order_of_a_mapping(mapping, random):
    shuffled = list(mapping.items())
    random.shuffle(shuffled)
    assert content_hash(dict(shuffled)) == content_hash(mapping)


@given(plain, plain)
def test_hash_tells_values_apart(a, b):
    # repr tells True from 1 and is exact for every value drawn here; mappings are compared as sorted pairs.
    def exact(value):
        if isinstance(value, dict):
            return {k: exact(v) for k, v in sorted(value.items())}
        return [exact(v) for v in value] if isinstance(value, list) else value

    assert (content_hash(a) == content_hash(b)) == (repr(exact(a)) == repr(exact(b)))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((1, 2), (2, 1)),
        (([1], [2]), ([1, 2],)),
        ((b"", b""), (b"bytes:",)),
        ((1,), ("1",)),
        ((np.arange(4),), (np.arange(4).reshape(2, 2),)),
        ((np.arange(4),), (np.arange(4.0),)),
        ((np.array(["a", "b"]),), (np.array(["a", "c"]),)),
        (({"a": 1, "b": 2},), ({"a": 2, "b": 1},)),
    ],
)
def test_hash_is_sensitive(a, b):
    assert content_hash(*a) != content_hash(*b)


def test_hash_sees_through_numpy_scalars_layout_and_sets():
    assert content_hash(np.int64(5), np.float64(0.5)) == content_hash(5, 0.5)
    table = np.arange(6).reshape(2, 3)
    assert content_hash(table.T) == content_hash(np.ascontiguousarray(table.T))
    assert content_hash({"b", "a", "c"}) == content_hash({"c", "b", "a"}) == content_hash(["a", "b", "c"])


def test_hash_is_the_same_tomorrow():
    # Stored results are found by these digits: the bytes that are hashed, written out.
    fed = b'{"a";[1;"x";]}' + b"array:<i8:(3,)" + bytes([0] * 8 + [1] + [0] * 7 + [2] + [0] * 7)
    assert content_hash({"a": [1, "x"]}, np.arange(3, dtype=np.int64)) == hashlib.sha256(fed).hexdigest()[:32]


@pytest.mark.parametrize("writing", [atomic_file, atomic_folder])
def test_a_file_where_a_folder_is_needed_is_one_sentence(tmp_path, writing):
    (tmp_path / "file").write_text("x")
    sentence = r"cannot be made \(Not a directory\)\. Set RECUNLEARN_HOME"
    with pytest.raises(RecunlearnError, match=sentence), writing(tmp_path / "file" / "a" / "b"):
        pass
    assert names(tmp_path) == ["file"]


def test_a_place_that_can_be_written_is_left_as_it_was(tmp_path):
    refuse_unwritable(tmp_path / "models" / "m")
    assert names(tmp_path) == ["models"]
    assert names(tmp_path / "models") == []
