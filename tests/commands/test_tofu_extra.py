"""Without the extra ``llm`` the commands say what to install; nothing here needs it."""

from importlib.metadata import PackageNotFoundError

import pytest

from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.settings import make_settings
from recunlearn.studies import language_keys
from recunlearn.studies.columns import AUTHORS, ROWS, USERS, columns_in
from recunlearn.subjects.tofu.settings import LanguageSettings


def test_the_missing_extra_is_named(tmp_path, monkeypatch):
    def version(package):
        if package == "transformers":
            raise PackageNotFoundError(package)
        return "1"

    monkeypatch.setattr(language_keys, "version", version)
    (tmp_path / "own.csv").write_text("question,answer\nWho?,Ann.\n")
    settings = LanguageSettings(files=("own.csv",), model="some/model")
    with pytest.raises(RecunlearnError, match=r"extra 'llm' .*pip install recunlearn\[llm\]"):
        language_keys.language_keys(settings, tmp_path)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {},
            "The settings in tiny.toml cannot be used: Give either a model (--model) or an [architecture] of",
        ),
        ({"model": "m", "architecture": {"model_type": "llama"}}, "Give either a model (--model) or an"),
        ({"model": ""}, "at least 1 character"),
        ({"model": "m", "files": "own.csv"}, "Setting 'files' in tiny.toml: Input should be a valid list"),
        ({"architecture": {"hidden_size": 8}}, "needs a model_type"),
        ({"model": "m", "text": {"prompt": "Q:"}}, "must contain {question}"),
        ({"model": "m", "entity": "user"}, "entity"),
        ({"model": "m", "training": {"lora": 0}}, "training.lora"),
    ],
)
def test_settings_that_are_refused(values, sentence):
    with pytest.raises(RecunlearnError) as error:
        make_settings(LanguageSettings, values, "tiny.toml")
    assert sentence in str(error.value)
    assert len(str(error.value)) < 200


def test_columns_go_there_and_back():
    import pandas as pd

    table = pd.DataFrame(
        {"user_id": ["a"], "n_interactions": [3], "mean_item_popularity": [0.5], "cud": [1.0]}
    )
    table["personalisation_gap"] = float("nan")
    for columns in (ROWS, AUTHORS):
        own = columns.own(table)
        assert list(own.columns) == [columns.entity, "answer_tokens", "shared_ngrams", "cud"]
        assert columns_in(own) == columns
        pd.testing.assert_frame_equal(columns.plain(own), table)
    assert USERS.own(table) is not None
    assert columns_in(table) == USERS
    assert ROWS.name("personalisation_gap") is None
