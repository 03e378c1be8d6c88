"""Competing scores on real models of every kind, untrained: what can be said of each, and gradients."""

import numpy as np
import pytest
import torch

from recunlearn.data.catalogue import load_interactions
from recunlearn.data.splits import take_rows
from recunlearn.foundation.settings import ScoreSettings, TrainingSettings
from recunlearn.studies.competitors.gradients import can_be_exact, flat_gradient, trainable
from recunlearn.studies.competitors.registry import find, known
from recunlearn.subjects.recbole.store import untrained_subject

SMALL = {
    "NeuMF": {"mf_embedding_size": 4, "mlp_embedding_size": 4, "mlp_hidden_size": [4]},
    "BPR": {"embedding_size": 4},
    "LightGCN": {"embedding_size": 4, "n_layers": 2},
    "DeepFM": {"embedding_size": 4, "mlp_hidden_size": [4]},
    "SASRec": {"hidden_size": 4, "inner_size": 4, "n_layers": 1, "MAX_ITEM_LIST_LENGTH": 5},
}
NEED_A_VECTOR = {"cau-embedding", "embedding-norm", "personalisation-gap", "population-loss"}


@pytest.fixture(scope="module", params=SMALL)
def subject(request):
    log = take_rows(load_interactions("ml-100k"), np.arange(1500))
    settings = ScoreSettings(
        model=request.param, device="cpu", training=TrainingSettings(params=SMALL[request.param], epochs=1)
    )
    return untrained_subject(log, settings)


@pytest.fixture
def few(subject):
    return np.flatnonzero(subject.n_samples() > 2)[[8, 3, 5]]


def test_every_score_or_the_reason_why_not(subject, few):
    before = {k: v.clone() for k, v in subject.model.state_dict().items()}
    for name in set(known()) - {"memorisation"}:  # which trains eight models
        kind = find(name)
        found = (kind(draws=2) if name == "mrd" else kind()).values(subject, few, seed=1)
        if name in NEED_A_VECTOR and subject.bundle.config["model"] == "SASRec":
            assert np.isnan(found).all()
            assert kind.absence(subject) == f"{name} needs a vector of each user, and this model has none."
        else:
            assert kind.absence(subject) is None
            assert np.isfinite(found).all(), name
    assert all(torch.equal(v, before[k]) for k, v in subject.model.state_dict().items())
    assert all(p.grad is None for p in subject.model.parameters())


def test_gradient_norms_one_by_one(subject, few):
    parameters = list(trainable(subject.model).values())

    def norm(one):
        return flat_gradient(-subject.log_likelihood(subject.model, one).sum(), parameters).norm()

    expected = []
    for user in few:
        batch = next(subject.batches(np.array([user]), batch_size=1000, seed=1))
        expected.append(np.mean([norm(batch[slice(i, i + 1)]) for i in range(len(batch))]))
    exact = can_be_exact(subject)
    assert exact == (subject.bundle.config["model"] != "LightGCN")
    found = find("grand")(directions=400).values(subject, few, seed=1)
    # 400 directions: relative standard deviation .035 of a sample, fully correlated at worst
    assert found == pytest.approx(expected, rel=1e-4 if exact else 0.14)


def test_the_price_is_the_first_order_change_of_the_others_loss(subject, few):
    user = few[:1]
    parameters = list(trainable(subject.model).values())
    own = next(subject.batches(user, batch_size=1000, seed=1))
    gradient = flat_gradient(-subject.log_likelihood(subject.model, own).mean(), parameters).double()
    size = int(subject.n_samples().sum())
    everyone = np.flatnonzero(subject.n_samples())
    drawn = subject.draw(everyone, size, torch.Generator().manual_seed(1), negatives=True)
    rest = drawn[drawn.entity != int(user[0])]
    assert len(rest) < len(drawn)
    others = flat_gradient(-subject.log_likelihood(subject.model, rest).mean(), parameters).double()
    expected = float(gradient @ others / (gradient @ gradient))
    assert find("cau-gradient")().values(subject, user, seed=1)[0] == pytest.approx(
        expected, rel=1e-3, abs=1e-7
    )
