import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from recunlearn.difficulty.anchors import choose_anchors
from recunlearn.difficulty.cud import score
from recunlearn.foundation.records import Circuits, Outcomes, load_record, save_record
from recunlearn.foundation.settings import METHODS, AnchorSettings
from recunlearn.studies.bilevel import bilevel
from recunlearn.studies.probe import probe, retraining_noise
from recunlearn.testing.checkerboard import CheckerboardWorld
from recunlearn.testing.linear import LinearWorld

SMALL = AnchorSettings(pool=20, count=5, batch_size=128, learning_rate=0.02, most_steps=60)


@pytest.fixture(scope="module")
def world():
    return CheckerboardWorld(family="pairwise")


@pytest.fixture(scope="module")
def outcomes(world):
    return probe(world, SMALL)


@pytest.fixture(scope="module")
def linear():
    return LinearWorld()


@pytest.fixture(scope="module")
def linear_outcomes(linear):
    return probe(linear, SMALL.model_copy(update={"pool": 24}))


def of_pool(world, record):
    return np.flatnonzero(np.isin(world.entities, record.entities))


def circuits_of(world):
    values = world.circuits()
    n, width = values.shape
    return Circuits(
        world.entities, tuple(f"d{j}" for j in range(width)), values, np.zeros(n), world.n_samples()
    )


def test_shapes_and_budgets(outcomes):
    assert outcomes.loss_after.shape == (5, 2, 20)
    assert outcomes.loss_retrained.shape == (2, 20)
    assert outcomes.methods == METHODS
    assert set(outcomes.budgets) == set(METHODS)
    assert all(1 <= steps <= 60 for steps in outcomes.budgets.values())


def test_strangers_are_unknown_to_the_retrained_model(outcomes):
    # a mean vector without a colour has a pairwise loss of log 2 = .693; the majority inside the pool
    # is the minority outside, so that the mean vector leans to the other colour
    assert outcomes.loss_retrained.mean() > math.log(2) - 0.02
    assert outcomes.loss_before.mean() < 0.4


def test_unlearning_stops_where_retraining_would_be(outcomes):
    # the first run is the calibrated one: it ends at the target, over by at most an eighth of its steps
    first = outcomes.loss_after[:, 0].mean(1)
    target = outcomes.loss_retrained.mean()
    reached = [outcomes.settings["reached"][m] for m in METHODS]
    assert all(reached)
    assert ((first >= target) & (first < 1.5 * target)).all()


def test_same_seed_same_outcomes(world, outcomes):
    again = probe(world, SMALL)
    assert np.array_equal(again.loss_after, outcomes.loss_after)
    assert np.array_equal(again.loss_retrained, outcomes.loss_retrained)


def test_known_answer_all_methods_find_the_fragile(linear, linear_outcomes):
    # Users are alike in loss, activity and popularity; theory says: the longer the features, the more loss.
    length = linear.length[of_pool(linear, linear_outcomes)]
    for method in linear_outcomes.loss_after.mean(1):
        assert spearmanr(method, length)[0] > 0.97
    anchors = choose_anchors(linear_outcomes, SMALL)
    fragile = linear.fragile[of_pool(linear, linear_outcomes)]
    assert fragile[anchors.easy].all()
    assert not fragile[anchors.hard].any()
    assert anchors.agreement["kendall_w_methods"] > 0.97


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_known_answer_cud_separates_who_was_never_probed(linear, linear_outcomes, preset):
    from recunlearn.foundation.settings import SimilaritySettings

    anchors = choose_anchors(linear_outcomes, SMALL)
    scores = score(circuits_of(linear), anchors, SimilaritySettings(preset=preset))
    unseen = ~np.isin(linear.entities, linear_outcomes.entities)
    assert scores.cud[unseen & linear.fragile].max() < 0.3
    assert scores.cud[unseen & ~linear.fragile].min() > 0.7


def test_known_answer_bilevel_finds_them_too(linear):
    anchors = bilevel(linear, SMALL.model_copy(update={"pool": 24, "source": "bilevel"}))
    fragile = linear.fragile[of_pool(linear, anchors)]
    assert fragile[anchors.easy].all()
    assert not fragile[anchors.hard].any()


def test_a_killed_run_goes_on(world, outcomes, tmp_path, monkeypatch):
    trained = []
    retrain = CheckerboardWorld.retrain

    def counted(self, without, *, seed, progress=False):
        trained.append(seed)
        return retrain(self, without, seed=seed, progress=progress)

    monkeypatch.setattr(CheckerboardWorld, "retrain", counted)
    finished = []

    def kill(what, done, total):
        finished.append(what)
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        probe(world, SMALL, folder=tmp_path, progress=kill)
    stored = {p.name: p.stat().st_mtime_ns for p in tmp_path.rglob("*.safetensors")}
    assert len(stored) == 6
    again = probe(world, SMALL, folder=tmp_path)
    assert np.array_equal(again.loss_after, outcomes.loss_after)
    assert trained == [1, 2]
    now = {p.name: p.stat().st_mtime_ns for p in tmp_path.rglob("*.safetensors")}
    assert len(now) == 12
    assert all(now[name] == time for name, time in stored.items())
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_damaged_part_is_made_again(world, outcomes, tmp_path):
    probe(world, SMALL, folder=tmp_path)
    for part in tmp_path.rglob("NPO-*.safetensors"):
        part.write_bytes(b"not a tensor")
    again = probe(world, SMALL, folder=tmp_path)
    assert np.array_equal(again.loss_after, outcomes.loss_after)


def test_other_settings_do_not_read_the_parts(world, tmp_path):
    few = SMALL.model_copy(update={"methods": ("GradAscent",), "seeds": 1})
    one = probe(world, few, folder=tmp_path)
    other = probe(world, few.model_copy(update={"batch_size": 32}), folder=tmp_path)
    assert not np.array_equal(one.loss_after, other.loss_after)


def test_what_is_said(world):
    said, parts = [], []
    probe(world, SMALL, say=said.append, progress=lambda *part: parts.append(part))
    assert said[0].startswith("Probing 20 users with 5 methods x 2 seeds takes about")
    assert [done for _, done, _ in parts] == list(range(1, 13))
    assert {total for *_, total in parts} == {12}
    text = " ".join(said)
    assert not any(entity in text for entity in world.entities)


def test_nothing_to_unlearn_is_said():
    said = []
    untrained = CheckerboardWorld(epochs=0)
    record = probe(untrained, SMALL.model_copy(update={"methods": ("GradAscent",)}), say=said.append)
    assert any(s.startswith("Warning") for s in said)
    assert record.loss_after.shape == (1, 2, 20)


def test_noise_by_hand():
    # entity 0: 1 and 3, variance 2; entity 1: 5 and 5, variance 0; pooled √1
    assert retraining_noise(np.array([[1.0, 5], [3, 5]])) == pytest.approx(1.0)
    assert retraining_noise(np.array([[1.0, 5]])) == 0.0


def test_outcomes_survive_the_disk(outcomes, tmp_path):
    save_record(outcomes, tmp_path / "outcomes")
    again = load_record(Outcomes, tmp_path / "outcomes")
    assert np.array_equal(again.loss_after, outcomes.loss_after)
    assert again.settings == outcomes.settings
