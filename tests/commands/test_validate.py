"""``validate`` end to end on a cut of ml-100k."""

import json

import numpy as np
import pandas as pd
import pytest

from recunlearn.data.catalogue import load_interactions
from recunlearn.difficulty.validity import LeakError
from recunlearn.foundation.errors import TraceError
from recunlearn.foundation.settings import make_settings
from recunlearn.studies.validity.analysis import Seed, _variants
from recunlearn.studies.validity.held_out import Folds, held_out_cud, held_out_fit
from recunlearn.studies.validity.settings import ValiditySettings
from recunlearn.studies.validity.tasks import do, others
from recunlearn.studies.validity.trial import Trial

CONFIG = """
dataset = "cut"
models = ["BPR"]
seeds = 2
folds = 3
draws = 20
variants = ["similarity", "anchors of one method", "path points"]
competitors = ["activity", "loss", "personalisation-gap", "el2n"]
[training]
epochs = 3
params = {embedding_size = 16}
[circuits]
steps = 4
groups = 8
[anchors]
pool = 40
count = 6
methods = ["GradAscent", "NPO"]
seeds = 1
most_steps = 20
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Home folder with a data set of 120 users, a settings file, and what one run printed and wrote."""
    folder = tmp_path_factory.mktemp("validate")
    log = load_interactions("ml-100k")
    rows = (log.user < 120) & (log.item < 200)
    users = np.array([f"customer-{user}" for user in log.users])
    frame = pd.DataFrame({"user_id": users[log.user], "item_id": log.items[log.item]})
    frame.assign(rating=log.rating, timestamp=log.time)[rows].to_csv(folder / "cut.csv", index=False)
    (folder / "run.toml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECUNLEARN_HOME", str(folder / "home"))
        from recunlearn.commands.app import run

        assert run(["data", "add", "cut", "--file", str(folder / "cut.csv")]) == 0
        out = str(folder / "out")
        assert run(["validate", "--config", str(folder / "run.toml"), "--jobs", "1", "--out", out]) == 0
    return folder


@pytest.fixture
def at_home(study, monkeypatch):
    monkeypatch.setenv("RECUNLEARN_HOME", str(study / "home"))
    return study


@pytest.fixture
def trial(at_home):
    import tomllib

    return Trial(make_settings(ValiditySettings, tomllib.loads(CONFIG), "the test"), "BPR", 0)


def test_json_carries_every_pair(study):
    found = json.loads((study / "out" / "validity.json").read_text())
    assert found["mean_partial_spearman"] == found["results"]["cud"]["increase"]["partial"]["mean"]
    assert set(found["competitors"]) == {"activity", "loss", "personalisation-gap", "el2n"}
    model = found["models"][0]
    assert model["facts"]["controls"] == ["activity", "loss", "personalisation-gap"]
    for outcomes in found["results"].values():
        assert set(outcomes) >= {"increase", "share-left", "divergence", "fold-in"}
    whole = found["results"]["cud"]["increase"]["raw"]
    assert whole["mean"] == pytest.approx(np.median(whole["by_seed"]))
    assert whole["low"] <= whole["mean"] <= whole["high"]
    assert -1 <= found["results"]["circuit_regression"]["increase"]["raw"]["mean"] <= 1
    assert {v["axis"] for v in model["variants"]} >= {"similarity", "anchors of one method", "path points"}
    assert 0 <= model["calibration"]["coverage"] <= 1
    page = (study / "out" / "validity.md").read_text()
    assert "scores against outcomes" in page
    assert "customer-" not in page + json.dumps(found)


def test_a_second_run_reads_what_is_stored(at_home, run_cli, monkeypatch):
    def again(*args):
        raise AssertionError("unlearned again")

    monkeypatch.setattr("recunlearn.studies.probe._Probe.unlearned", again)
    before = (at_home / "out" / "validity.json").read_text()
    config, out = at_home / "run.toml", at_home / "again"
    result = run_cli("validate", "--config", config, "--jobs", "1", "--out", out, "--format", "json")
    assert result.code == 0, result.err
    assert json.loads(result.out) == json.loads(before)


def test_every_user_is_unlearned_once_and_never_scored_from_its_own_fold(trial):
    folds = Folds(trial.fold, [trial.outcomes(k) for k in range(3)])
    pools = np.concatenate([part.pool for part in folds.parts])
    assert sorted(pools.tolist()) == np.flatnonzero(trial.fold >= 0).tolist()
    settings = trial.keys.settings
    values = held_out_cud(folds, trial.circuits, settings.anchors, settings.similarity)
    assert np.isfinite(values[trial.fold >= 0]).all()
    # Whatever happens to the users of a fold, their own scores stay.
    part = folds.parts[0]
    part.losses.loss_after[:, :, ::2] += 5
    again = held_out_cud(folds, trial.circuits, settings.anchors, settings.similarity)
    np.testing.assert_array_equal(values[trial.fold == 0], again[trial.fold == 0])
    assert (values[trial.fold == 1] != again[trial.fold == 1]).any()


def test_a_planted_leak_is_caught(trial, monkeypatch):
    folds = Folds(trial.fold, [trial.outcomes(k) for k in range(3)])
    everyone = np.concatenate([part.pool for part in folds.parts])
    monkeypatch.setattr(Folds, "others", lambda self, number, most=None: everyone)
    targets, known = np.zeros((1, len(trial.fold))), np.ones(len(trial.fold), dtype=bool)
    with pytest.raises(LeakError, match="'peeking' was fitted on"):
        held_out_fit(folds, targets, known, lambda rows, others: np.zeros((1, len(others))), name="peeking")


def test_a_lost_piece_is_made_again_and_is_the_same(trial):
    values = trial.competitor("el2n")
    first = trial.outcomes(1)
    for file in [*trial.folder.rglob("el2n.safetensors"), *trial.folder.rglob("NPO-*.safetensors")]:
        file.unlink()
    for task in others(trial.settings):
        if (task.number, task.kind) in ((0, "competitor"), (0, "fold")):
            do(trial.settings, task)
    np.testing.assert_array_equal(Trial(trial.settings, "BPR", 0).competitor("el2n"), values)
    again = Trial(trial.settings, "BPR", 0).outcomes(1)
    np.testing.assert_array_equal(first.losses.loss_after, again.losses.loss_after)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ('models = ["BPX"]', "BPX"),
        ('competitors = ["actvity"]', "activity"),
        ("folds = 1", "folds"),
        ("folds = 50", "too few for 50 folds"),
        ('variants = ["similarty"]', "similarity"),
        ("seedz = 1", "seedz"),
        ('dataset = "nowhere"', "nowhere"),
        ('models = ["BPR", "BPR"]', "once"),
        ('anchors = {source = "bilevel"}', "must be 'probe'"),
    ],
)
def test_mistakes_get_one_sentence(at_home, run_cli, tmp_path, change, told):
    name = change.split(" = ")[0]
    text = CONFIG.split("[anchors]", maxsplit=1)[0] if name == "anchors" else CONFIG
    text = "\n".join(line for line in text.splitlines() if not line.startswith(f"{name} ="))
    (tmp_path / "wrong.toml").write_text(f"{change}\n{text}")
    result = run_cli("validate", "--config", tmp_path / "wrong.toml", "--jobs", "1", "--out", tmp_path / "o")
    assert result.code == 2
    assert told in result.err
    assert "Traceback" not in result.err
    assert not (tmp_path / "o").exists()


def test_more_anchors_than_the_other_folds_have_are_refused_before_unlearning(
    at_home, run_cli, tmp_path, monkeypatch
):
    def never(*args):
        raise AssertionError("unlearned")

    monkeypatch.setattr("recunlearn.studies.probe._Probe.unlearned", never)
    (tmp_path / "many.toml").write_text(
        CONFIG.replace("count = 6", "count = 41").replace("most_steps = 20", "most_steps = 21")
    )
    result = run_cli("validate", "--config", tmp_path / "many.toml", "--jobs", "1", "--out", tmp_path / "o")
    assert result.code == 2
    assert "must be between 1 and 40 (half of the 80" in result.err


def test_without_trivial_scores_there_is_no_regression_on_them(at_home, run_cli, tmp_path):
    text = CONFIG.replace('["activity", "loss", "personalisation-gap", "el2n"]', "[]")
    (tmp_path / "bare.toml").write_text(text.replace("seeds = 2", "seeds = 1"))
    result = run_cli("validate", "--config", tmp_path / "bare.toml", "--jobs", "1", "--out", tmp_path / "o")
    assert result.code == 0, result.err
    found = json.loads((tmp_path / "o" / "validity.json").read_text())
    residual = {"predicted_residual", "predicted_residual_by_method"}
    assert set(found["results"]) == {"cud", "circuit_regression", *residual}
    assert found["competitors"] == {}
    increase = found["results"]["cud"]["increase"]
    assert increase["partial"]["mean"] == pytest.approx(increase["raw"]["mean"])  # nothing is held fixed


def test_the_residual_of_a_method_is_tested_against_that_method(trial):
    seed = Seed(trial)
    by_method = np.array(seed.outcomes["share-left"])
    seed.__dict__["_residuals"] = np.concatenate([by_method, -by_method[:1], by_method[:1], by_method[:1]])
    scores = seed.scores("share-left")
    own = seed.against("own", scores["predicted_residual_by_method"], "share-left", draws=0)
    np.testing.assert_allclose(own.raw[0], 1.0)  # planted: the outcome itself
    one = seed.against("one", scores["predicted_residual"], "share-left", draws=0)
    assert one.raw[0][0] == pytest.approx(-1.0)


def test_circuits_that_a_model_cannot_have_are_named_and_stop_nothing(trial, monkeypatch):
    def refuses(self, **changed):
        raise TraceError(f"BPR cannot be traced in {changed['steps']} points.")

    monkeypatch.setattr(Trial, "other_circuits", refuses)
    task = next(t for t in others(trial.settings) if t.kind == "variant")
    do(trial.settings, task)
    rows = [v for v in _variants([Seed(trial)]) if v.axis == "path points"]
    assert [v.reason for v in rows] == [f"BPR cannot be traced in {v.name} points." for v in rows] != []
