"""Files as users have them: encodings, separators, headers, ids that must stay text."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recunlearn.data.columns import pick_columns
from recunlearn.data.readers import read_log
from recunlearn.data.source import find_separator, named_separator
from recunlearn.foundation.errors import DataError, UsageError


@pytest.fixture
def write(tmp_path):
    def call(content, name="log.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return call


def texts(raw, column):
    return raw.table[column].astype(str).tolist()


@pytest.mark.parametrize("sep", [",", "\t", ";", "|", "::", " "])
def test_separators_are_found(write, sep):
    rows = [("userId", "movieId", "rating"), ("007", "é", "3"), ("8", "ü-1", "4.5")]
    raw = read_log(write("\n".join(sep.join(r) for r in rows) + "\n"))
    assert (texts(raw, "user_id"), texts(raw, "item_id"), texts(raw, "rating")) == (
        ["007", "8"],
        ["é", "ü-1"],
        ["3", "4.5"],
    )
    assert raw.table.index.tolist() == [2, 3]


def test_commas_in_text_do_not_hide_the_separator():
    assert find_separator(["user;item;title", "1;2;Good, bad, ugly", "1;3;x"]) == ";"


@pytest.mark.parametrize(
    ("given", "meant"), [("tab", "\t"), (r"\t", "\t"), ("Comma", ","), ("::", "::"), ("#", "#")]
)
def test_named_separators(given, meant):
    assert named_separator(given) == meant


@pytest.mark.parametrize(
    "content",
    [
        "\ufeffuser_id,item_id\n1,é\n",
        "user_id,item_id\r\n1,é\r\n",
        "\n\nuser_id,item_id\n1,é",
        "user_id,item_id\n1,é\n".encode("latin-1"),
        "user_id,item_id\n1,é\n".encode("utf-16"),
    ],
    ids=["bom", "crlf", "blank lines", "latin-1", "utf-16"],
)
def test_encodings_and_line_ends(write, content):
    raw = read_log(write(content))
    assert (texts(raw, "user_id"), texts(raw, "item_id")) == (["1"], ["é"])


def test_latin_1_is_said_with_the_line(write):
    raw = read_log(write("user_id,item_id\n1,a\n1,é\n".encode("latin-1")))
    assert "byte 0xe9 in line 3" in raw.notes[0]


def test_blank_lines_are_skipped_and_line_numbers_stay_those_of_the_file(write):
    raw = read_log(write("\nuser_id,item_id\n1,a\n\n2,b\n\n"))
    assert raw.table.index.tolist() == [3, 5]


def test_atomic_file_keeps_quotes_and_drops_types(write):
    raw = read_log(write('user_id:token\titem_id:token\trating:float\tlabel:float\n1\t"a\t3\t1\n', "x.inter"))
    assert texts(raw, "item_id") == ['"a']
    assert raw.facts["format"] == "RecBole .inter"
    assert raw.left_out == ("label",)


def test_quoted_csv(write):
    raw = read_log(write('user_id,item_id\n"1","a, ""b"""\n'))
    assert texts(raw, "item_id") == ['a, "b"']


ids = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=8)


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_ids_survive_csv_and_parquet(tmp_path_factory, pairs):
    frame = pd.DataFrame(pairs, columns=["user_id", "item_id"])
    folder = tmp_path_factory.mktemp("ids")
    frame.to_csv(folder / "log.csv", index=False)
    frame.to_parquet(folder / "log.parquet", index=False)
    for name in ("log.csv", "log.parquet"):
        raw = read_log(folder / name, separator="," if name == "log.csv" else None)
        assert texts(raw, "user_id") == frame["user_id"].tolist()
        assert texts(raw, "item_id") == frame["item_id"].tolist()


def test_parquet_numbers_become_decimal_text(tmp_path):
    frame = pd.DataFrame(
        {
            "uid": pd.array([2**60 + 1, 7, None], dtype="Int64"),
            "iid": [1.0, 2.5, np.nan],
            "when": pd.to_datetime(["2020-01-01", "2020-01-02T03:04:05", None], format="ISO8601"),
        }
    )
    frame.to_parquet(tmp_path / "log.parquet")
    raw = read_log(tmp_path / "log.parquet", time="when")
    assert texts(raw, "user_id") == ["1152921504606846977", "7", ""]
    assert texts(raw, "item_id") == ["1", "2.5", ""]
    assert texts(raw, "time") == ["2020-01-01T00:00:00", "2020-01-02T03:04:05", ""]
    assert (raw.unit, raw.table.index.tolist()) == ("row", [1, 2, 3])


def test_parquet_of_lists_is_refused(tmp_path):
    pd.DataFrame({"user_id": ["a"], "item_id": [[1, 2]]}).to_parquet(tmp_path / "log.parquet")
    with pytest.raises(DataError, match=r"column 'item_id' of .* has the type list"):
        read_log(tmp_path / "log.parquet")


def test_without_header_columns_are_numbered(write):
    raw = read_log(
        write("1::1193::5\n2::661::3\n", "ratings.dat"), header=False, user="1", item="2", rating="3"
    )
    assert texts(raw, "item_id") == ["1193", "661"]
    assert raw.table.index.tolist() == [1, 2]


BAD = {
    "empty": (b"", "is empty"),
    "blank": (b"\n \n", "is empty"),
    "binary": (b"user_id,item_id\n\x00\x01", "is a binary file"),
    "noise": (bytes(range(1, 256)) * 8, "is a binary file"),
    "zip": (b"PK\x03\x04rest", "is a zip archive"),
    "gzip": (b"\x1f\x8brest", "is a gzip archive"),
    "pickle": (b"\x80\x04\x95rest", "is a pickle, which is never opened"),
    "cut parquet": (b"PAR1 and nothing else", "is no readable parquet file"),
    "one column": (b"user_id\n1\n", "has a single column.*A log needs a user and an item column"),
    "too many fields": (b"user_id,item_id\n1,2\n3,4,5\n", "has 2 columns, but 3 fields in line 3"),
    "short header": (b"user_id,item_id\n1,2,3\n4,5,6\n", "has 2 columns in line 1, but more fields"),
    "open quote": (b'user_id,item_id\n1,"2\n3,4\n', "the quote that opens in line 2 is never closed"),
    "no header": (b"1,2,3\n4,5,6\n", "seems to have no header.*--no-header"),
    "column twice": (b"user_id,item_id,item_id\n1,2,3\n", "has the column 'item_id' more than once"),
    "no user column": (b"usr_id,item_id\n1,2\n", "recognised as the user. Did you mean --user-col usr_id"),
    "no item column": (b"user_id,zzz\n1,2\n", "recognised as the item. Its columns are: user_id, zzz"),
}


@pytest.mark.parametrize(("content", "says"), BAD.values(), ids=BAD.keys())
def test_bad_files_give_one_sentence(write, content, says):
    path = write(content)
    with pytest.raises(DataError, match=says) as caught:
        read_log(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_separator_names_the_ones_that_would_work(write):
    path = write("user_id;item_id\n1;2\n")
    with pytest.raises(DataError, match=r"single column with --sep ','.*would split the header: semicolon"):
        read_log(path, separator=",")


def test_missing_file_and_folder(write, tmp_path):
    write("user_id,item_id\n1,2\n")
    with pytest.raises(UsageError, match=r"lgo.csv does not exist. Did you mean log.csv\?"):
        read_log(tmp_path / "lgo.csv")
    with pytest.raises(UsageError, match="is a folder"):
        read_log(tmp_path)


def test_misspelt_column_names_the_near_miss_and_the_header():
    with pytest.raises(
        UsageError, match=r"'custmer' is not a column of f.csv. Did you mean customer\?.*customer, sku"
    ):
        pick_columns(["customer", "sku"], "f.csv", user="custmer", item="sku")


def test_columns_are_recognised_named_or_left_out():
    header = ["UserID", "movie-id", "Rating", "timestamp", "note"]
    found = pick_columns(header, "f")
    assert (found.user, found.item, found.rating, found.time) == ("UserID", "movie-id", "Rating", "timestamp")
    assert pick_columns(header, "f", rating="none", time="note").rating is None
    with pytest.raises(UsageError, match="--user-col and --item-col both name"):
        pick_columns(header, "f", user="note", item="note")
    with pytest.raises(DataError, match=r"several user columns \(user_id, userId\)"):
        pick_columns(["user_id", "userId", "item"], "f")
