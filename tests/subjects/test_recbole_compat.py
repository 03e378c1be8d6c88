"""RecBole's side effects stay out: command line, eval, environment, warnings, anomaly mode, files."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from test_recbole_store import settings
from test_recbole_subject import small_data

from recunlearn.foundation.errors import UsageError
from recunlearn.subjects.recbole import compat
from recunlearn.subjects.recbole.compat import quiet
from recunlearn.subjects.recbole.store import train_subject


def test_the_command_line_never_reaches_recbole(monkeypatch, tmp_path):
    marker = tmp_path / "evaluated"
    hostile = ["--learning_rate=9.9", f"--embedding_size=open({str(marker)!r}, 'w').close()", "--model=Pop"]
    monkeypatch.setattr(sys, "argv", ["cli.py", "score-users", *hostile])
    config = compat.make_config("BPR", "x", {"learning_rate": 0.1})
    assert config["learning_rate"] == 0.1
    assert config["embedding_size"] == 64
    assert config["model"] == "BPR"
    assert not marker.exists()


def test_values_are_never_evaluated(tmp_path):
    marker = tmp_path / "evaluated"
    text = f"open({str(marker)!r}, 'w').close()"
    assert compat.make_config("BPR", "x", {"learner": text})["learner"] == text
    assert not marker.exists()


def test_environment_and_device_are_ours(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    assert compat.make_config("BPR", "x", {"device": "cpu"})["device"] == torch.device("cpu")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "5"


@pytest.mark.parametrize("model", ["SINE", "SASRec", "BERT4Rec"])
def test_anomaly_mode_stays_off(model, monkeypatch):
    for name in [n for n in sys.modules if n.startswith("recbole.model.sequential_recommender")]:
        monkeypatch.delitem(sys.modules, name)
    compat.model_class(model)
    assert not torch.is_anomaly_enabled()


def test_quick_start_ray_and_the_trainer_are_not_imported(run_python):
    code = (
        "import sys, recunlearn.subjects.recbole.store;"
        "print([m for m in ('ray', 'recbole.quick_start', 'recbole.trainer') if m in sys.modules])"
    )
    assert run_python(code).strip() == "[]"


def test_present_numpy_names_are_not_replaced():
    assert np.bool is np.bool_
    assert np.long is np.dtype("long").type


def test_the_name_ml_100k_brings_no_rules_of_its_own():
    """RecBole loads other columns and a threshold when a data set is called ml-100k."""
    assert compat.make_config("DeepFM", "ml-100k", {})["threshold"] is None


def test_combinations_that_recbole_refuses_are_one_sentence():
    with pytest.raises(UsageError, match="RecBole refuses these parameters of SASRec: ValueError: train_neg"):
        compat.make_config("SASRec", "x", {"train_neg_sample_args": {"distribution": "uniform"}})


def test_parameters_that_do_not_fit_each_other_are_one_sentence(tmp_path):
    with pytest.raises(UsageError, match="SASRec cannot be built from this data and these parameters"):
        train_subject(small_data(), settings("SASRec", hidden_size=5, n_heads=2), folder=tmp_path / "m")


def test_training_writes_nothing_but_the_model(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    train_subject(small_data(), settings("BPR", embedding_size=4), folder=tmp_path / "models" / "m")
    assert list(here.iterdir()) == []
    assert [p.name for p in (tmp_path / "models").iterdir()] == ["m"]


@pytest.fixture
def run_python():
    def call(code):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
        )
        return done.stdout

    return call


def test_threads_inside_quiet_give_the_streams_back():
    """Interleaved: the first one in leaves before the last one, which came in while stdout was redirected."""
    before, filters = sys.stdout, list(warnings.filters)
    first, second = quiet(), quiet()
    first.__enter__()
    assert sys.stdout is sys.stderr
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.stdout is sys.stderr
    second.__exit__(None, None, None)
    assert sys.stdout is before
    assert warnings.filters == filters
