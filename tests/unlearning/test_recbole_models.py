"""Gradient methods on real models of every kind: tables that are called, propagated and multiplied."""

import numpy as np
import pytest
import torch

from recunlearn.data.catalogue import load_interactions
from recunlearn.data.splits import take_rows
from recunlearn.foundation.settings import ScoreSettings, TrainingSettings
from recunlearn.subjects.recbole.store import load_subject, save_subject, untrained_subject
from recunlearn.subjects.recbole.subject import RecBoleSubject
from recunlearn.unlearning.lora import other_rows
from recunlearn.unlearning.registry import make

SMALL = {
    "NeuMF": {"mf_embedding_size": 8, "mlp_embedding_size": 8, "mlp_hidden_size": [8]},
    "BPR": {"embedding_size": 8},
    "LightGCN": {"embedding_size": 8, "n_layers": 2},
    "DeepFM": {"embedding_size": 4, "mlp_hidden_size": [8]},
    "SASRec": {"hidden_size": 8, "inner_size": 8, "n_layers": 1, "MAX_ITEM_LIST_LENGTH": 5},
}
FORGET = np.array([2, 5, 9])
STEPS = {"steps": 6, "until": "steps", "batch_size": 32, "learning_rate": 0.01}


@pytest.fixture(scope="module")
def log():
    return take_rows(load_interactions("ml-100k"), np.arange(6000))


@pytest.fixture(scope="module", params=SMALL)
def subject(request, log):
    """Untrained: these tests are about what can be read and written, not about how well."""
    settings = ScoreSettings(
        model=request.param, device="cpu", training=TrainingSettings(params=SMALL[request.param], epochs=1)
    )
    return untrained_subject(log, settings)


@pytest.mark.parametrize("name", ["GradAscent", "GradDiff", "NPO", "SimNPO", "UNDIAL", "E2URec"])
def test_every_method_makes_a_model_that_a_checkpoint_can_hold(subject, name, log, tmp_path):
    before = {k: v.clone() for k, v in subject.model.state_dict().items()}
    found = make(name, STEPS).unlearn(subject, FORGET, seed=1)
    assert not found.diverged
    assert found.steps == 6
    after = found.model.state_dict()
    assert {k: v.shape for k, v in after.items()} == {k: v.shape for k, v in before.items()}
    assert any(not torch.equal(after[k], before[k]) for k in before)
    assert all(torch.equal(v, before[k]) for k, v in subject.model.state_dict().items())
    stored = RecBoleSubject(
        subject.bundle, found.model, epochs=1, metrics={}, popularity_metrics={}, weights_hash=""
    )
    save_subject(stored, tmp_path / "model")
    again = load_subject(tmp_path / "model", log, device="cpu")
    batch = next(subject.batches(FORGET, batch_size=100))
    with torch.no_grad():
        expected = subject.log_likelihood(found.model, batch)
        assert torch.equal(again.log_likelihood(again.model, batch), expected)


def test_adapters_reach_every_reader_of_a_table(subject):
    """Merging changes no score: not where a model calls a table, nor where it reads its weight."""
    method = make("E2URec", STEPS)
    run = method._run(subject, FORGET, 0, method.reference(subject, FORGET, 0))
    run()
    batch = next(subject.batches(batch_size=300))
    with torch.no_grad():
        before = subject.class_scores(run.model, batch)
        merged = subject.class_scores(method.merge(run.model), batch)
        original = subject.class_scores(subject.model, batch)
    torch.testing.assert_close(merged, before, atol=1e-6, rtol=0)
    assert (merged - original).abs().max() > 1e-4


def test_rows_of_the_others_are_those_of_users(subject):
    rows = other_rows(subject, FORGET)
    name = subject.bundle.config["model"]
    # NeuMF has two tables of users; FM models one of fields with first-order weights; graphs compute theirs
    tables = {"NeuMF": 2, "BPR": 1, "LightGCN": 0, "DeepFM": 2, "SASRec": 0}[name]
    assert len(rows) == tables
    assert all(int(r.sum()) == len(subject.entities) - len(FORGET) for r in rows.values())


def test_gradient_methods_do_not_touch_vectors_of_the_absent(log):
    """A user outside every batch keeps the own vector bit for bit under Adam: no gradient, no momentum."""
    settings = ScoreSettings(
        model="BPR", device="cpu", training=TrainingSettings(params=SMALL["BPR"], epochs=1)
    )
    subject = untrained_subject(log, settings)
    found = make("GradAscent", STEPS).unlearn(subject, FORGET)
    same = (found.model.user_embedding.weight == subject.model.user_embedding.weight).all(1)
    assert (~same).nonzero().squeeze(1).tolist() == (FORGET + 1).tolist()
