"""Cards say what the code checks and what the embedded files hold."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from recunlearn.data import ml_1m, movielens
from recunlearn.data.catalogue import load_interactions
from recunlearn.foundation.store import file_hash
from recunlearn.subjects.tofu import published

CARDS = Path(__file__).resolve().parents[2] / "datasets"
KEYS = {"name", "title", "source", "homepage", "import", "licence", "citation", "counts", "columns"}


def card(name):
    return tomllib.loads((CARDS / f"{name}.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted(CARDS.glob("*.toml")), ids=lambda p: p.stem)
def test_every_card_has_the_documented_keys_and_its_histogram_adds_up(path):
    facts = card(path.stem)
    assert set(facts) >= KEYS
    assert facts["name"] == path.stem
    if "rating" in facts:
        assert sum(facts["rating"]["histogram"].values()) == facts["counts"]["interactions"]


def test_ml_100k_card_is_what_the_wheel_holds():
    facts, log = card("ml-100k"), load_interactions("ml-100k")
    assert facts["counts"] == movielens.ML_100K
    values, counts = np.unique(log.rating, return_counts=True)
    assert {f"{v:g}": c for v, c in zip(values, counts, strict=True)} == facts["rating"]["histogram"]
    assert list(log.user_features.columns) == list(facts["columns"]["users"])
    assert list(log.item_features.columns) == list(facts["columns"]["items"])
    assert log.feature_types == facts["columns"]["users"] | facts["columns"]["items"]
    for path in movielens.ml_100k_files().values():
        assert file_hash(path) == facts["sha256"][path.name]


def test_tofu_card_is_what_the_code_checks():
    facts = card("tofu")
    assert facts["sha256"] == {f"{name}.json": value for name, value in published.SHA256.items()}
    assert facts["source"] == f"{published.URL}/full.json"
    assert facts["counts"]["rows"] == facts["counts"]["authors"] * published.ROWS_PER_AUTHOR
    assert set(published.SHA256) <= set(published.NAMES)


def test_ml_1m_card_is_what_the_code_checks():
    facts = card("ml-1m")
    assert facts["counts"] == ml_1m.COUNTS
    assert {int(k): v for k, v in facts["rating"]["histogram"].items()} == ml_1m.HISTOGRAM
    assert facts["md5"]["ml-1m.zip"] == ml_1m.MD5
    assert facts["source"] == ml_1m.URL
    assert facts["citation"].startswith(ml_1m.CITATION)
