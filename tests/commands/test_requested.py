"""What is asked for on the command line: options, parameters, lists of users."""

import pytest

from recunlearn.commands.requested import given, merged, parameters, read_users
from recunlearn.foundation.errors import DataError, UsageError


def test_options_go_over_the_file_table_by_table():
    file = {"model": "BPR", "circuits": {"steps": 8, "path": "captum"}}
    options = given(model=None, circuits=given(steps=32, score=None), anchors=given(source=None))
    assert merged(file, options) == {"model": "BPR", "circuits": {"steps": 32, "path": "captum"}}


def test_parameters_are_toml_values_or_text():
    found = parameters(["learning_rate=1e-3", "layers = [1, 2]", "learner=adam", "flag=true", "name='x'"])
    assert found == {"learning_rate": 0.001, "layers": [1, 2], "learner": "adam", "flag": True, "name": "x"}


@pytest.mark.parametrize("pair", ["learning_rate", "=3", ""])
def test_parameters_need_a_key_and_a_value(pair: str):
    with pytest.raises(UsageError, match="--set needs KEY=VALUE"):
        parameters([pair])


def test_a_value_with_further_lines_stays_text():
    assert parameters(["a=1\nb=2"]) == {"a": "1\nb=2"}


def test_a_parameter_given_twice_is_refused():
    with pytest.raises(UsageError, match="--set a was given twice"):
        parameters(["a=1", "a=2"])


USERS = {
    "plain.txt": (b"007\n42\n", ["007", "42"]),
    "header.txt": (b"user_id\n007\n", ["007"]),
    "blank.txt": (b"\n007\n\n42\n\n", ["007", "42"]),
    "repeated.txt": (b"b\na\nb\n", ["b", "a"]),
    "columns.csv": (b"requested_at,user_id\n2026-01-01,7\n2026-01-02,08\n", ["7", "08"]),
    "tabs.tsv": (b"user_id\tx\nUwe B\t1\n", ["Uwe B"]),
    "bom.csv": (b"\xef\xbb\xbfuser_id\n7\n", ["7"]),
    "crlf.csv": (b"User_ID,x\r\n7,1\r\n", ["7"]),
    "unicode.txt": ("Zoë\n用户\n".encode(), ["Zoë", "用户"]),
    "latin.txt": (b"Zo\xeb\n", ["Zoë"]),
    "quoted.csv": (b'user_id,note\n"a,b",x\n', ["a,b"]),
    "semicolons.csv": (b"note;User ID\nx;7\n", ["7"]),
    "columns.txt": (b"user_id,note\n7,x\n", ["7"]),
    "commas.txt": (b"a,b\n", ["a,b"]),
}


@pytest.mark.parametrize("name", USERS)
def test_users_are_read_as_text(name: str, tmp_path):
    raw, expected = USERS[name]
    (tmp_path / name).write_bytes(raw)
    assert read_users(tmp_path / name) == expected


BAD = {
    "empty.txt": (b"", "holds no users"),
    "blank.csv": (b"\n \n", "holds no users"),
    "binary.txt": (b"\x00\x01", "is a binary file"),
    "only_header.csv": (b"user_id\n", "no users below it"),
    "misspelt.csv": (
        b"usr_id,x\n1,2\n",
        "no column of user ids: its header is usr_id, x. Did you mean user_id?",
    ),
    "headless.csv": (b"405\n88\n", "or save ids without a header as a .txt file, one a line."),
    "open.csv": (b'user_id\n7\n"8\n9\n', "open.csv, line 3: unexpected end of data. Correct that line"),
    "long.csv": (b"user_id\n" + b"1" * 200_000, "line 2: field larger than field limit"),
    "noise.txt": (bytes(range(1, 9)) * 99, "is a binary file"),
    "gap.csv": (b"user_id,x\n1,2\n,3\n", "line 3: the user id is empty"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_users_files_get_one_sentence(name: str, tmp_path):
    raw, sentence = BAD[name]
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(DataError) as caught:
        read_users(tmp_path / name)
    assert sentence in str(caught.value)


def test_a_missing_users_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.csv does not exist"):
        read_users(tmp_path / "nowhere.csv")
    with pytest.raises(DataError, match="cannot be read"):
        read_users(tmp_path)
