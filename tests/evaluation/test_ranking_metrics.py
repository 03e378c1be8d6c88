import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss as sk_log_loss
from sklearn.metrics import ndcg_score, roc_auc_score

from recunlearn.evaluation.ranking import RANKING_METRICS, auc, log_loss, mean_metrics, per_user_metrics

HITS = np.array([[False, True, True, False], [True, False, False, False], [False] * 4])
POSITIVES = np.array([3, 1, 2])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("recall@3", [2 / 3, 1, 0]),
        ("precision@3", [2 / 3, 1 / 3, 0]),
        ("hit@1", [0, 1, 0]),
        ("hit@3", [1, 1, 0]),
        ("mrr@3", [1 / 2, 1, 0]),
        ("mrr@1", [0, 1, 0]),
        # DCG = 1/log2(3) + 1/log2(4) = .6309 + .5; IDCG of 3 positives = 1 + .6309 + .5; 1.1309 / 2.1309
        ("ndcg@3", [1.1309297535714575 / 2.1309297535714578, 1, 0]),
        # At k = 1 the ideal list has one place: IDCG = 1
        ("ndcg@1", [0, 1, 0]),
    ],
)
def test_metrics_by_hand(name, expected):
    values = per_user_metrics(HITS, POSITIVES, [int(name.split("@")[1])])
    np.testing.assert_allclose(values[name], expected, rtol=1e-12)


def test_a_list_shorter_than_k_counts_as_misses():
    # One item ranked, a hit: precision@5 = 1/5, IDCG of 2 positives = 1 + 1/log2(3) = 1.6309
    values = per_user_metrics(np.array([[True]]), np.array([2]), [5])
    assert values["precision@5"][0] == pytest.approx(1 / 5)
    assert values["ndcg@5"][0] == pytest.approx(1 / 1.6309297535714573)


def test_users_without_positives_are_left_out_or_zero():
    values = per_user_metrics(np.array([[True], [False]]), np.array([1, 0]), [1])
    assert all(np.isnan(v[1]) for v in values.values())
    assert mean_metrics(values)["ndcg@1"] == 1
    assert mean_metrics(values, empty="zero")["ndcg@1"] == 0.5


def test_nobody_gives_nan():
    values = per_user_metrics(np.zeros((0, 3), dtype=bool), np.zeros(0, dtype=int), [3])
    assert np.isnan(mean_metrics(values)["recall@3"])


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"\[U, K\] for 2 users, but got \(3, 4\)"):
        per_user_metrics(HITS, POSITIVES[:2], [1])


@given(st.integers(0, 2**31), st.integers(2, 30), st.integers(1, 30))
def test_ndcg_is_scikit_learns(seed, items, k):
    rng = np.random.default_rng(seed)
    k = min(k, items)
    relevant = rng.random((4, items)) < 0.4
    relevant[:, 0] = True
    scores = rng.permuted(np.tile(np.arange(items, dtype=float), (4, 1)), axis=1)
    order = np.argsort(-scores, axis=1)
    hits = np.take_along_axis(relevant, order, 1)
    ours = mean_metrics(per_user_metrics(hits, relevant.sum(1), [k]))[f"ndcg@{k}"]
    assert ours == pytest.approx(ndcg_score(relevant.astype(float), scores, k=k), abs=1e-12)


@given(st.integers(0, 2**31))
def test_metrics_lie_between_0_and_1_and_grow_when_a_hit_moves_up(seed):
    rng = np.random.default_rng(seed)
    hits = rng.random((5, 8)) < 0.3
    hits[:, 3], hits[:, 4] = False, True
    better = hits.copy()
    better[:, 3], better[:, 4] = True, False
    positives = hits.sum(1) + rng.integers(0, 3, 5)
    for name in RANKING_METRICS:
        low = per_user_metrics(hits, positives, [6])[f"{name}@6"]
        high = per_user_metrics(better, positives, [6])[f"{name}@6"]
        assert ((low >= 0) & (high <= 1) & (high >= low)).all()


@given(st.integers(0, 2**31))
def test_auc_and_log_loss_are_scikit_learns_with_ties(seed):
    rng = np.random.default_rng(seed)
    labels = np.r_[0, 1, rng.integers(0, 2, 30)].astype(float)
    scores = rng.integers(1, 9, 32) / 10
    assert auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert log_loss(scores, labels) == pytest.approx(sk_log_loss(labels, scores), abs=1e-12)


def test_auc_of_one_class_is_nan_and_log_loss_is_clipped():
    assert np.isnan(auc(np.array([0.1, 0.2]), np.array([1.0, 1.0])))
    # -log(1e-15) = 15 log 10
    assert log_loss(np.array([0.0]), np.array([1.0])) == pytest.approx(15 * np.log(10))
