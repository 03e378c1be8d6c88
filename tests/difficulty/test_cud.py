import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from recunlearn.difficulty.cud import Scores, cud, score
from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.records import Anchors, Circuits
from recunlearn.foundation.settings import SimilaritySettings

PAPER = SimilaritySettings(preset="paper")
OPTIONS = [
    SimilaritySettings(),
    PAPER,
    SimilaritySettings(reference="mean"),
    SimilaritySettings(measure="jaccard"),
    SimilaritySettings(measure="hamming", ranking="signed"),
    SimilaritySettings(measure="jaccard", reference="mean", edges="raw"),
]


def circuits(values):
    values = np.asarray(values, dtype=np.float64)
    n, width = values.shape
    edges = tuple(f"source[{e}] -> sink" for e in range(width))
    return Circuits(np.array([f"u{i}" for i in range(n)]), edges, values, np.zeros(n), np.ones(n, dtype=int))


def anchors(of, easy, hard):
    n = len(of.entities)
    return Anchors(of.entities, np.linspace(0, 1, n), np.array(easy), np.array(hard), np.ones(n, dtype=bool))


def columns(scores: Scores):
    return np.stack([scores.s_easy, scores.s_hard, scores.cud, scores.cud_low, scores.cud_high])


def world(n=60, width=12, seed=0):
    rng = np.random.default_rng(seed)
    return circuits(rng.normal(size=(n, width)) + rng.normal(size=width))


def test_cud_by_hand():
    # easy .4, hard .8: (1 - .4) / ((1 - .4) + (1 - .8)) = .6 / .8 = .75
    # easy .9, hard .5: .1 / (.1 + .5) = 1/6;  easy 1, hard 0: 0 / (0 + 1) = 0;  easy 0, hard 1: 1 / 1 = 1
    values = cud(np.array([0.4, 0.9, 1.0, 0.0]), np.array([0.8, 0.5, 0.0, 1.0]))
    assert values == pytest.approx([0.75, 1 / 6, 0.0, 1.0])


def test_cud_ties_and_nan():
    values = cud(np.array([1.0, np.nan, 0.5]), np.array([1.0, 0.5, np.nan]), ties=0.3)
    assert values[0] == 0.3
    assert np.isnan(values[1:]).all()


def test_paper_setting_by_hand():
    # easy anchors (2,0), (0,2): mean (1,1); hard anchor (0,4), (0,2): mean (0,3). User (3,4):
    # s_E = (3 + 4) / (5 √2) = .9899495, s_H = 12 / (5 · 3) = .8
    # CUD = .0100505 / (.0100505 + .2) = .0478481
    c = circuits([[2, 0], [0, 2], [0, 4], [0, 2], [3, 4]])
    scores = score(c, anchors(c, [0, 1], [2, 3]), PAPER)
    assert scores.s_easy[4] == pytest.approx(7 / (5 * np.sqrt(2)))
    assert scores.s_hard[4] == pytest.approx(0.8)
    assert scores.cud[4] == pytest.approx(0.0478481, abs=1e-6)
    # The first easy anchor without itself: the easy side is (0,2), orthogonal to (2,0): s_E = 0; s_H = 0.
    assert scores.s_easy[0] == 0
    assert scores.cud[0] == pytest.approx(0.5)
    # The first hard anchor without itself: (0,2) is parallel to (0,4): s_H = 1, s_E = 1/√2 -> CUD = 1
    assert scores.s_hard[2] == pytest.approx(1.0)
    assert scores.cud[2] == pytest.approx(1.0)


def test_single_anchor_similarity_by_hand():
    # Raw cosine mapped to [0, 1]. User (1,0): cos with easy (1,0), (0,1) is 1, 0 -> (1 + .5) / 2 = .75;
    # with hard (-1,0), (0,-1): -1, 0 -> (0 + .5) / 2 = .25. CUD = .25 / (.25 + .75) = .25
    chosen = SimilaritySettings(edges="raw")
    c = circuits([[1, 0], [0, 1], [-1, 0], [0, -1], [5, 0]])
    scores = score(c, anchors(c, [0, 1], [2, 3]), chosen)
    assert [scores.s_easy[4], scores.s_hard[4], scores.cud[4]] == pytest.approx([0.75, 0.25, 0.25])
    # Anchor 0 without itself: only (0,1): cos 0 -> .5; hard as before .25: CUD = .5 / (.5 + .75) = .4
    assert [scores.s_easy[0], scores.cud[0]] == pytest.approx([0.5, 0.4])


def test_standardised_edges_by_hand():
    # Edge 1 over users (0, 2, 4): mean 2, std √(8/3) = 1.633; edge 2 (constant) is dropped.
    # Largest std is 1.633, so the floor is .001633 and every standardised value is ∓2 / 1.634632 or 0.
    from recunlearn.difficulty.similarity import edge_scale

    scale = edge_scale(np.array([[0.0, 7], [2, 7], [4, 7], [np.nan, np.nan]]))
    assert scale.kept.tolist() == [True, False]
    spread = np.sqrt(8 / 3) * 1.001
    assert scale.apply(np.array([[0.0, 7], [2, 7], [4, 7]]))[:, 0] == pytest.approx(
        [-2 / spread, 0, 2 / spread]
    )


def test_zero_circuits_and_untraced_users():
    c = circuits([[1, 0], [0, 1], [0, 0], [np.nan, np.nan], [1, 1]])
    scores = score(c, anchors(c, [0], [1]), SimilaritySettings(preset="paper", ties=0.7))
    assert scores.cud[2] == 0.7
    assert np.isnan(columns(scores)[:, 3]).all()
    assert scores.band.tolist()[3] == ""
    assert np.isnan(scores.percentile[3])
    # a side's only anchor has nothing to be compared with on its own side
    assert np.isnan(scores.s_easy[0])
    assert np.isnan(scores.cud[0])
    assert scores.is_anchor.tolist() == [True, True, False, False, False]


def brute_force(c, a, chosen):
    """The same scores by a loop over users, each with its own list of the other anchors."""
    from recunlearn.difficulty.similarity import edge_scale, resolve, similarity

    chosen = resolve(chosen)
    values = edge_scale(c.values, chosen.edges).apply(c.values)
    result = []
    for user in range(len(values)):
        sides: list[float] = []
        for side in (a.easy, a.hard):
            others = values[[r for r in side if r != user]]
            if not len(others):
                others = np.full((1, values.shape[1]), np.nan)
            if chosen.reference == "mean":
                others = others.mean(0, keepdims=True)
            alone = np.isnan(others).any()
            sides.append(np.nan if alone else similarity(values[[user]], others, chosen).mean())
        both = (1 - sides[0]) + (1 - sides[1])
        result.append(chosen.ties if both < 1e-9 else (1 - sides[0]) / both)
    return np.array(result)


@pytest.mark.parametrize("chosen", OPTIONS, ids=str)
def test_anchors_are_left_out_as_by_a_loop(chosen):
    c = world()
    a = anchors(c, range(5), range(50, 56))
    assert score(c, a, chosen).cud == pytest.approx(brute_force(c, a, chosen), abs=1e-12)


@pytest.mark.parametrize("chosen", OPTIONS, ids=str)
def test_intervals_are_those_of_a_loop_over_draws(chosen):
    from recunlearn.difficulty.sides import resampled

    c = world(n=20)
    easy, hard = [0, 1, 2, 3], [10, 11, 12, 13, 14]
    scores = score(c, anchors(c, easy, hard), chosen, draws=30, seed=5)
    rng = np.random.default_rng(5)
    weights = [resampled(len(side), 30, rng)[1:].astype(int) for side in (easy, hard)]
    draws = [
        brute_force(c, anchors(c, np.repeat(easy, e), np.repeat(hard, h)), chosen)
        for e, h in zip(*weights, strict=True)
    ]
    # the scale of the edges does not change with a draw, so the loop sees the same prepared circuits
    low, high = np.nanquantile(draws, [0.025, 0.975], axis=0)
    assert scores.cud_low == pytest.approx(low, abs=1e-9)
    assert scores.cud_high == pytest.approx(high, abs=1e-9)


@pytest.mark.parametrize("chosen", OPTIONS, ids=str)
@settings(max_examples=15, deadline=None)
@given(values=arrays(np.float64, (14, 5), elements=st.floats(-9, 9, width=16)), seed=st.integers(0, 99))
def test_range_permutation_and_symmetry(chosen, values, seed):
    if (np.ptp(values, axis=0) == 0).all() or not values.any():
        return
    c = circuits(values)
    a = anchors(c, [0, 1, 2], [11, 12, 13])
    scores = score(c, a, chosen, draws=20)
    found = columns(scores)
    assert ((found >= 0) & (found <= 1)).all()
    assert (scores.cud_low <= scores.cud_high).all()

    order = np.random.default_rng(seed).permutation(14)
    place = np.argsort(order)
    shuffled = c.take(order)
    again = score(shuffled, anchors(shuffled, place[[0, 1, 2]], place[[11, 12, 13]]), chosen, draws=20)
    assert columns(again)[:3] == pytest.approx(found[:3, order], abs=1e-6)

    swapped = score(c, anchors(c, [11, 12, 13], [0, 1, 2]), chosen, draws=20)
    tied = (2 - scores.s_easy - scores.s_hard < 1e-6) | (scores.cud == 0.5)
    assert (swapped.cud + scores.cud)[~tied] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("chosen", [PAPER, SimilaritySettings(edges="raw")], ids=str)
@settings(max_examples=25, deadline=None)
@given(scales=st.lists(st.floats(1e-6, 1e6), min_size=60, max_size=60))
def test_cosine_ignores_the_strength_of_single_circuits(chosen, scales):
    c = world()
    scaled = circuits(c.values * np.array(scales)[:, None])
    hold = anchors(c, range(4), range(40, 44))
    single = SimilaritySettings(edges="raw", cosine_range=chosen.cosine_range)
    assert score(scaled, hold, single, draws=0).cud == pytest.approx(score(c, hold, single, draws=0).cud)


@settings(max_examples=25, deadline=None)
@given(scale=st.floats(1e-6, 1e6), which=st.sampled_from(range(len(OPTIONS))))
def test_all_circuits_may_be_rescaled_together(scale, which):
    c = world()
    hold = anchors(c, range(4), range(40, 44))
    a, b = (score(x, hold, OPTIONS[which], draws=5).cud for x in (c, circuits(c.values * scale)))
    assert a == pytest.approx(b, abs=1e-9)


def test_moving_towards_the_hard_anchors_raises_the_score():
    # On the arc from the easy to the hard direction the score rises all the way from 0 to 1.
    angle = np.linspace(0, np.pi / 2, 21)
    arc = np.column_stack([np.cos(angle), np.sin(angle)])
    c = circuits(np.concatenate([[[1, 0], [2, 0], [0, 1], [0, 3]], arc]))
    values = score(c, anchors(c, [0, 1], [2, 3]), PAPER).cud[4:]
    assert (np.diff(values) > 0).all()
    assert values[[0, 10, 20]] == pytest.approx([0, 0.5, 1])


def test_new_users_against_stored_circuits():
    c = world()
    a = anchors(c, range(5), range(50, 55))
    whole = score(c, a)
    rows = np.array([3, 20, 52])
    few = score(c.take(rows), a, reference=c)
    assert columns(few) == pytest.approx(columns(whole)[:, rows])
    assert few.is_anchor.tolist() == [True, False, True]
    # ranked among themselves: 0, 50 and 100 in the order of their scores
    assert few.percentile[np.argsort(few.cud)].tolist() == [0, 50, 100]


def test_chunks_do_not_show(monkeypatch):
    c = world()
    a = anchors(c, range(5), range(50, 55))
    whole = columns(score(c, a))
    monkeypatch.setattr("recunlearn.difficulty.cud.CHUNK", 7)
    monkeypatch.setattr("recunlearn.difficulty.similarity.CHUNK", 11)
    assert columns(score(c, a)) == pytest.approx(whole, abs=1e-12)


def test_same_seed_same_intervals():
    c = world()
    a = anchors(c, range(5), range(50, 55))
    one, two, three = (score(c, a, seed=s).cud_low for s in (1, 1, 2))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, three)


def test_anchors_without_circuits():
    c = circuits([[1, 2], [np.nan, np.nan], [2, 1], [0, 1]])
    with pytest.raises(RecunlearnError, match="None of the 1 easy anchors has a circuit"):
        score(c, anchors(c, [1], [2]))
    with pytest.raises(RecunlearnError, match="None of the 1 hard anchors"):
        score(c.take(np.array([0, 1, 3])), anchors(c, [0], [2]))


def test_other_edges_are_refused():
    c, other = world(width=3), world(width=4)
    with pytest.raises(RecunlearnError, match="have 3 edges and those of the anchors 4"):
        score(c, anchors(c, [0], [1]), reference=other)


def test_nothing_to_compare():
    c = circuits(np.ones((4, 3)))
    with pytest.raises(RecunlearnError, match="All 3 edges are the same in all 4 circuits"):
        score(c, anchors(c, [0], [1]))
    empty = circuits(np.full((4, 3), np.nan))
    with pytest.raises(RecunlearnError, match="There is no circuit"):
        score(empty, anchors(empty, [0], [1]))
