import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recunlearn.difficulty.cud import score
from recunlearn.difficulty.explanation import (
    Explanation,
    by_layer,
    by_pair,
    edge_shares,
    explain,
    fewest,
    sentence,
)
from recunlearn.difficulty.similarity import similarity
from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.records import Anchors, CircuitGraph, Circuits
from recunlearn.foundation.settings import SimilaritySettings

PAPER = SimilaritySettings(preset="paper")
OPTIONS = [
    SimilaritySettings(),
    PAPER,
    SimilaritySettings(reference="mean"),
    SimilaritySettings(cosine_range="clamped"),
    SimilaritySettings(edges="raw"),
    SimilaritySettings(measure="jaccard"),
    SimilaritySettings(measure="hamming", ranking="signed"),
    SimilaritySettings(measure="jaccard", reference="mean", edges="raw"),
    SimilaritySettings(measure="hamming", preset="paper"),
]
# user[0] -> mix, user[1] -> mix, item -> mix, item -> output (over a column), mix -> output
GRAPH = CircuitGraph(
    nodes=("user", "item", "mix", "output"),
    kinds=("source", "source", "product", "output"),
    attention=(False,) * 4,
    depths=(0, 0, 1, 2),
    source=(0, 0, 1, 1, 2),
    sink=(2, 2, 2, 3, 3),
    source_group=("[0]", "[1]", "", "", ""),
    sink_group=("",) * 5,
)


def circuits(values):
    values = np.asarray(values, dtype=np.float64)
    n, width = values.shape
    edges = tuple(f"source[{e}] -> sink" for e in range(width))
    return Circuits(np.array([f"u{i}" for i in range(n)]), edges, values, np.zeros(n), np.ones(n, dtype=int))


def anchors(of, easy, hard):
    n = len(of.entities)
    return Anchors(of.entities, np.linspace(0, 1, n), np.array(easy), np.array(hard), np.ones(n, dtype=bool))


def world(n=30, width=5, seed=0):
    rng = np.random.default_rng(seed)
    return circuits(rng.normal(size=(n, width)) + rng.normal(size=width))


@pytest.mark.parametrize("similar", OPTIONS)
@settings(max_examples=25)
@given(seed=st.integers(0, 1000), spread=st.sampled_from([1.0, 1e-6, 1e6]))
def test_contributions_add_up_to_the_score_of_everybody(similar, seed, spread):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(14, 6)) * spread * np.exp(rng.normal(size=6))
    values[rng.random(values.shape) < 0.2] = 0.0
    of = circuits(values)
    chosen = anchors(of, [0, 1, 2], [3, 4, 5])
    scores = score(of, chosen, similar, draws=0)
    for row in range(14):
        told = explain(of, chosen, f"u{row}", similar)
        assert told.start + told.contribution.sum() == pytest.approx(scores.cud[row], abs=1e-9)
        assert told.s_easy == pytest.approx(scores.s_easy[row], abs=1e-9)
        assert told.s_hard == pytest.approx(scores.s_hard[row], abs=1e-9)
        assert told.side == ("easy" if row < 3 else "hard" if row < 6 else "")


@pytest.mark.parametrize("similar", OPTIONS)
def test_shares_add_up_to_the_similarity(similar):
    rng = np.random.default_rng(3)
    circuit, others = rng.normal(size=9), rng.normal(size=(4, 9))
    mapped = similar.measure == "cosine" and similar.cosine_range == "mapped"
    reference = others.mean(0, keepdims=True) if similar.reference == "mean" else others
    whole = similarity(circuit[None], reference, similar).mean()
    assert edge_shares(circuit, others, similar).sum() + mapped / 2 == pytest.approx(whole)


def test_paper_setting_by_hand():
    # easy anchors (2,0), (0,2): mean (1,1); hard anchors (0,4), (0,2): mean (0,3); user (3,4), length 5
    # shares of s_E: 3 / (5 √2), 4 / (5 √2) = .424264, .565685; of s_H: 0, 4 · 3 / (5 · 3) = .8
    # 2 (2 − .989949 − .8) = .420102: (0 − .424264) / .420102 = −1.009908, (.8 − .565685) / .420102 = .557759
    of = circuits([[2, 0], [0, 2], [0, 4], [0, 2], [3, 4]])
    told = explain(of, anchors(of, [0, 1], [2, 3]), "u4", PAPER)
    assert told.contribution == pytest.approx([-1.009908, 0.557759], abs=1e-5)
    assert told.cud == pytest.approx(0.5 - 1.009908 + 0.557759, abs=1e-5)
    assert told.strength == pytest.approx(np.array([[3, 4], [1, 1], [0, 3]]))


def test_jaccard_by_hand():
    # Half of the four edges, by size: user {0, 1}; easy anchor {0, 2}: common 0, union 3 -> 1/3 on edge 0;
    # hard anchor {0, 1}: 1/2 on edges 0 and 1, s_H = 1. 2 (2 − 1/3 − 1) = 4/3:
    # edge 0 (1/2 − 1/3) / (4/3) = 1/8, edge 1 (1/2) / (4/3) = 3/8; CUD = 1/2 + 1/2 = 1
    of = circuits([[4, 0.1, 3, 0], [5, 2, 0, 0.1], [9, 8, 1, 1], [1, 1, 1, 7]])
    similar = SimilaritySettings(measure="jaccard", edges="raw", top_fraction=0.5)
    told = explain(of, anchors(of, [0], [1]), "u2", similar)
    assert told.contribution == pytest.approx([1 / 8, 3 / 8, 0, 0])
    assert told.cud == pytest.approx(1)


def test_an_anchor_is_left_out_of_its_own_mean():
    of = world()
    told = explain(of, anchors(of, [0, 1, 2], [3, 4]), "u1")
    assert told.strength[1] == pytest.approx(of.values[[0, 2]].mean(0))
    assert told.counts == (2, 2)


def test_a_constant_edge_adds_nothing_and_keeps_its_column():
    of = world()
    of.values[:, 2] = 7.0
    told = explain(of, anchors(of, [0, 1], [3, 4]), "u9")
    assert told.contribution[2] == told.compared[0, 2] == 0
    assert told.strength[:, 2] == pytest.approx([7, 7, 7])
    assert np.abs(told.contribution[[0, 1, 3, 4]]).min() > 0


def test_a_circuit_of_zeros_scores_ties_and_says_so():
    values = world(width=5).values
    values[9] = 0.0
    of = circuits(values)
    similar = SimilaritySettings(edges="raw", ties=0.3)
    told = explain(of, anchors(of, [0, 1], [3, 4]), "u9", similar)
    assert (told.start, told.cud) == (0.3, 0.3)
    assert score(of, anchors(of, [0, 1], [3, 4]), similar, draws=0).cud[9] == 0.3
    text = sentence("User u9", told, GRAPH, {"band": "medium", "below": 0.5, "above": 0.4})
    assert "zero on every edge, so it resembles neither" in text


def test_users_without_circuit_or_comparison_are_refused():
    of = world()
    of.values[5] = np.nan
    with pytest.raises(RecunlearnError, match="'u5' has no circuit"):
        explain(of, anchors(of, [0, 1], [3, 4]), "u5")
    with pytest.raises(RecunlearnError, match="'nobody' has no circuit"):
        explain(of, anchors(of, [0, 1], [3, 4]), "nobody")
    with pytest.raises(RecunlearnError, match="only hard anchor"):
        explain(of, anchors(of, [0, 1], [3]), "u3")


def test_groups_and_kinds_are_summed():
    values = np.array([1.0, 2.0, -4.0, 8.0, 16.0])
    assert by_pair(GRAPH, values) == {(0, 2): 3.0, (1, 2): -4.0, (1, 3): 8.0, (2, 3): 16.0}
    # user and item -> mix: 3 − 4 = −1
    expected = {"input -> interaction": -1.0, "input -> output": 8.0, "interaction -> output": 16.0}
    assert by_layer(GRAPH, values) == expected
    assert list(by_layer(GRAPH, values)) == list(expected)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=12), st.floats(0.01, 1))
def test_fewest_is_the_smallest_number_that_reaches_the_share(pull, share):
    values = np.array(pull)
    best = np.sort(values[values > 0])[::-1]
    few = fewest(values, share)
    assert best[:few].sum() >= share * best.sum() * (1 - 1e-9)
    assert few == 0 or best[: few - 1].sum() < share * best.sum()


def told_with(strength, contribution, s_easy, s_hard, side=""):
    strength, contribution = np.array(strength, dtype=float), np.array(contribution, dtype=float)
    return Explanation(strength, strength, contribution, 0.5, s_easy, s_hard, side, (2, 2), True)


def test_sentence_of_a_hard_user_by_hand():
    # user -> mix: 0.1 + 0.1 = 0.2 here, 1.0 for easy, 0.4 for hard anchors; it adds .08 + .04 = .12.
    # Positive pull .08, .05, .04, .02: half of .19 is .095, reached by .08 + .05.
    told = told_with(
        [[0.1, 0.1, 0, 0, 1], [0.5, 0.5, 0, 0, 1], [0.2, 0.2, 0, 0, 1]],
        [0.08, 0.04, 0.05, 0.02, -0.01], 0.4, 0.6, "hard",
    )  # fmt: skip
    assert sentence("User 7", told, GRAPH, {"band": "hard", "below": 0.977, "above": 0.02}) == (
        "User 7, itself an anchor on the hard side, is hard to unlearn (CUD 0.68, harder than 97 % of the "
        "other users): its circuit is closer to the hard anchors (similarity 0.60) than to the easy ones "
        "(0.40), most of all in user -> mix, weaker here (0.2) and in the hard anchors (0.4) than in the "
        "easy ones (1.0); 2 of its 5 edges carry half of the pull towards hard."
    )


def test_sentence_claims_no_difference_that_is_not_there():
    # user -> mix: 2.0 here, 1.0 for easy, 0.4 for hard anchors: the user is not on the hard anchors' side.
    told = told_with([[1, 1, 0, 0, 1], [0.5, 0.5, 0, 0, 1], [0.2, 0.2, 0, 0, 1]], [0.1, 0, 0, 0, 0], 0.4, 0.6)
    text = sentence("User 7", told, GRAPH, {"band": "hard", "below": 1.0, "above": 0.0})
    assert "most of all in user -> mix; 1 of its 5 edges" in text
    assert "harder than every other user" in text


def test_sentence_of_a_user_in_the_middle_names_both_sides():
    told = told_with(np.ones((3, 5)), [0.02, 0, 0, 0, -0.02], 0.5, 0.51)
    text = sentence("User 7", told, GRAPH, {"band": "medium", "below": 0.5, "above": 0.49})
    assert "is of medium difficulty (CUD 0.500, harder than 50 % of the other users)" in text
    assert "about as close to the hard anchors (similarity 0.510) as to the easy ones (0.500)" in text
    assert "to the hard ones most of all in user -> mix, to the easy ones in mix -> output" in text


def test_sentence_where_everybody_is_closer_to_the_hard_anchors():
    told = told_with(np.ones((3, 5)), [0.02, 0, 0, 0, 0], 0.5, 0.55)
    text = sentence("User 7", told, GRAPH, {"band": "easy", "below": 0.1, "above": 0.899})
    assert "is easy to unlearn (CUD 0.52, easier than 89 % of the other users)" in text
    assert (
        "closer to the hard anchors (similarity 0.55) than to the easy ones (0.50), but less so than" in text
    )


@given(st.integers(0, 400))
def test_sentence_is_true_of_any_user(seed):
    of = world(n=20, seed=seed)
    chosen = anchors(of, [0, 1, 2], [3, 4, 5])
    told = explain(of, chosen, f"u{seed % 20}")
    text = sentence("User x", told, GRAPH, {"band": "medium", "below": 0.5, "above": 0.5})
    figures = {
        side: float(v) for side, v in re.findall(r"(easy|hard) (?:anchors|ones) \(similarity (\S+)\)", text)
    }
    for side, value in figures.items():
        assert value == pytest.approx({"easy": told.s_easy, "hard": told.s_hard}[side], abs=0.0051)
    if "is closer to the " in text:
        near = re.search(r"closer to the (\w+)", text)[1]
        assert (near == "hard") == (told.s_hard > told.s_easy)
        assert f"pull towards {near}" in text
    if found := re.search(r"most of all in (\w+) -> (\w+), (weaker|stronger) here", text):
        pair = (GRAPH.nodes.index(found[1]), GRAPH.nodes.index(found[2]))
        user, easy, hard = (by_pair(GRAPH, row)[pair] for row in told.strength)
        other, like = (easy, hard) if near == "hard" else (hard, easy)
        less = found[3] == "weaker"
        assert (abs(user) < abs(other)) == (abs(like) < abs(other)) == less
        pull = by_pair(GRAPH, told.contribution * (1 if near == "hard" else -1))
        assert pull[pair] == max(pull.values())
