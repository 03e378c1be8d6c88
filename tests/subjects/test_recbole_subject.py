"""RecBole models as subjects: the conformance tests, and what is particular to them."""

import copy
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional

from recunlearn.data.interactions import Interactions
from recunlearn.foundation.settings import ScoreSettings, TrainingSettings
from recunlearn.subjects.contract import COMPUTED
from recunlearn.subjects.recbole.store import train_subject
from recunlearn.testing.subject_contract import SubjectContract

N_USERS, N_ITEMS, PER_USER = 30, 25, 12


def small_data(seed=0, *, rating=True, time=True, features=True):
    """Thirty users with twelve of 25 items each; ids with leading zeros, spaces and Unicode."""
    rng = np.random.default_rng(seed)
    users = np.array([f"0{i}" if i % 2 else f"ü {i}" for i in range(N_USERS)])
    items = np.array([f"i{i:03d}" for i in range(N_ITEMS)])
    item = np.concatenate([rng.permutation(N_ITEMS)[:PER_USER] for _ in range(N_USERS)])
    user = np.repeat(np.arange(N_USERS), PER_USER)
    order = rng.permutation(len(user))
    n = len(user)
    user_table = pd.DataFrame({"user_id": users, "age": [str(i % 5) for i in range(N_USERS)]})
    item_table = pd.DataFrame({"item_id": items, "class": [f"a{i % 3} b{i % 2}" for i in range(N_ITEMS)]})
    return Interactions(
        "small",
        users,
        items,
        user[order].astype(np.int32),
        item[order].astype(np.int32),
        rating=rng.integers(1, 6, n).astype(np.float32) if rating else None,
        time=rng.permutation(n).astype(np.float64) if time else None,
        user_features=user_table if features else None,
        item_features=item_table if features else None,
        feature_types={"age": "token", "class": "token_seq"},
    )


SIZES = {
    "NeuMF": {"mf_embedding_size": 4, "mlp_embedding_size": 4, "mlp_hidden_size": [8, 4]},
    "BPR": {"embedding_size": 4},
    "LightGCN": {"embedding_size": 4},
    "DeepFM": {"embedding_size": 4, "mlp_hidden_size": [8]},
    "SASRec": {"hidden_size": 4, "inner_size": 8, "MAX_ITEM_LIST_LENGTH": 5},
    "FPMC": {"embedding_size": 4},
    "MultiVAE": {"latent_dimension": 4, "mlp_hidden_size": [8]},
}


def make(model, folder, data=None, epochs=2, **more):
    params = {**SIZES.get(model, {}), "learning_rate": 0.05, **more}
    settings = ScoreSettings(model=model, seed=1, training=TrainingSettings(params=params, epochs=epochs))
    return train_subject(data or small_data(), settings, folder=folder / model)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def trained(folder):
    """Train once for all tests that leave the subject alone."""
    return cache(
        lambda model, rating=True: make(model, folder / f"rating-{rating}", small_data(rating=rating))
    )


class Trained(SubjectContract):
    model = ""

    @pytest.fixture
    def subject(self, trained):
        return trained(self.model)


class TestNeuMF(Trained):
    model = "NeuMF"


class TestBPR(Trained):
    model = "BPR"


class TestLightGCN(Trained):
    model = "LightGCN"


class TestDeepFM(Trained):
    model = "DeepFM"


class TestFPMC(Trained):
    model = "FPMC"


class TestSASRec(Trained):
    model = "SASRec"
    has_entity_vectors = False


class TestDeepFMWithoutRatings(Trained):
    """One sampled negative per positive, ranked instead of labelled."""

    @pytest.fixture
    def subject(self, trained):
        return trained("DeepFM", rating=False)

    def test_is_ranked(self, subject):
        assert subject.main_metric == "ndcg@10"
        assert set(subject.metrics) == {"valid", "test"}


def all_of(subject):
    return next(subject.batches(batch_size=10_000))


def test_entities_are_the_external_ids_in_internal_order(trained):
    data = small_data()
    subject = trained("BPR")
    assert set(subject.entities) == set(data.users)
    batch = all_of(subject)
    external = subject.entities[batch.entity.numpy()]
    names = subject.bundle.items[batch.columns["item_id"].numpy() - 1]
    pairs = set(zip(data.users[data.user], data.items[data.item], strict=True))
    assert set(zip(external, names, strict=True)) <= pairs


def test_negatives_are_never_training_items(trained):
    subject = trained("BPR")
    batch = all_of(subject)
    user, item, negative = (batch.columns[c] for c in ("user_id", "item_id", "neg_item_id"))
    used = set(zip(user.tolist(), item.tolist(), strict=True))
    assert not used & set(zip(user.tolist(), negative.tolist(), strict=True))
    assert negative.min() >= 1
    assert negative.max() <= N_ITEMS


def test_pointwise_score_is_the_input_of_the_sigmoid(trained):
    subject = trained("NeuMF")
    batch, model = all_of(subject), subject.model
    score = model.forward(batch.columns["user_id"], batch.columns["item_id"])
    assert torch.equal(subject.log_likelihood(model, batch), functional.logsigmoid(score))


def test_drawn_negatives_give_the_training_loss(trained):
    """-mean log-likelihood of a drawn batch is the model's own loss on the same rows."""
    subject = trained("NeuMF")
    generator = torch.Generator().manual_seed(0)
    batch = subject.draw(np.arange(N_USERS), 64, generator, negatives=True)
    assert batch.columns["label"].tolist() == [1.0] * 64 + [0.0] * 64
    loss = subject.model.calculate_loss(batch.columns)
    torch.testing.assert_close(-subject.log_likelihood(subject.model, batch).mean(), loss)


def test_softmax_is_the_models_own_cross_entropy(trained):
    subject = trained("SASRec")
    batch = all_of(subject)
    loss = subject.model.calculate_loss(batch.columns)
    torch.testing.assert_close(-subject.log_likelihood(subject.model, batch).mean(), loss)


def test_pairs_are_scored_as_in_the_models_own_loss(trained):
    subject = trained("BPR")
    batch, model = all_of(subject), subject.model
    user, item = model.forward(batch.columns["user_id"], batch.columns["item_id"])
    other = model.forward(batch.columns["user_id"], batch.columns["neg_item_id"])[1]
    expected = functional.logsigmoid((user * item).sum(1) - (user * other).sum(1))
    torch.testing.assert_close(subject.log_likelihood(model, batch), expected)


def test_a_graph_is_propagated_once_a_pair(trained, monkeypatch):
    subject = trained("LightGCN")
    calls = []
    original = torch.sparse.mm
    monkeypatch.setattr(torch.sparse, "mm", lambda *a: calls.append(1) or original(*a))
    subject.log_likelihood(subject.model, all_of(subject))
    assert len(calls) == subject.bundle.config["n_layers"]
    assert "forward" not in vars(subject.model)


def test_population_rows_of_both_tables_are_the_mean_of_the_others(trained):
    subject = trained("NeuMF")
    changed = subject.population_rows(subject.model, np.array([0, 4]))
    for name in ("user_mf_embedding", "user_mlp_embedding"):
        before, after = (getattr(m, name).weight for m in (subject.model, changed))
        others = [r for r in range(1, N_USERS + 1) if r not in (1, 5)]
        torch.testing.assert_close(after[[1, 5]], before[others].mean(0).expand(2, -1))
        assert torch.equal(after[others], before[others])
    assert torch.equal(changed.item_mf_embedding.weight, subject.model.item_mf_embedding.weight)


def test_population_rows_of_a_field_table_leave_other_fields(trained):
    subject = trained("DeepFM")
    changed = subject.population_rows(subject.model, np.array([2]))
    rows = torch.nonzero(
        (
            changed.token_embedding_table.embedding.weight
            != subject.model.token_embedding_table.embedding.weight
        ).any(1)
    )
    assert rows.flatten().tolist() == [3]


def test_population_rows_of_a_graph_survive_copying(trained):
    subject = trained("LightGCN")
    changed = copy.deepcopy(subject.population_rows(subject.model, np.array([0])))
    users = subject.model.forward()[0]
    torch.testing.assert_close(changed.forward()[0][1], users[2:].mean(0))
    with torch.no_grad():
        changed.user_embedding.weight.zero_()
    assert not torch.allclose(changed.forward()[0], users)


def test_hints_name_fields_rows_and_padding(trained):
    hints = trained("DeepFM").hints()
    table = "token_embedding_table.embedding"
    assert hints.fields[table] == ("user_id", "item_id", "age")
    # 31 rows of users (row 0 is padding), then 26 of items, then 6 of ages
    assert hints.rows[table] == ((1, 31), (32, 57), (58, 63))
    assert hints.padding["token_seq_embedding_table.0"] == 0
    names = {"token_seq_embedding_table.0": "class", f"first_order_linear.{table}": "linear", table: "fields"}
    assert names.items() <= hints.names.items()
    assert hints.order == ("class", "user_id", "item_id", "age")  # RecBole stacks sequences of tokens first
    assert hints.pairs == ("fm",)
    # tables that the model computes have RecBole's padding row too
    assert trained("SASRec").hints().padding == {COMPUTED: 0, "item_embedding": 0}


def test_cap_keeps_the_last_by_time(trained):
    data = small_data()
    subject = trained("BPR")
    when = {
        (data.users[u], data.items[i]): t for u, i, t in zip(data.user, data.item, data.time, strict=True)
    }

    def times(batch):
        items = subject.bundle.items[batch.columns["item_id"].numpy() - 1]
        return [when[subject.entities[e], i] for e, i in zip(batch.entity.tolist(), items, strict=True)]

    every, last = (
        times(next(subject.batches(np.array([3]), batch_size=99, per_entity=k))) for k in (None, 2)
    )
    assert last == sorted(every)[-2:]


def test_retraining_without_nobody_is_the_training(trained):
    """Same seed, nobody left out: the weights of the original after its best epoch."""
    subject = trained("NeuMF")
    again = subject.retrain(np.zeros(0, dtype=np.int64), seed=1)
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in subject.model.state_dict().items())


def test_retrained_vectors_of_absent_users_stay_as_initialised(trained):
    subject = trained("BPR")
    without = np.array([0, 7])
    one = subject.retrain(without, seed=3).user_embedding.weight
    longer = copy.copy(subject)
    longer.epochs = subject.epochs + 3
    two = longer.retrain(without, seed=3).user_embedding.weight
    assert torch.equal(one[without + 1], two[without + 1])
    assert not torch.allclose(one[[2, 3]], two[[2, 3]])


def test_auto_encoders_are_softmax_over_items(trained):
    subject = trained("MultiVAE")
    batch = all_of(subject)
    assert subject.class_scores(subject.model, batch).shape == (len(batch), N_ITEMS + 1)
    assert torch.isfinite(subject.log_likelihood(subject.model, batch)).all()
