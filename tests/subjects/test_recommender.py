"""RecBole models and worlds as recommenders: the conformance tests, and what is particular to them."""

import copy
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score
from test_recbole_subject import make, small_data

from recunlearn.subjects.recbole.item_scores import item_scores
from recunlearn.testing.checkerboard import CheckerboardWorld
from recunlearn.testing.linear import LinearWorld
from recunlearn.testing.recommender_contract import RecommenderContract


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recommenders")
    return cache(lambda model, rating=True: make(model, folder / str(rating), small_data(rating=rating)))


class Trained(RecommenderContract):
    model = ""

    @pytest.fixture
    def recommender(self, trained):
        return trained(self.model)


class TestNeuMF(Trained):
    model = "NeuMF"


class TestBPR(Trained):
    model = "BPR"


class TestLightGCN(Trained):
    model = "LightGCN"


class TestDeepFM(Trained):
    model = "DeepFM"


class TestSASRec(Trained):
    model = "SASRec"
    has_user_vectors = False
    has_history = True


class TestMultiVAE(Trained):
    model = "MultiVAE"
    has_user_vectors = False
    has_history = True


class TestCheckerboard(RecommenderContract):
    first_item = 0

    @pytest.fixture(scope="class")
    @classmethod
    def recommender(cls):
        return CheckerboardWorld(n_users=20, n_items=16, epochs=10)


class TestLinear(RecommenderContract):
    first_item = 0

    @pytest.fixture(scope="class")
    @classmethod
    def recommender(cls):
        return LinearWorld(n_users=16)


@pytest.mark.parametrize("model", ["NeuMF", "BPR", "SASRec"])
def test_mean_quality_is_the_models_own_figure(trained, model):
    subject = trained(model)
    found = {k: np.nanmean(v) for k, v in subject.quality(subject.model).items()}
    assert set(found) == {"recall@10", "recall@20", "ndcg@10", "ndcg@20"}
    assert found == pytest.approx({k: subject.metrics["test"][k] for k in found})


def test_quality_with_labels_is_scikit_learns(trained):
    subject = trained("DeepFM")
    found, test = subject.quality(subject.model), subject.bundle.test
    owner = test.inter_feat["user_id"].numpy() - 1
    label = test.inter_feat["label"].numpy()
    with torch.no_grad():
        scores = subject.model.predict(test[np.arange(len(test))]).double().numpy()
    for user in range(len(subject.entities)):
        rows = owner == user
        if not rows.any():
            assert np.isnan(found["logloss"][user])
            continue
        expected = log_loss(label[rows], scores[rows], labels=[0, 1])
        assert found["logloss"][user] == pytest.approx(expected, abs=1e-6)
        if len(set(label[rows])) == 2:
            assert found["auc"][user] == pytest.approx(roc_auc_score(label[rows], scores[rows]))
        else:
            assert np.isnan(found["auc"][user])


def test_labelled_positives_are_those_with_label_1(trained):
    subject = trained("DeepFM")
    user, _ = subject.interactions()
    label = subject.bundle.train.inter_feat["label"].numpy()
    assert len(user) == label.sum() < len(label)


def test_sequences_are_scored_with_all_of_training_as_history(trained):
    subject = trained("SASRec")
    # the validation row of a user holds the training items as its history
    valid = subject.bundle.valid
    rows = valid[np.arange(len(valid))]
    with torch.no_grad():
        expected = subject.model.full_sort_predict(rows).view(len(valid), -1)[:, 1:]
    users = rows["user_id"].numpy() - 1
    found = item_scores(subject.bundle, subject.model, users)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_high_scores_stay_apart_where_a_sigmoid_would_melt_them(trained):
    subject = trained("NeuMF")
    model = copy.deepcopy(subject.model)
    with torch.no_grad():
        model.predict_layer.bias.fill_(30.0)  # σ(30) is 1 in single precision
    users = np.arange(5)
    found, plain = (item_scores(subject.bundle, m, users) for m in (model, subject.model))
    moved = 30.0 - float(subject.model.predict_layer.bias.detach())
    torch.testing.assert_close(found - moved, plain, atol=1e-4, rtol=0)
