"""What a scan finds, and where: one file of each format, and files that hold nobody."""

import gzip
import json
import os
import sqlite3
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from recunlearn.deletion import readers
from recunlearn.deletion.scan import scan
from recunlearn.deletion.wanted import Wanted
from recunlearn.foundation.errors import UsageError

CANARY, SHORT, UMLAUT = "canary-7f3a", "405", 'Käthe "K" O'
USERS = [CANARY, SHORT, UMLAUT]


def sqlite(path):
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE requests (user_id TEXT, note TEXT)")
    base.execute("INSERT INTO requests VALUES ('405', 'a note about canary-7f3a')")
    base.commit()
    base.close()


def sqlite_free_page(path):
    """The row was deleted, but its bytes are still in the file."""
    base = sqlite3.connect(path)
    base.execute("PRAGMA secure_delete = OFF")
    base.execute("CREATE TABLE t (x TEXT)")
    base.execute("INSERT INTO t VALUES ('canary-7f3a')")
    base.commit()
    base.execute("DELETE FROM t")
    base.commit()
    base.close()


def zipped(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner/log.csv", "user_id,n\n405,1\ncanary-7f3a,2\n")
        archive.writestr("canary-7f3a.txt", "nothing")


FORMATS = {
    "log.csv": (lambda p: p.write_text("user_id,item\n405,1\ncanary-7f3a,405\n"), {"column user_id": [0, 1]}),
    "ml.inter": (
        lambda p: p.write_text("user_id:token\titem_id:token\n405\t1\n7\t405\n"),
        {"column user_id:token": [1]},
    ),
    "scores.parquet": (
        lambda p: pd.DataFrame({"user_id": [*USERS, "1"], "n": range(4)}).to_parquet(p, index=False),
        {"column user_id": [0, 1, 2]},
    ),
    "numbers.parquet": (
        lambda p: pd.DataFrame({"user_id": [405, 1], "n": [405, 2]}).to_parquet(p, index=False),
        {"column user_id": [1]},
    ),
    "lists.parquet": (
        lambda p: pd.DataFrame({"who": [[CANARY, "x"], ["y"]]}).to_parquet(p, index=False),
        {"column who": [0]},
    ),
    "manifest.json": (
        lambda p: p.write_text(
            json.dumps({"entities": ["1", "405", UMLAUT], "steps": 405, "items": ["405"]})
        ),
        {"key entities": [1, 2]},
    ),
    "keyed.json": (
        lambda p: p.write_text(json.dumps({"users": {"405": 1}, "x": {CANARY: 2}})),
        {"key x": [0], "key users": [1]},
    ),
    "rows.jsonl": (lambda p: p.write_text('{"user": 405}\n{"user": "canary-7f3a"}\n'), {"key user": [0, 1]}),
    "list.txt": (lambda p: p.write_text("1\n405\n4050\ncanary-7f3a\n"), {"lines": [1], "text": [0]}),
    "page.html": (lambda p: p.write_text("<td>K&auml;the</td><td>Käthe &quot;K&quot; O</td>"), {"text": [2]}),
    "model.safetensors": (
        lambda p: save_file(
            {"w": np.zeros(3, np.float32)}, p, metadata={"user": "405", "note": f"of {CANARY}"}
        ),
        {"bytes": [0], "key note": [0], "key user": [1]},
    ),
    "state.pth": (
        lambda p: torch.save({"who": CANARY, "w": torch.zeros(3)}, p),
        {"member state/data.pkl: bytes": [0]},
    ),
    "arrays.npz": (
        lambda p: np.savez_compressed(
            p, users=np.array(["1", "405"]), uid=np.array([405]), n=np.array([405])
        ),
        {"member users.npy: array": [1], "member uid.npy: array": [1]},
    ),
    "utf16.bin": (lambda p: p.write_bytes(b"\x00\x01" + CANARY.encode("utf-16-le")), {"bytes": [0]}),
    "log.csv.gz": (lambda p: p.write_bytes(gzip.compress(b"user_id,n\n405,1\n")), {"column user_id": [1]}),
    "all.zip": (
        zipped,
        {"member inner/log.csv: column user_id": [0, 1], "name of a member": [0]},
    ),
    "ledger.sqlite": (
        sqlite,
        {"bytes": [0], "table requests: column note": [0], "table requests: column user_id": [1]},
    ),
    "free.sqlite": (sqlite_free_page, {"bytes": [0]}),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format(tmp_path, name):
    write, expected = FORMATS[name]
    write(tmp_path / name)
    found = scan(tmp_path, USERS)
    if name.endswith(".parquet"):  # whether an id is found in the raw bytes, too, depends on the compression
        found = [f for f in found if f.where != "bytes"]
    assert {f.where: list(f.users) for f in found} == expected
    assert {(f.path, f.kind) for f in found} == {(name, "id")}


NOBODY = {
    "scores.csv": "user_id,n\n1405,405\ncanary-7f3ab,1\n",
    "numbers.json": '{"count": 405, "items": ["405"], "user": "4051"}',
    "plain.txt": "canary-7f3 and xcanary-7f3a, 405 of them",
}


@pytest.mark.parametrize("name", NOBODY)
def test_nobody_is_found_where_nobody_is(tmp_path, name):
    (tmp_path / name).write_text(NOBODY[name])
    assert scan(tmp_path, USERS) == []


def test_names_of_files_are_masked(tmp_path):
    (tmp_path / "user-405").mkdir()
    (tmp_path / "user-405" / "canary-7f3a.txt").write_text("x")
    found = scan(tmp_path, USERS)
    assert [(f.path, f.kind, f.users) for f in found] == [
        ("user-***", "name", (1,)),
        ("user-***/***.txt", "name", (0,)),
    ]


def test_rows_are_found_under_another_name(tmp_path):
    rows = {"405": [("a", 10.0), ("b", 20.0), ("c", 30.0), ("d", 40.0)]}
    frame = pd.DataFrame({"who": [9] * 4, "item_id": list("abcz"), "timestamp": [10, 20, 30, 40]})
    frame.to_csv(tmp_path / "log.csv", index=False)
    frame.to_parquet(tmp_path / "log.parquet", index=False)
    frame.to_json(tmp_path / "log.json", orient="records")
    frame.iloc[:2].to_csv(tmp_path / "few.csv", index=False)  # two of four rows, but fewer than three
    found = scan(tmp_path, ["405"], rows=rows)
    assert [(f.path, f.kind, f.count) for f in found] == [
        ("log.csv", "rows", 3),
        ("log.json", "rows", 3),
        ("log.parquet", "rows", 3),
    ]


def test_what_could_not_be_read_is_said(tmp_path):
    (tmp_path / "a.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(20))
    (tmp_path / "b.zip").write_bytes(b"PK\x03\x04" + bytes(20))
    (tmp_path / "c.parquet").write_bytes(b"PAR1" + bytes(20))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    found = scan(tmp_path, USERS)
    assert [(f.path, f.kind) for f in found] == [
        ("a.zst", "unread"),
        ("b.zip", "unread"),
        ("c.parquet", "unread"),
        ("gone", "unread"),
    ]


@given(st.integers(0, 40), st.integers(0, 40))
def test_a_hit_over_the_edge_of_a_chunk_is_one_hit(before, after):
    import io

    wanted = Wanted([CANARY])
    data = b" " * before + CANARY.encode() + b" " * after + CANARY.encode() + b" "
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "CHUNK", 16)
        found = list(readers._bytes(io.BytesIO(data), wanted, text=False))
    assert found == [("bytes", [0, 0])]


HEADS = (
    b"",
    b"PK\x03\x04",
    b"\x1f\x8b\x08",
    b"PAR1",
    b"SQLite format 3\x00",
    b"\x93NUMPY\x01\x00",
    b"{",
    b"[",
    b"user_id,n\n",
)


@given(st.sampled_from(HEADS), st.binary(max_size=200))
def test_no_content_stops_a_scan(tmp_path_factory, head, rest):
    file = tmp_path_factory.getbasetemp() / "fuzzed"
    file.write_bytes(head + rest)
    assert all(f.kind in ("id", "unread") for f in scan(file, USERS))


def test_a_single_file_and_what_is_refused(tmp_path):
    (tmp_path / "users.csv").write_text("user_id\n405\n")
    assert [f.path for f in scan(tmp_path / "users.csv", USERS)] == ["users.csv"]
    with pytest.raises(UsageError, match="does not exist"):
        scan(tmp_path / "nowhere", USERS)
    with pytest.raises(UsageError, match="needs users"):
        scan(tmp_path, [])
