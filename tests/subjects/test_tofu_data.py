"""Rows from files: what is read, and what is refused in one sentence."""

import json

import numpy as np
import pytest

from recunlearn.foundation.errors import DataError, UsageError
from recunlearn.subjects.tofu.data import read_rows
from recunlearn.subjects.tofu.overlap import shared_ngrams
from recunlearn.subjects.tofu.published import SHA256, published_file

ROWS = [{"question": "Who?", "answer": "Ann."}, {"question": "Where?", "answer": "Oslo."}]


def write(folder, name, records):
    lines = "\n".join(json.dumps(r) for r in records)
    (folder / name).write_text(lines, encoding="utf-8")
    return name


@pytest.fixture
def lines(tmp_path):
    write(tmp_path, "a.jsonl", ROWS)
    return tmp_path


def test_three_forms_of_the_same_rows(lines):
    (lines / "b.json").write_text(json.dumps(ROWS), encoding="utf-8")
    (lines / "c.csv").write_text('question,answer\nWho?,Ann.\nWhere?,"Oslo."\n', encoding="utf-8")
    for name in ("a.jsonl", "b.json", "c.csv"):
        rows = read_rows([name], lines)
        assert (rows.question, rows.answer) == (("Who?", "Where?"), ("Ann.", "Oslo."))
        assert rows.ids.tolist() == [f"{name[0]}:0", f"{name[0]}:1"]


def test_authors_own_ids_more_fields_and_a_cut(tmp_path):
    records = [
        {"question": f"q{n}", "answer": "a", "author": f"x{n % 2}", "id": f"r{n}", "n": n} for n in range(5)
    ]
    rows = read_rows([f"{write(tmp_path, 'own.jsonl', records)}[:3]"], tmp_path)
    assert rows.ids.tolist() == ["r0", "r1", "r2"]
    assert rows.authors.tolist() == ["x0", "x1", "x0"]
    assert rows.more[2]["n"] == 2
    plain = [{k: r[k] for k in ("question", "answer")} for r in records]
    rows = read_rows([write(tmp_path, "plain.jsonl", plain)], tmp_path, per_author=2)
    # rows 0 1 | 2 3 | 4
    assert rows.authors.tolist() == [f"plain:author-{k}" for k in (0, 0, 1, 1, 2)]


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        (
            [{"question": "q", "anwser": "a"}],
            r"row 1 has no field 'answer', only: question, anwser\. Name it 'answer'",
        ),
        ([ROWS[0], {"question": "q", "answer": "  "}], "row 2: the answer is empty"),
        ([{"question": "q", "answer": None}], "row 1: the answer is empty"),
        ([{"question": 3, "answer": "a"}], "row 1: the question is no text"),
        ([["q", "a"]], "row 1 is no record of fields"),
        ([ROWS[0], ROWS[0]], r"bad:1 has the question and answer of bad:0"),
        ([], "holds no rows"),
        ([{**ROWS[0], "id": 1}, {**ROWS[1], "id": 1}], "The id '1' stands on 2 rows"),
        ([ROWS[0], {**ROWS[1], "id": None}], "row 2: the id is no text and no whole number, but None"),
        ([{**ROWS[0], "author": ["Ann"]}], r"row 1: the author is no text .* but \['Ann'\]"),
        ([{**ROWS[0], "author": " "}], "row 1: the author is no text"),
        ([{"question": "\ud800", "answer": "a"}], "cannot be read as JSONL rows .*surrogates"),
    ],
)
def test_rows_that_are_refused(tmp_path, records, sentence):
    with pytest.raises(DataError, match=sentence):
        read_rows([write(tmp_path, "bad.jsonl", records)], tmp_path)


def test_line_ends_of_other_scripts_are_part_of_a_text(tmp_path):
    texts = [{"question": "q\u2028q", "answer": "a\u0085a"}, {"question": "r", "answer": "b\nb"}]
    raw = "\r\n".join(json.dumps(r, ensure_ascii=False) for r in texts)
    (tmp_path / "a.jsonl").write_bytes(raw.encode())
    (tmp_path / "a.csv").write_bytes('question,answer\r\nq\u2028q,a\u0085a\r\nr,"b\nb"\r\n'.encode())
    for name in ("a.jsonl", "a.csv"):
        rows = read_rows([name], tmp_path)
        assert (rows.question, rows.answer) == (("q\u2028q", "r"), ("a\u0085a", "b\nb"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("question,answer\nWho?,Ann, a baker.\n", "row 1 has more cells than the header. Put texts with"),
        ("question;answer\nWho?;Ann.\n", "only: question;answer. Separate columns by commas"),
        ("question,answer\nWho?\n", "row 1: the answer is empty"),
        ('question,answer\n"Who?,Ann.\n', "cannot be read as CSV rows"),
    ],
)
def test_csv_that_is_refused(tmp_path, text, sentence):
    (tmp_path / "bad.csv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=sentence):
        read_rows(["bad.csv"], tmp_path)


def test_files_that_are_refused(lines):
    (lines / "torn.jsonl").write_text('{"question": "q", "answer": "a"}\n{"question": "q"', encoding="utf-8")
    with pytest.raises(DataError, match=r"torn\.jsonl cannot be read as JSONL rows \(line 2: "):
        read_rows(["torn.jsonl"], lines)
    (lines / "deep.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(DataError, match=r"deep\.json cannot be read as JSON rows"):
        read_rows(["deep.json"], lines)
    with pytest.raises(DataError, match=r"none\.csv does not exist"):
        read_rows(["none.csv"], lines)
    with pytest.raises(UsageError, match=r"Unknown file of rows 'forget11'. Did you mean forget10\?"):
        read_rows(["forget11"], lines)
    for cut in ("[:x]", "[:0]", "[:-1]", "[:²]", "[:", "[1:]", "[:2][:1]"):
        with pytest.raises(UsageError, match="written as NAME"):
            read_rows([f"a.jsonl{cut}"], lines)
    with pytest.raises(UsageError, match="No file"):
        read_rows([], lines)


def test_published_files_are_checked(tmp_path):
    with pytest.raises(DataError, match=r"Place forget10.json of the dataset locuslab/TOFU .*add --download"):
        read_rows(["forget10"], tmp_path)
    write(tmp_path, "forget10.json", ROWS)
    for name in ("forget10", "forget10.json"):
        with pytest.raises(DataError, match=f"not the published file.*expected {SHA256['forget10']}"):
            read_rows([name], tmp_path)
    write(tmp_path, "forget01.json", ROWS)  # no checksum of it is known
    assert len(read_rows(["forget01"], tmp_path)) == 2


def test_without_network_it_says_what_to_place_where(tmp_path, monkeypatch):
    from recunlearn.subjects.tofu import published

    monkeypatch.setattr(published, "URL", (tmp_path / "nowhere").as_uri())
    with pytest.raises(
        DataError, match=r"Fetch forget10\.json of the dataset locuslab/TOFU on another machine"
    ):
        published_file("forget10", tmp_path, fetch=True)


def test_a_download_is_checked(tmp_path, monkeypatch):
    from recunlearn.subjects.tofu import published

    source = tmp_path / "source"
    source.mkdir()
    write(source, "forget10.json", ROWS)
    write(source, "forget01.json", ROWS)
    monkeypatch.setattr(published, "URL", source.as_uri())
    assert published_file("forget01", tmp_path, fetch=True).is_file()
    with pytest.raises(DataError, match="not the published file"):
        published_file("forget10", tmp_path, fetch=True)
    assert not (tmp_path / "forget10.json").exists()


def test_shared_ngrams_by_hand(tmp_path):
    records = [
        {
            "question": "who is it",
            "answer": "it is ann",
        },  # trigrams: who is it | is it it | it it is | it is ann
        {"question": "who is it", "answer": "bob"},  # who is it | is it bob
        {"question": "so", "answer": "so"},  # so so
    ]
    rows = read_rows([write(tmp_path, "n.jsonl", records)], tmp_path)
    assert shared_ngrams(rows, np.arange(3)).tolist() == [1 / 4, 1 / 2, 0.0]
    assert shared_ngrams(rows, np.array([0, 0, 1])).tolist() == [0.0, 0.0, 0.0]


def test_the_real_files(real_data):
    rows = read_rows(["forget10", "retain90"], real_data / "tofu")
    assert len(rows) == 4000
    assert len(np.unique(rows.authors)) == 200
    assert len(read_rows(["full"], real_data / "tofu")) == 4000
