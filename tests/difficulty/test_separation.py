from dataclasses import replace

import numpy as np
import pytest
from test_signatures import FIVE, circuits

from recunlearn.difficulty.effects import holm
from recunlearn.difficulty.separation import LEAST, associations, compare
from recunlearn.difficulty.signatures import shapes
from recunlearn.difficulty.statistics import partial_spearman, spearman
from recunlearn.foundation.errors import RecunlearnError

EASY, HARD = np.arange(12), np.arange(12, 24)


def world(seed=0):
    """24 users: k -> output carries most of the easy half, h -> output most of the hard half."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(0.9, 1.1, size=(24, 5))
    values[EASY, 0] += 3
    values[HARD, 1] += 3
    return values


def by_key(comparison):
    return {s.key: s for s in comparison.signatures}


def test_verdicts_follow_the_paper():
    found = by_key(compare("two", circuits(world()), EASY, HARD))
    # Easy users go through the late edge k -> output, hard ones through the direct edge h -> output.
    assert found["late_share"].delta == -1
    assert found["late_share"].verdict == "opposite"
    assert found["direct_share"].delta == 1
    assert found["direct_share"].verdict == "as the paper says"
    assert found["gini"].verdict == "no difference"
    assert found["attention_share"].claim == "higher"
    assert all(s.low <= s.delta <= s.high for s in found.values())
    p = np.array([s.p for s in found.values()])
    assert [s.p_holm for s in found.values()] == holm(p).tolist()
    assert len(set(p)) > 2


def test_turning_the_groups_round_turns_the_effects_round():
    whole = circuits(world())
    there, back = by_key(compare("", whole, EASY, HARD)), by_key(compare("", whole, HARD, EASY))
    for key, contrast in there.items():
        assert back[key].delta == -contrast.delta
        assert (back[key].easy, back[key].hard) == (contrast.hard, contrast.easy)


def test_separating_edges_by_hand():
    found = compare("two", circuits(world()), EASY, HARD, edges=2)
    # All 144 pairs of users agree on the edges 0 and 1; 12 against 12: the exact p is 2 / C(24, 12).
    assert {e.edge: e.delta for e in found.edges} == {"0": -1.0, "1": 1.0}
    easy, hard = (np.abs(world())[rows] for rows in (EASY, HARD))
    first = next(e for e in found.edges if e.edge == "0")
    assert first.easy == pytest.approx(np.median(easy[:, 0] / easy.sum(1)))
    assert first.hard == pytest.approx(np.median(hard[:, 0] / hard.sum(1)))
    assert first.p_holm == pytest.approx(5 * first.p)  # the smallest of five, tied with the other
    assert first.p < 1e-4
    assert found.separating >= 2


def test_an_edge_that_nobody_varies_on_is_no_test():
    values = world()
    values[:, 4] = 0
    assert "4" not in {e.edge for e in compare("", circuits(values), EASY, HARD).edges}


def test_what_is_the_same_for_all_gets_no_p():
    values = world()
    values[:, 1] = 0  # k alone feeds the output, one level below: no direct edges, for anybody
    found = by_key(compare("", circuits(values), EASY, HARD))["direct_share"]
    assert (found.delta, found.verdict) == (0, "same for all")
    assert np.isnan([found.p, found.p_holm, found.low]).all()


def test_differences_of_rounding_are_none():
    # a -> h -> output and b -> k -> output: all paths have two edges, but sums of shares differ in a bit.
    twin = replace(
        FIVE,
        nodes=("a", "b", "h", "k", "output"),
        depths=(0, 0, 1, 1, 2),
        source=(2, 3, 0, 1),
        sink=(4, 4, 2, 3),
        source_group=("",) * 4,
        sink_group=("",) * 4,
    )
    whole = circuits(np.random.default_rng(0).uniform(0.1, 1, size=(24, 4)), twin)
    assert len(set(shapes(whole)["path_length"])) > 1
    assert by_key(compare("", whole, EASY, HARD))["path_length"].verdict == "same for all"


def test_too_few_users_are_named_and_get_no_number():
    found = compare("few", circuits(world()), EASY, HARD[: LEAST - 1])
    assert found.reason == "too few users for a test: 12 easy, 5 hard, at least 6 each are needed"
    assert not found.signatures
    assert not found.edges
    assert compare("enough", circuits(world()), EASY, HARD[:LEAST]).reason == ""


def test_untraced_users_do_not_count():
    values = world()
    values[[0, 12]] = np.nan
    found = compare("", circuits(values), EASY, HARD)
    assert (found.n_easy, found.n_hard) == (11, 11)
    without = compare("", circuits(np.delete(values, [0, 12], 0)), np.arange(11), np.arange(11, 22))
    assert found == without


def test_circuits_without_graph_are_refused():
    with pytest.raises(RecunlearnError, match="hold no graph"):
        compare("", circuits(world(), graph=None), EASY, HARD)


def test_order_and_scale_of_users_do_not_matter():
    values = world(seed=4)
    rng = np.random.default_rng(0)
    one = compare("", circuits(values), EASY, HARD)
    scaled = circuits(values * rng.uniform(0.1, 10, size=(24, 1)))
    other = compare("", scaled, rng.permutation(EASY), rng.permutation(HARD))
    for a, b in zip(one.signatures, other.signatures, strict=True):
        assert (b.easy, b.hard, b.delta) == pytest.approx((a.easy, a.hard, a.delta))
        assert b.p_holm == pytest.approx(a.p_holm, abs=0.03)
    assert {(e.edge, e.delta) for e in one.edges} == {(e.edge, e.delta) for e in other.edges}


def test_groups_at_random_seldom_differ():
    rng = np.random.default_rng(0)
    found = 0
    for seed in range(8):
        values = np.abs(rng.normal(size=(24, 5))) + 0.1
        verdicts = {s.verdict for s in compare("", circuits(values), EASY, HARD, seed=seed).signatures}
        found += verdicts != {"no difference"}
    assert found <= 2  # each has p .05 at most; three or more of eight have .006


def test_associations_hold_controls_fixed():
    rng = np.random.default_rng(1)
    whole, rows = circuits(np.abs(rng.normal(size=(40, 5)))), np.arange(5, 40)
    activity = rng.normal(size=35)
    target = shapes(whole)["gini"][rows] + activity
    nothing = np.full(35, np.nan)
    found = associations(whole, rows, target, "CUD", {"n": activity, "vectors": nothing})
    gini = next(a for a in found if a.key == "gini")
    own = shapes(whole)["gini"][rows]
    assert gini.n == 35
    assert gini.rho == pytest.approx(spearman(own, target))
    assert gini.partial == pytest.approx(partial_spearman(own, target, [activity]))
    assert gini.partial > gini.rho
    assert gini.low < gini.partial < gini.high
    assert [a.key for a in found] == ["path_length", "late_share", "direct_share", "attention_share", "gini"]
