"""Users and interactions deleted from a data set for good."""

import hashlib
import hmac

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recunlearn.data import movielens
from recunlearn.data.catalogue import data_hash, list_data_sets, load_interactions
from recunlearn.data.importing import ImportSettings, import_log
from recunlearn.data.left_out import file_of, keep_rows
from recunlearn.data.storage import write_data_set
from recunlearn.data.tombstones import (
    Erasure,
    bury,
    erase,
    is_deleted,
    is_tombstone,
    returned,
    survivors,
    tombstone,
)
from recunlearn.foundation import paths
from recunlearn.foundation.errors import DataError, UsageError

LOG = """customer,sku,stars,at
ann,a,5,100
bob,a,4,110
ann,b,3,120
canary-7f3a,only,1,130
cyd,b,5,140
canary-7f3a,b,2,150
bob,c,4,160
"""


def key(user):
    return hmac.new(b"secret", user.encode(), hashlib.sha256).hexdigest()


@pytest.fixture
def shop(home, tmp_path):
    file = tmp_path / "log.csv"
    file.write_text(LOG)
    columns = {"user_col": "customer", "item_col": "sku", "rating_col": "stars", "time_col": "at"}
    built, _ = import_log("shop", file, ImportSettings(**columns))
    write_data_set(built, paths.data_sets() / "shop", {"file": str(file)})
    return built


def pairs(data):
    return list(zip(data.users[data.user].tolist(), data.items[data.item].tolist(), strict=True))


def everything_under(folder):
    return b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())


def test_a_buried_user_is_gone_from_data_and_files(shop, home):
    assert bury("shop", ["canary-7f3a"], key) == 2
    left = load_interactions("shop")
    assert pairs(left) == [("ann", "a"), ("bob", "a"), ("ann", "b"), ("cyd", "b"), ("bob", "c")]
    assert left.time.tolist() == [100, 110, 120, 140, 160]
    assert "only" not in left.items.tolist()
    assert left.hash == data_hash("shop") != shop.hash
    assert b"canary-7f3a" not in everything_under(home)
    assert is_deleted("shop", "canary-7f3a", key)
    assert not is_deleted("shop", "ann", key)


def test_the_same_call_again_changes_nothing(shop):
    bury("shop", ["canary-7f3a"], key)
    before = data_hash("shop")
    assert bury("shop", ["canary-7f3a"], key) == 0
    assert data_hash("shop") == before


def test_a_killed_deletion_is_completed(shop, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(
            "recunlearn.data.tombstones.write_data_set", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            bury("shop", ["ann"], key)
    assert not is_deleted("shop", "ann", key)
    assert bury("shop", ["ann"], key) == 2
    assert is_deleted("shop", "ann", key)


def test_survivors_are_what_burying_leaves(shop):
    expected = survivors(shop, [Erasure("bob")])
    bury("shop", ["bob"], key)
    assert load_interactions("shop").hash == expected.hash


@pytest.mark.parametrize(
    ("erasure", "left"),
    [
        (Erasure("ann", "a"), 6),
        (Erasure(item="b"), 4),
        (Erasure("ann", start=110), 6),
        (Erasure(start=120, end=150), 3),
        (Erasure("bob", end=110), 6),
        (Erasure("bob", "c", end=110), 7),
    ],
)
def test_parts_of_a_history(shop, erasure, left):
    erase("shop", [erasure], key)
    assert len(load_interactions("shop")) == left
    assert not is_deleted("shop", "ann", key)


@pytest.mark.parametrize(
    ("users", "error", "sentence"),
    [
        (["dora"], UsageError, "1 of the users to delete are not in the data set 'shop'"),
        (["ann", "bob", "cyd", "canary-7f3a"], DataError, "data remove shop"),
    ],
)
def test_refused_before_anything_is_written(shop, users, error, sentence):
    with pytest.raises(error, match=sentence) as raised:
        bury("shop", users, key)
    assert "dora" not in str(raised.value)
    assert load_interactions("shop").hash == shop.hash
    assert not file_of("shop").exists()


def test_unknown_data_set():
    with pytest.raises(UsageError, match="Unknown data set 'shpo'"):
        bury("shpo", ["ann"], key)


def test_a_period_needs_times(shop):
    from dataclasses import replace

    with pytest.raises(UsageError, match="has no times"):
        Erasure(start=1).rows(replace(shop, time=None))
    with pytest.raises(UsageError, match="must name a user"):
        Erasure().rows(shop)


def test_the_packaged_set_is_read_without_the_deleted(home):
    whole = load_interactions("ml-100k")
    known = data_hash("ml-100k")
    users = [whole.users[0], whole.users[500]]
    assert bury("ml-100k", users[:1], key) == int((whole.user == 0).sum())
    bury("ml-100k", users[1:], key)
    left = load_interactions("ml-100k")
    keep = ~np.isin(whole.user, [0, 500])
    assert pairs(left) == [p for p, kept in zip(pairs(whole), keep, strict=True) if kept]
    assert left.user_features["user_id"].tolist() == left.users.tolist()
    assert left.hash == data_hash("ml-100k") != known
    assert list_data_sets()[0].users == 941
    assert movielens.read_ml_100k().hash == whole.hash
    assert all(is_deleted("ml-100k", u, key) for u in users)


def test_a_damaged_record_is_no_way_back(home):
    bury("ml-100k", ["405"], key)
    file_of("ml-100k").write_text('{"format": 1}')
    with pytest.raises(DataError, match="deleted users would come back"):
        load_interactions("ml-100k")


def test_a_new_import_that_brings_somebody_back_is_found(shop):
    bury("shop", ["ann"], key)
    assert returned("shop", shop, key) == ["ann"]
    assert returned("shop", load_interactions("shop"), key) == []


def test_tombstones_are_no_ids(tmp_path):
    file = tmp_path / "log.csv"
    file.write_text(f"user_id,item_id\n{tombstone(3)},a\n")
    assert is_tombstone(tombstone(3))
    with pytest.raises(DataError, match="tab or line break"):
        import_log("x", file, ImportSettings(sep="comma"))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20), st.data())
def test_keeping_rows_is_importing_them(rows, data):
    """Oracle: the same rows numbered by pandas, in order of first appearance."""
    from recunlearn.data.build import build_interactions

    frame = pd.DataFrame(rows, columns=["u", "i"]).astype(str)
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    kept = keep_rows(build_interactions("x", frame["u"], frame["i"]), keep)
    codes, users = pd.factorize(frame["u"][keep])
    assert kept.user.tolist() == codes.tolist()
    assert kept.users.tolist() == list(users)
    assert [kept.items[i] for i in kept.item] == frame["i"][keep].tolist()
