"""Files of requests: right ones are read, wrong ones get a sentence, none a traceback."""

import json

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recunlearn.deletion.requests import named_requests, read_requests
from recunlearn.foundation.errors import RecunlearnError


@pytest.fixture(scope="session")
def read(tmp_path_factory, key_ring):
    folder = tmp_path_factory.mktemp("requests")

    def call(text, name="requests.csv"):
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_requests(folder / name, key_ring, "shop")

    return call


def test_csv_with_everything(read):
    found = read(
        "user_id;reference;requested_at;item_id;from;to;note\n"
        " 007;R-1;2026-03-01;;;;kept as text\n"
        "7.0;R-2;;42;;;\n"
        ";R-3;;42;;;an item\n"
        "7;R-4;;;1970-01-02;1e6;\n"
    )
    assert [(r.reference, r.user, r.item, r.since, r.until, r.scope) for r in found] == [
        ("R-1", " 007", None, None, None, "user"),
        ("R-2", "7.0", "42", None, None, "interaction"),
        ("R-3", None, "42", None, None, "item"),
        ("R-4", "7", None, 86400.0, 1000000.0, "period"),  # one day after 1970-01-01
    ]
    assert found[0].requested_at == "2026-03-01"


def test_a_date_in_to_includes_its_day(read):
    (found,) = read("user_id,from,to\n7,1970-01-02,1970-01-02\n")
    # The day is [86400, 172800) seconds: its last moment goes, midnight after it stays.
    assert found.since == 86400
    assert 172799.999 < found.until < 172800
    (exact,) = read("user_id,to\n7,1970-01-02T00:00:00\n")
    assert exact.until == 86400


def test_json_that_readers_could_take_in_two_ways_is_refused(read):
    for line in ('{"user_id": "1", "user_id": "2"}', '{"user_id": "\\ud800"}'):
        with pytest.raises(RecunlearnError, match=r"twice|printable"):
            read(line, "requests.jsonl")
    with pytest.raises(RecunlearnError, match="'from' is a time"):
        read("user_id,from\n1,2026-03\n")


def test_json_lines_and_the_command_line(read, key_ring):
    lines = [{"user_id": 10**20, "reference": "R-1"}, {"user_id": "a b", "item_id": None}]
    found = read("\n".join(map(json.dumps, lines)), "requests.jsonl")
    assert [r.user for r in found] == ["100000000000000000000", "a b"]
    named = named_requests(["a b", "c", "a b"], key_ring, "shop")
    assert [r.user for r in named] == ["a b", "c"]
    assert named[0].reference == found[1].reference  # the same deletion, the same reference
    assert named[0].reference != named_requests(["a b"], key_ring, "other")[0].reference


def test_repeated_lines_count_once(read):
    assert len(read("user_id,reference\n1,R\n1,R\n")) == 1
    assert len(read("user_id\n1\n2\n1\n")) == 2


WRONG = {
    "": "is empty",
    " \n \n": "is empty",
    "user_id\n": "holds no request",
    "userid\n1\n": "has a column 'userid'. Did you mean user_id?",
    "name\n1\n": "has no column user_id",
    "user_id,user_id\n1,2\n": "more than once",
    "user_id,reference\n1\n": "line 2: 1 fields under a header of 2",
    "user_id,reference\n1,../../etc/passwd\n": "a reference has 1 to 100 letters",
    "user_id,reference\n1,.hidden\n": "a reference has 1 to 100 letters",
    "user_id,reference\n1,a/b\n2,c\n3,\\x\n": "line 2, 4: .*2 in all",
    "user_id,reference\n1,=HYPERLINK()\n": "a reference has 1 to 100 letters",
    "user_id\n\x1b[31m\n": "one line of printable text",
    'user_id\n"1\n2"\n': "one line of printable text",
    'user_id\n"1\n': "Correct the quotes",
    "user_id,from,to\n1,5,2\n": "'from' is not after 'to'",
    "user_id,from\n1,soon\n": "'from' is a time",
    "user_id,to\n1,nan\n": "'to' is a time",
    "user_id,requested_at\n1,31.3.2026\n": "requested_at is a date",
    "user_id,requested_at\n1,\n,2026-01-01\n": "line 3: a request names a user or an item",
    "user_id,reference\n1,R\n2,R\n": "line 3: the reference R was used above for another",
    b"user_id\n\xff\xfe\xfa\n": "line 2: not UTF-8",
    b"user_id\n1\0\n": "is a binary file",
    "{": "line 1: no JSON",
    "[1]\n": "no column user_id",
    '{"user_id": ["a"]}': "'user_id' is .* but text or a number",
    '{"user_id": true}': "text or a number is needed",
}


@pytest.mark.parametrize("text", WRONG, ids=repr)
def test_wrong_files_get_one_sentence(read, text):
    with pytest.raises(RecunlearnError, match=WRONG[text]):
        read(text)


def test_missing_files_and_folders(read, tmp_path, key_ring):
    with pytest.raises(RecunlearnError, match="does not exist"):
        read_requests(tmp_path / "none.csv", key_ring, "shop")
    with pytest.raises(RecunlearnError, match="is no file"):
        read_requests(tmp_path, key_ring, "shop")


CELLS = st.text(max_size=12) | st.sampled_from(
    ["1", "=1+1", "../x", "R-1", "2026-01-01", '"', ",", "\n", "\0"]
)
HEADERS = st.sampled_from(["user_id", "user_id,reference", "user_id,from,to", "item_id;user_id", "{", "x"])
ROWS = st.lists(st.lists(CELLS, max_size=4), max_size=5)
WHOLE = st.lists(st.tuples(CELLS, CELLS, st.sampled_from(["", "R-1", "R-2", "../x"])), min_size=1, max_size=5)
FILES = (
    st.binary(max_size=60)
    | st.builds(
        lambda header, rows: "\n".join([header, *map(",".join, rows)]).encode("utf-8", "replace"),
        HEADERS,
        ROWS,
    )
    | WHOLE.map(
        lambda rows: (
            pd.DataFrame(rows, columns=["user_id", "item_id", "reference"])
            .to_csv(index=False)
            .encode("utf-8", "replace")
        )
    )
    | WHOLE.map(
        lambda rows: "\n".join(
            json.dumps(dict(zip(("user_id", "item_id", "reference"), r, strict=True))) for r in rows
        ).encode()
    )
)


@settings(max_examples=150)
@given(text=FILES, name=st.sampled_from(["fuzz.csv", "fuzz.jsonl"]))
def test_fuzzed_files_are_read_or_refused(read, text, name):
    try:
        found = read(text, name)
    except RecunlearnError:
        return
    assert found
    for request in found:
        assert request.user or request.item
        assert "/" not in request.reference
        assert not request.reference.startswith(".")
