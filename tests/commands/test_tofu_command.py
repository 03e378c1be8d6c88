"""``tofu``: from rows to a score table and forget sets, on a tiny Llama."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("transformers")

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "subjects"))
from tiny_language import LLAMA, write_rows

from recunlearn.studies.columns import ROWS

SETTINGS = f"""
files = ["own.csv"]
vocabulary = 320
rows_per_author = 2

[architecture]
{chr(10).join(f"{k} = {json.dumps(v)}" for k, v in LLAMA.items())}

[training]
epochs = 30
learning_rate = 1e-2
batch_size = 16
accumulate = 1

[circuits]
steps = 3

[anchors]
pool = 20
count = 3
seeds = 1
methods = ["GradAscent", "UNDIAL"]
learning_rate = 1e-3
most_steps = 24
"""


@pytest.fixture
def place(tmp_path):
    write_rows(tmp_path, 48)
    (tmp_path / "tiny.toml").write_text(SETTINGS, encoding="utf-8")
    return tmp_path


def test_score_then_read_then_forget_sets(place, run_cli):
    asked = ("--config", place / "tiny.toml", "--data", place)
    first = run_cli("tofu", "score", *asked, "--format", "csv", "--out", place / "out")
    assert first.code == 0, first.err
    assert "Probing 20 rows with 2 methods" in first.err
    assert "outcomes could be measured, and 30 are needed" in " ".join(first.err.split())
    assert "user" not in first.err
    table = pd.read_csv(io.StringIO(first.out))
    assert {"row_id", "answer_tokens", "shared_ngrams", "cud", "band", "loss"} <= set(table.columns)
    assert not {"user_id", "n_interactions", "mean_item_popularity", "personalisation_gap"} & set(
        table.columns
    )
    assert len(table) == 48
    assert table["cud"].between(0, 1).all()
    assert table["cud"].is_monotonic_decreasing
    assert int(table["is_anchor"].sum()) == 6
    summary = json.loads((place / "out" / "summary.json").read_text())
    assert set(summary["spearman"]) == {"answer_tokens", "shared_ngrams", "loss"}
    assert summary["edges"] == 1 + 5 + 6 + 10 + 11

    again = run_cli("tofu", "score", *asked, "--format", "csv")
    assert again.out == first.out
    assert "Tracing" not in again.err

    # 3 anchors a side are too few for a test; the fifths of CUD are 42 // 5 rows each.
    shapes = run_cli("tofu", "signatures", *asked, "--out", place / "shapes")
    assert shapes.code == 0, shapes.err
    assert "anchors left out (8 and 8 rows)" in shapes.out
    assert "3 easy, 3 hard" in shapes.out
    assert "attention edges" in shapes.out
    assert "shared wording and loss held fixed" in " ".join(shapes.out.split())
    told = json.loads((place / "shapes" / "signatures.json").read_text())["facts"]
    assert told["controls"] == ["answer_tokens", "shared_ngrams", "loss"]

    (place / "some.csv").write_text("row_id\nown:3\nown:0\n")
    shown = run_cli("tofu", "score", *asked, "--rows", place / "some.csv")
    assert shown.code == 0, shown.err
    assert "own:3" in shown.out
    assert "CUD against trivial scores" in shown.out
    assert "answer length" in shown.out
    related = pd.read_csv(place / "out" / "relations.csv").set_index("name")
    assert related.loc["shared_ngrams", "rho"] == pytest.approx(
        summary["spearman"]["shared_ngrams"], abs=1e-4
    )
    assert related["p"].between(0, 1).all()
    assert "LlamaForCausalLM on own.csv, 30 epochs" in shown.out

    drawn = run_cli(
        "tofu", "forget-sets", *asked, "--out", place / "sets", "--fraction", "0.1", "--draws", "1"
    )
    assert drawn.code == 0, drawn.err
    zero = run_cli("tofu", "forget-sets", *asked, "--out", place / "none", "--fraction", "0.001")
    assert (zero.code, zero.out) == (2, "")
    assert "A fraction of 0.001 of 48 rows rounds to zero. Give at least 0.021." in zero.err
    assert not (place / "none").exists()
    sets = {n: pd.read_csv(place / "sets" / f"{n}.csv") for n in ("easy-0", "hard-0", "random-0")}
    assert all(list(s.columns) == ["row_id", "answer_tokens"] for s in sets.values())
    cud = table.set_index("row_id")["cud"]
    assert cud[sets["hard-0"]["row_id"]].mean() > cud[sets["easy-0"]["row_id"]].mean()
    tokens = [s["answer_tokens"].sum() for s in sets.values()]
    assert max(tokens) / min(tokens) < 1.06
    assert ROWS.plain(table)["personalisation_gap"].isna().all()

    # The same model, scored by author: it is not trained again.
    authors = run_cli("tofu", "score", *asked, "--entity", "author", "--format", "csv")
    assert authors.code == 0, authors.err
    assert "Training" not in authors.err
    found = pd.read_csv(io.StringIO(authors.out))
    assert len(found) == 24
    assert found["author_id"].str.startswith("own:author-").all()
    assert np.isclose(found["answer_tokens"].sum(), table["answer_tokens"].sum())


def test_train_and_checkpoint(place, run_cli):
    asked = ("--config", place / "tiny.toml", "--data", place)
    made = run_cli("tofu", "train", *asked, "--epochs", "1", "--out", place / "model")
    assert made.code == 0, made.err
    assert "LlamaForCausalLM on own.csv, 1 epochs" in made.out
    assert (place / "model" / "model.safetensors").is_file()
    assert "It hardly knows its rows" in made.err
    pool = place / "pool.toml"
    pool.write_text(SETTINGS.replace("epochs = 30", "epochs = 1").replace("count = 3", "count = 30"))
    few = run_cli("tofu", "score", "--config", pool, "--data", place, "--checkpoint", place / "model")
    assert (few.code, few.out) == (2, "")
    assert "Anchor count must be between 1 and 10" in few.err
    assert "Tracing" not in few.err
    again = run_cli("tofu", "train", *asked, "--epochs", "1", "--out", place / "model")
    assert again.out == made.out
    assert "Training" not in again.err
    refused = run_cli("tofu", "score", *asked, "--checkpoint", place / "model", "--epochs", "2")
    assert (refused.code, refused.out) == (2, "")
    assert "--epochs cannot go with --checkpoint" in refused.err


def test_training_replaces_no_folder_of_another_kind(place, run_cli):
    asked = ("tofu", "train", "--config", place / "tiny.toml", "--data", place, "--epochs", "1", "--out")
    (place / "letters").mkdir()
    (place / "letters" / "dear.txt").write_text("dear")
    refused = run_cli(*asked, place / "letters")
    assert refused.code == 2
    assert "is not empty and holds no language model that was trained here" in refused.err
    assert (place / "letters" / "dear.txt").read_text() == "dear"
    assert run_cli(*asked, place / "model").code == 0
    before = (place / "model" / "model.safetensors").read_bytes()
    for options, what in ((("--epochs", "2"), "(training;"), (("--files", "own.csv[:30]"), "(files;")):
        other = run_cli(*asked, place / "model", *options)
        assert other.code == 2
        assert f"trained with other settings {what}" in other.err
    assert (place / "model" / "model.safetensors").read_bytes() == before
    manifest = json.loads((place / "model" / "manifest.json").read_text())
    (place / "model" / "manifest.json").write_text(json.dumps({**manifest, "settings": None}))
    score = ("tofu", "score", "--config", place / "tiny.toml", "--data", place, "--checkpoint")
    damaged = run_cli(*score, place / "model")
    assert damaged.code == 1
    assert "does not describe a trained language model: settings is missing" in damaged.err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("row_id\nown:99\n", "1 of the 1 ids in {file} are not among the 48 of the data, such as 'own:99'"),
        ("", "{file} holds no rows. Write one id a line, or a CSV with the column row_id."),
        ("who\nown:1\n", "{file} has no column of row ids"),
        ("row_id\n", "{file} has a header but no rows below it"),
        (None, "The rows file {file} does not exist. Check the path given to --rows."),
    ],
)
def test_lists_of_rows_are_refused_before_anything_is_trained(place, run_cli, text, sentence):
    file = place / "some.csv"
    if text is not None:
        file.write_text(text)
    asked = ("--config", place / "tiny.toml", "--data", place, "--rows", file)
    found = run_cli("tofu", "score", *asked)
    assert found.code in (1, 2)
    assert sentence.format(file=file) in found.err
    assert len(found.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (("--data", "nowhere"), 1, "own.csv does not exist"),
        (("--files", "forget10"), 1, "Place forget10.json of the dataset locuslab/TOFU"),
        (("--max-length", "8"), 1, "48 of 48 rows are longer than 8 tokens"),
        (("--model", "nobody/nothing"), 1, "is no folder here and not in the hub's local cache"),
        (("--granularity", "heads"), 2, "granularity"),
        (("--files", ""), 2, "Setting 'files'"),
        (("--checkpoint", "nowhere"), 1, "no language model that was trained here"),
    ],
)
def test_mistakes_are_one_sentence(place, run_cli, options, code, sentence):
    asked = ("--config", place / "tiny.toml", *(() if "--data" in options else ("--data", place)))
    found = run_cli("tofu", "score", *asked, *options)
    assert found.code == code
    assert sentence in found.err
    assert len(found.err.strip().splitlines()) == 1


def test_too_little_memory_names_what_to_lower():
    import torch

    from recunlearn.foundation.errors import RecunlearnError
    from recunlearn.subjects.tofu.memory import enough_memory
    from recunlearn.subjects.tofu.settings import LanguageSettings

    settings = LanguageSettings.model_validate({"architecture": LLAMA})
    with pytest.raises(RecunlearnError, match=r"Lower --batch-size .* now 8"), enough_memory(settings):
        torch.empty(1 << 60)
    with pytest.raises(RuntimeError, match="something else"), enough_memory(settings):
        raise RuntimeError("something else")
