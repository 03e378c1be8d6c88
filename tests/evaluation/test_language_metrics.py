import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from recunlearn.evaluation import language as m


def test_probability_and_truth_ratio_by_hand():
    assert m.probability(np.array([0.0, np.log(4)])) == pytest.approx([1, 0.25])
    # exp(-(ln 2 + ln 8) / 2) = 1/4; over exp(-ln 2) = 1/2: a half.
    assert m.truth_ratio(np.log([[2.0, 8.0]]), np.log([2.0])) == pytest.approx([0.5])
    assert m.truth_ratio(np.array([[0.0]]), np.array([np.inf])).tolist() == [np.inf]
    # Mean of max(0, 1 - .25) and max(0, 1 - 3).
    assert m.knows_better(np.array([0.25, 3.0])) == pytest.approx(0.375)
    assert np.isnan(m.knows_better(np.zeros(0)))


def test_probability_among_answers_of_a_wrecked_model_is_a_number():
    assert m.probability_among(np.array([5000.0]), np.array([[5000.0]])) == pytest.approx([0.5])
    losses = np.array([0.3, 1.2])
    wrong = np.array([[1.0, 2.0, 0.5], [0.1, 0.2, 3.0]])
    p, q = np.exp(-losses), np.exp(-wrong)
    assert m.probability_among(losses, wrong) == pytest.approx(p / (p + q.sum(1)))


def test_forget_quality_is_the_p_of_the_test():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=60), rng.normal(0.4, 1, size=40)
    assert m.forget_quality(a, b) == pytest.approx(stats.ks_2samp(a, b).pvalue)
    assert m.forget_quality(a, a) == pytest.approx(1)
    assert m.forget_quality(np.append(a, np.nan), b) == pytest.approx(stats.ks_2samp(a, b).pvalue)
    assert np.isnan(m.forget_quality(np.array([np.nan]), b))


def test_model_utility_is_a_harmonic_mean():
    # 3 / (1 + 2 + 4) of 1, 1/2, 1/4.
    assert m.model_utility({"a": 1.0, "b": 0.5, "c": 0.25}) == pytest.approx(3 / 7)
    assert m.model_utility({"a": 1.0, "b": 0.0}) == 0
    assert np.isnan(m.model_utility({"a": 1.0, "b": np.nan}))
    assert np.isnan(m.model_utility({}))


def test_memorisation_by_hand():
    hits = [np.array([False, True, True, True]), np.array([True, True]), np.array([True, False])]
    assert m.exact_memorisation(hits) == pytest.approx([0.75, 1, 0.5])
    # From token 1 of 4 on everything follows: 1 - 1/4; from the start: 1; never: 0.
    assert m.extraction_strength(hits) == pytest.approx([0.75, 1, 0])


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_extraction_strength_is_the_longest_tail_of_hits(found):
    length = len(found)
    slow = next((1 - k / length for k in range(length) if all(found[k:])), 0.0)
    assert m.extraction_strength([np.array(found)]) == pytest.approx([slow])
    assert m.extraction_strength([np.array(found)])[0] <= m.exact_memorisation([np.array(found)])[0] + 1e-12


def test_attack_scores_by_hand():
    logs = [np.array([-1.0, -4.0, -2.0, -3.0, 0.0]), np.array([-2.0])]
    texts = ["a b a b a b", "x"]
    found = m.attack_scores(np.array([1.5, 2.5]), logs, texts)
    assert found["loss"] == pytest.approx([-1.5, -2.5])
    sizes = [len(zlib.compress(t.encode())) for t in texts]
    assert found["zlib"] == pytest.approx([-1.5 / sizes[0], -2.5 / sizes[1]])
    # Two of five tokens: -4 and -3; at least one of one.
    assert found["min_k"] == pytest.approx([-3.5, -2])


def test_attack_auc_is_sklearns():
    rng = np.random.default_rng(1)
    members = {"loss": rng.normal(0.5, 1, 30).round(1)}
    strangers = {"loss": rng.normal(0, 1, 20).round(1)}
    labels = np.r_[np.ones(30), np.zeros(20)]
    expected = roc_auc_score(labels, np.r_[members["loss"], strangers["loss"]])
    assert m.attack_aucs(members, strangers) == {"loss": pytest.approx(expected)}


def test_rouge_recall_by_hand():
    pytest.importorskip("rouge_score")
    # Longest common subsequence "the cat mat" of 5 wanted words; stemming makes cats and cat alike.
    found = m.rouge_l_recall(["the cats mat on", "", "dogs"], ["the cat on the mat", "one", "dog"])
    assert found == pytest.approx([3 / 5, 0, 1])
