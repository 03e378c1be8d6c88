"""What stored language models and their figures depend on."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "subjects"))
from tiny_language import settings_of, write_rows

from recunlearn.foundation.errors import CheckpointError
from recunlearn.foundation.store import write_json
from recunlearn.studies import language_keys
from recunlearn.studies.benchmark import language_plan
from recunlearn.studies.benchmark.language_settings import LanguageBenchmarkSettings
from recunlearn.subjects.tofu.manifest import MANIFEST, weights_hash


@pytest.mark.parametrize(("accumulate", "anew"), [(1, False), (2, True)])
def test_only_models_with_several_batches_a_step_are_trained_anew(accumulate, anew, tmp_path, monkeypatch):
    write_rows(tmp_path, 6)
    settings = settings_of(training={"accumulate": accumulate})
    after = language_keys.language_keys(settings, tmp_path).model
    monkeypatch.setattr(language_keys, "FORMAT", 1)
    assert (language_keys.language_keys(settings, tmp_path).model != after) is anew


def test_an_altered_copy_is_another_model(tmp_path):
    write_rows(tmp_path, 6)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    facts = {"settings": {}, "data_hash": "", "rows": 6, "losses": []}
    write_json(tmp_path / MANIFEST, {"kind": "language", "weights_hash": weights_hash(tmp_path), **facts})
    found = language_keys.language_keys(settings_of(), tmp_path, checkpoint=tmp_path)
    assert found.model == tmp_path
    (tmp_path / "model.safetensors").write_bytes(b"others")
    with pytest.raises(CheckpointError, match="were altered after training"):
        language_keys.language_keys(settings_of(), tmp_path, checkpoint=tmp_path)


def test_figures_of_another_format_are_not_mixed(tmp_path, monkeypatch):
    write_rows(tmp_path, 40)
    values = settings_of().model_dump() | {"fraction": 0.1}
    settings = LanguageBenchmarkSettings.model_validate(values)
    found = language_plan.language_plan(settings, tmp_path / "out", tmp_path).identity
    monkeypatch.setattr(language_plan, "FORMAT", language_plan.FORMAT + 1)
    assert language_plan.language_plan(settings, tmp_path / "out", tmp_path).identity != found
