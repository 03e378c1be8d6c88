"""Models of parts of the data: training, reading back, vectors and ensembles of RecBole models."""

import copy
import pickle

import numpy as np
import pytest
import torch
from test_recbole_subject import make, small_data

from recunlearn.foundation.errors import UsageError
from recunlearn.subjects.parts import PartSubject
from recunlearn.subjects.recbole.evaluation import evaluate
from recunlearn.subjects.recbole.parts import Ensemble
from recunlearn.subjects.recbole.store import load_subject, save_subject
from recunlearn.unlearning import make as unlearner

MODELS = ("BPR", "LightGCN", "NeuMF", "DeepFM", "SASRec", "MultiVAE")


@pytest.fixture(scope="module")
def subject_of(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("parts"), {}

    def subject(model):
        if model not in made:
            made[model] = make(model, folder)
        return made[model]

    return subject


def same(left, right):
    a, b = left.state_dict(), right.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def likelihoods(subject, model):
    with torch.no_grad():
        return torch.cat([subject.log_likelihood(model, b) for b in subject.batches(batch_size=500)])


def raw(subject, model):
    """Raw score of every user and item: ``[U, I]``."""
    return subject.item_scores(model, np.arange(len(subject.entities)))


@pytest.mark.parametrize("model", MODELS)
def test_everything_is_retraining(subject_of, model):
    subject = subject_of(model)
    assert isinstance(subject, PartSubject)
    everything = np.ones(subject.n_samples().sum(), dtype=bool)
    whole = subject.train_on(everything, seed=3)
    assert same(whole, subject.retrain(np.zeros(0, dtype=np.int64), seed=3))


@pytest.mark.parametrize("model", ["BPR", "SASRec"])
def test_a_part_is_retraining_without_the_others(subject_of, model):
    subject = subject_of(model)
    kept = subject.pairs()[0] % 3 != 0
    part = subject.train_on(kept, seed=3)
    assert same(part, subject.retrain(np.arange(0, len(subject.entities), 3), seed=3))
    assert not same(part, subject.train_on(kept, seed=3, effort=2.0))
    assert not same(part, subject.train_on(kept, seed=3, batch=0.01))


def test_pairs_follow_the_batches(subject_of):
    for model in ("BPR", "SASRec"):
        subject = subject_of(model)
        columns = [b.columns for b in subject.batches(batch_size=50)]
        user, item = (torch.cat([c[n] for c in columns]).numpy() - 1 for n in ("user_id", "item_id"))
        found = subject.pairs()
        assert np.array_equal(found[0], user)
        assert np.array_equal(found[1], item)


@pytest.mark.parametrize("model", MODELS)
def test_a_part_is_read_back_with_its_own_graph(subject_of, model):
    subject = subject_of(model)
    kept = subject.pairs()[0] % 2 == 0
    part = subject.train_on(kept, seed=0)
    again = subject.load_on(kept, part.state_dict())
    assert torch.equal(likelihoods(subject, part), likelihoods(subject, again))
    assert not again.training


def test_an_empty_part_is_refused(subject_of):
    subject = subject_of("BPR")
    with pytest.raises(UsageError, match="without any interaction"):
        subject.train_on(np.zeros(subject.n_samples().sum(), dtype=bool), seed=0)


@pytest.mark.parametrize("model", ["BPR", "LightGCN", "NeuMF", "DeepFM"])
def test_vectors_are_those_that_the_score_reads(subject_of, model):
    subject = subject_of(model)
    found = subject.vectors(subject.model)
    torch.testing.assert_close(likelihoods(subject, found.model), likelihoods(subject, subject.model))
    # One user's rows, and one item's, move that user's, and that item's, scores and no others.
    for rows, axis, number in ((found.entities, 0, 4), (found.items, 1, 7)):
        assert all(r.count == (len(subject.entities), len(subject.items))[axis] for r in rows)
        parameters = dict(found.model.named_parameters())
        before = raw(subject, found.model)
        with torch.no_grad():
            for r in rows:
                parameters[r.parameter][r.first + number] += 1.0
        moved = (raw(subject, found.model) - before).abs() > 1e-6
        with torch.no_grad():
            for r in rows:
                parameters[r.parameter][r.first + number] -= 1.0
        assert moved.any(1 - axis).nonzero().flatten().tolist() == [number]


def test_a_graph_model_becomes_plain_tables(subject_of):
    subject = subject_of("LightGCN")
    plain = subject.vectors(subject.model).model
    assert type(plain).__name__ == "BPR"
    for phase in ("valid", "test"):
        assert evaluate(subject.bundle, plain, phase) == pytest.approx(
            evaluate(subject.bundle, subject.model, phase)
        )


@pytest.mark.parametrize("model", ["SASRec", "MultiVAE"])
def test_models_without_vectors_of_users_are_refused(subject_of, model):
    subject = subject_of(model)
    with pytest.raises(UsageError, match=rf"{model} .*Use SISA"):
        subject.vectors(subject.model)
    with pytest.raises(UsageError, match=rf"{model} .*Use SISA"):
        unlearner("RecEraser", {"partition": "random", "shards": 2}).original(subject)


@pytest.mark.parametrize("model", ["LightGCN", "NeuMF", "SASRec"])
def test_a_deletion_from_end_to_end(subject_of, model, tmp_path):
    subject = subject_of(model)
    name = "SISA" if model == "SASRec" else "RecEraser"
    quick = {} if name == "SISA" else {"aggregator_steps": 5, "warm_steps": 2, "aggregator_batch": 64}
    method = unlearner(name, {"shards": 2, **quick})
    done = method.unlearn(subject, np.array([1]), folder=tmp_path)
    assert done.shards == 1
    assert torch.isfinite(raw(subject, done.model)).all()
    assert torch.isfinite(likelihoods(subject, done.model)).all()


@pytest.mark.parametrize("model", MODELS)
def test_ensembles_score_the_mean(subject_of, model):
    subject = subject_of(model)
    models = [subject.train_on(subject.pairs()[0] % 3 != n, seed=n) for n in range(3)]
    both = subject.ensemble(models)
    wanted = torch.stack([raw(subject, m) for m in models]).mean(0)
    torch.testing.assert_close(raw(subject, both), wanted, atol=1e-5, rtol=1e-4)
    # Dot products add up to one plain model; all others stay apart.
    assert isinstance(both, Ensemble) == (model not in ("BPR", "LightGCN"))
    assert torch.isfinite(likelihoods(subject, both)).all()
    assert torch.equal(raw(subject, subject.ensemble(models[:1])), raw(subject, models[0])) or torch.allclose(
        raw(subject, subject.ensemble(models[:1])), raw(subject, models[0]), atol=1e-5
    )
    figures = evaluate(subject.bundle, both, "test")
    assert all(np.isfinite(v) for v in figures.values())


def test_subjects_go_to_other_processes(subject_of):
    for model in ("BPR", "DeepFM", "SASRec"):
        subject = subject_of(model)
        other = pickle.loads(pickle.dumps(subject))
        kept = subject.pairs()[0] < 20
        assert same(other.train_on(kept, seed=0), subject.train_on(kept, seed=0))


@pytest.mark.parametrize("model", ["LightGCN", "BPR"])
def test_plain_models_of_other_kinds_are_stored_as_what_they_are(subject_of, model, tmp_path):
    subject = subject_of(model)
    models = [subject.train_on(subject.pairs()[0] % 2 == n, seed=0) for n in range(2)]
    other = copy.copy(subject)
    other.model = subject.ensemble(models)
    save_subject(other, tmp_path / "model")
    again = load_subject(tmp_path / "model", small_data())
    assert type(again.model).__name__ == "BPR"
    assert torch.equal(raw(again, again.model), raw(subject, other.model))
    assert np.array_equal(again.n_samples(), subject.n_samples())
