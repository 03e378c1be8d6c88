"""Checks with line numbers, all at once; duplicates; own splits; features; the stored set."""

import errno
import json

import numpy as np
import pandas as pd
import pytest

from recunlearn.data import storage
from recunlearn.data.catalogue import (
    check_new_name,
    data_hash,
    list_data_sets,
    load_interactions,
    remove_data_set,
)
from recunlearn.data.importing import ImportSettings, import_log, require_importable
from recunlearn.data.movielens import ml_100k_files
from recunlearn.data.storage import write_data_set
from recunlearn.foundation.errors import DataError, RecunlearnError, UsageError


@pytest.fixture
def importing(tmp_path):
    def call(content, name="log.csv", **settings):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return import_log("shop", path, ImportSettings(**settings))

    return call


def test_every_problem_is_found_at_once_with_its_lines(importing):
    built, report = importing(
        "user_id,item_id,rating,timestamp\na,1,3,10\n,1,3,11\nNaN,,x,12\nb,2,9,later\nb,3,inf,14\nc,3,5,15\n",
        rating_scale=(1, 5),
    )
    sentences = [p.sentence.split("log.csv, ")[1] for p in report.problems]
    assert sentences == [
        "lines 3, 4: no user id in column 'user_id', but got '' (2 in all). Remove these rows or name them.",
        "line 4: no item id in column 'item_id', but got '' (1 in all). Remove these rows or name them.",
        "lines 4, 6: no number in the rating column 'rating', but got 'x' (2 in all). "
        "Correct or remove these rows.",
        "line 5: rating outside the scale 1 to 5 in column 'rating', but got '9' (1 in all). "
        "Correct these rows or --rating-scale.",
        "line 5: neither a number nor an ISO date in the time column 'timestamp', but got 'later' "
        "(1 in all). Correct these rows or --time-col none.",
    ]
    assert built.users.tolist() == ["a", "c"]
    with pytest.raises(DataError, match=r"lines 3, 4: no user id.* 4 more kinds of problem: see data check"):
        require_importable(report, "log.csv")


def test_long_lists_of_lines_are_cut(importing):
    _, report = importing("user_id,item_id\na,1\n" + ",2\n" * 9)
    assert report.problems[0].lines == (3, 4, 5, 6, 7)
    assert "lines 3, 4, 5, 6, 7, ...: no user id" in report.problems[0].sentence
    assert report.problems[0].rows == 9


def test_ids_with_line_breaks_are_refused(importing):
    _, report = importing('user_id,item_id\na,1\n"b\nc",1\n')
    assert "user id with a tab or line break" in report.problems[0].sentence


def test_a_log_without_a_usable_row(importing):
    with pytest.raises(DataError, match="has a header but no interactions"):
        importing("user_id,item_id\n")
    with pytest.raises(DataError, match="no user id"):
        importing("user_id,item_id\n,1\n")


def test_ids_stay_text(importing):
    built, report = importing("user_id,item_id\n007, a b\n7,é\nü ,007\n")
    assert built.users.tolist() == ["007", "7", "ü "]
    assert built.items.tolist() == [" a b", "é", "007"]
    assert "2 ids start or end with a space" in report.notes[0]


@pytest.mark.parametrize(("keep", "ratings"), [("first", [1, 2]), ("last", [2, 3]), ("all", [1, 2, 3])])
def test_duplicates(importing, keep, ratings):
    built, report = importing("user_id,item_id,rating\na,1,1\na,2,2\na,1,3\n", duplicates=keep)
    assert built.rating.tolist() == ratings
    assert report.facts["repeated_pairs"] == 1
    assert any("1 rows repeat" in n for n in report.notes) == (keep != "all")


def test_duplicates_as_an_error(importing):
    _, report = importing("user_id,item_id\na,1\na,1\n", duplicates="error")
    assert "repeats a user-item pair in 1 row." in report.problems[0].sentence


def test_report_counts_users_with_few_interactions(importing):
    # a: 3, b: 2, c: 1 interactions; times are 2020-01-01 + 0..5 s
    lines = [f"{u},{i},{1577836800 + i}" for i, u in enumerate("aaabbc")]
    _, report = importing("user_id,item_id,timestamp\n" + "\n".join(lines))
    facts = report.facts
    assert (facts["users_with_1"], facts["users_with_2"], facts["users_with_under_5"]) == (1, 1, 3)
    assert facts["interactions_per_user"] == {"least": 1, "median": 2.0, "most": 3}
    assert facts["time"] == {"first": "2020-01-01 00:00:00", "last": "2020-01-01 00:00:05"}


def test_iso_dates_become_seconds(importing):
    built, _ = importing(
        "user_id,item_id,date\na,1,1970-01-02\na,2,1970-01-01T00:00:01Z\na,3,1970-01-01T01:00+01:00\n"
    )
    assert built.time.tolist() == [86400, 1, 0]


def test_min_rating_is_applied_and_said(importing):
    built, report = importing("user_id,item_id,rating\na,1,5\na,2,3\nb,2,1\n", min_rating=4)
    assert (built.users.tolist(), built.items.tolist()) == (["a"], ["1"])
    assert report.notes == ("Ratings below 4 were dropped (--min-rating): 2 interactions, 1 users, 1 items.",)


def test_own_split_column(importing):
    built, report = importing("user_id,item_id,part\na,1,train\na,2,Test\nb,1,validation\n", split_col="part")
    assert built.split.tolist() == [0, 2, 1]
    assert report.facts["split"] == {"train": 1, "valid": 1, "test": 1}
    assert report.notes == ("1 users have no training interaction in your split.",)
    _, report = importing("user_id,item_id,part\na,1,train\na,2,later\n", split_col="part")
    assert "line 3: no split in column 'part', but got 'later'" in report.problems[0].sentence


def test_own_split_files(importing, tmp_path):
    valid, test = tmp_path / "v.csv", tmp_path / "t.csv"
    valid.write_text("user_id,item_id\na,9\n")
    test.write_text("user_id,item_id\nb,1\na,1\n")
    built, report = importing("user_id,item_id\na,1\nb,2\n", valid_file=str(valid), test_file=str(test))
    # (a, 1) of the test file repeats a training row: the first row wins
    assert built.users[built.user].tolist() == ["a", "b", "a", "b"]
    assert built.items[built.item].tolist() == ["1", "2", "9", "1"]
    assert built.split.tolist() == [0, 0, 1, 2]
    assert report.facts["rows"] == 5
    with pytest.raises(UsageError, match="--valid-file was given without --test-file"):
        importing("user_id,item_id\na,1\n", valid_file=str(valid))
    with pytest.raises(UsageError, match="either --split-col or"):
        importing("user_id,item_id\na,1\n", split_col="x", test_file=str(test))
    with pytest.raises(DataError, match="must both have a rating column or neither"):
        importing("user_id,item_id,rating\na,1,2\n", test_file=str(test))


def test_features_beside_an_inter_file_are_kept(importing, tmp_path):
    (tmp_path / "log.user").write_text("age:float\tuser_id:token\n30\t2\n\t1\n40\t9\n")
    (tmp_path / "log.item").write_text("item_id:token\ttags:token_seq\nx\tred blue\n")
    built, _ = importing("user_id:token\titem_id:token\n1\tx\n2\ty\n", "log.inter")
    np.testing.assert_array_equal(built.user_features["age"], [np.nan, 30])
    assert built.user_features["user_id"].tolist() == ["1", "2"]
    assert built.item_features["tags"].tolist() == ["red blue", ""]
    assert built.feature_types == {
        "user_id": "token",
        "age": "float",
        "item_id": "token",
        "tags": "token_seq",
    }
    write_data_set(built, check_new_name("shop"))
    assert load_interactions("shop").hash == built.hash


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("user_id\tage\n1\t3\n", "must name 'user_id:token' and give every column a type"),
        ("user_id:token\tage:float\n1\told\n", "Column 'age' .* line 2 holds 'old'"),
    ],
)
def test_bad_feature_files(importing, tmp_path, content, says):
    (tmp_path / "log.user").write_text(content)
    with pytest.raises(DataError, match=says):
        importing("user_id:token\titem_id:token\n1\tx\n", "log.inter")


def test_import_of_the_embedded_file_equals_the_embedded_set():
    built, report = import_log("copy", ml_100k_files()["inter"], ImportSettings(rating_scale=(1, 5)))
    assert built.hash == data_hash("ml-100k") == load_interactions("ml-100k").hash
    assert not report.problems
    assert (report.facts["users"], report.facts["items"], report.facts["rows"]) == (943, 1682, 100_000)


def stored(importing, name="shop"):
    built, _ = importing("user_id,item_id,rating,timestamp\n007,b,3,1\né,b,4,2\n007,a,5,3\n")
    write_data_set(built, check_new_name(name))
    return built


def test_stored_set_comes_back_equal(importing, home):
    built = stored(importing)
    loaded = load_interactions("shop")
    assert loaded.hash == built.hash == data_hash("shop")
    assert (loaded.name, loaded.users.tolist(), loaded.rating.tolist()) == ("shop", ["007", "é"], [3, 4, 5])
    assert [i.name for i in list_data_sets()] == ["ml-100k", "shop"]
    remove_data_set("shop")
    assert list((home / "data").iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "-x", "a b", "é", "x" * 101])
def test_names_never_are_paths(name):
    with pytest.raises(UsageError, match="data set's name has 1 to 100 letters"):
        check_new_name(name)


def test_taken_names(importing):
    stored(importing)
    with pytest.raises(UsageError, match=r"exists already in .* or add --force"):
        check_new_name("shop")
    assert check_new_name("shop", force=True).name == "shop"
    with pytest.raises(UsageError, match="ml-100k comes with the recbole package"):
        check_new_name("ml-100k", force=True)
    with pytest.raises(UsageError, match="cannot be removed"):
        remove_data_set("ml-100k")


def test_unknown_names_list_the_valid_ones(importing):
    stored(importing)
    for call in (load_interactions, data_hash, remove_data_set):
        with pytest.raises(
            UsageError, match=r"Unknown data set 'shpo'. Did you mean shop\?.*: ml-100k, shop"
        ):
            call("shpo")
    with pytest.raises(UsageError, match="data add ml-1m --download"):
        load_interactions("ml-1m")
    with pytest.raises(UsageError, match="Unknown data set"):
        load_interactions("..")


def _cut(folder):
    file = folder / "interactions.parquet"
    file.write_bytes(file.read_bytes()[:100])


def _other_rows(folder):
    pd.DataFrame({"user_id": ["x"], "item_id": ["y"]}).to_parquet(folder / "interactions.parquet")


def _change(folder, **values):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, **values}))


@pytest.mark.parametrize(
    "harm",
    [
        _cut,
        _other_rows,
        lambda f: (f / "interactions.parquet").unlink(),
        lambda f: (f / "manifest.json").write_text("{"),
        lambda f: (f / "manifest.json").write_text("[]"),
        lambda f: (f / "manifest.json").unlink(),
        lambda f: _change(f, counts={"interactions": 1}),
        lambda f: _change(f, counts=[]),
        lambda f: _change(f, card=[]),
        lambda f: _change(f, name=["a"]),
        lambda f: _change(f, feature_types=None),
        lambda f: _change(f, hash="0"),
        lambda f: _change(f, format=2),
    ],
)
def test_damaged_sets_are_said_listed_and_removable(importing, home, harm):
    stored(importing)
    harm(home / "data" / "shop")
    with pytest.raises(DataError, match=r"stored data set .*shop is damaged .*data remove shop"):
        load_interactions("shop")
    assert [i.name for i in list_data_sets()] == ["ml-100k", "shop"]
    remove_data_set("shop")


def test_stored_hash_is_not_trusted_when_the_cache_is_broken(home):
    first = data_hash("ml-100k")
    (home / "cache" / "ml-100k-hash.json").write_text("nonsense")
    assert data_hash("ml-100k") == first


@pytest.mark.parametrize(
    ("error", "expected"),
    [(OSError(errno.ENOSPC, "No space left"), "The disk is full"), (KeyboardInterrupt(), None)],
)
def test_nothing_is_half_written(importing, home, monkeypatch, error, expected):
    stored(importing)
    before = data_hash("shop")
    built, _ = importing("user_id,item_id\nz,z\n")

    def fail(*_):
        raise error

    with monkeypatch.context() as patch, pytest.raises((RecunlearnError, KeyboardInterrupt), match=expected):
        patch.setattr(storage, "write_json", fail)
        write_data_set(built, check_new_name("shop", force=True))
    assert [p.name for p in (home / "data").iterdir()] == ["shop"]
    assert load_interactions("shop").hash == before
