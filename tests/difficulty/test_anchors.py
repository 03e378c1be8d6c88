import numpy as np
import pytest
from scipy.stats import friedmanchisquare

from recunlearn.difficulty.anchors import (
    agreement,
    choose_anchors,
    consensus_ranks,
    mean_rank,
    relative_spread,
    stable_ends,
)
from recunlearn.difficulty.outcomes import hardness, measurable, unlearned_methods
from recunlearn.difficulty.statistics import kendall_w
from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.records import Anchors, Outcomes, load_record, save_record
from recunlearn.foundation.settings import AnchorSettings


def outcomes(after, before, retrained, noise=0.0):
    after = np.asarray(after, dtype=float)
    n = after.shape[-1]
    return Outcomes(
        entities=np.array([f"u{i}" for i in range(n)]),
        methods=tuple(f"method-{m}" for m in range(len(after))),
        seeds=tuple(range(after.shape[1])),
        loss_before=np.asarray(before, dtype=float),
        loss_after=after,
        loss_retrained=np.asarray(retrained, dtype=float),
        loss_population=np.full(n, 1.0),
        noise=noise,
    )


def noisy(n=60, methods=3, seeds=2, noise=0.1, seed=0):
    """Hardness truly rises with the entity's number; every run adds noise."""
    rng = np.random.default_rng(seed)
    after = 2 - np.linspace(0, 1, n) + noise * rng.normal(size=(methods, seeds, n))
    return outcomes(after, np.full(n, 0.5), np.full((2, n), 1.6))


def test_outcomes_by_hand():
    # one method, one seed. L_0 = .2, .5; L_U = .7, .6; L_R = mean of (1, .9), (1.2, 1.1) = 1.1, 1
    record = outcomes([[[0.7, 0.6]]], [0.2, 0.5], [[1.0, 0.9], [1.2, 1.1]], noise=0.2)
    assert hardness(record, "increase")[0, 0] == pytest.approx([-0.5, -0.1])
    assert hardness(record, "level")[0, 0] == pytest.approx([-0.7, -0.6])
    # (1.1 - .7) / (1.1 - .2) = .4444; (1 - .6) / (1 - .5) = .8
    assert hardness(record, "share-left")[0, 0] == pytest.approx([4 / 9, 0.8])


def test_share_left_of_the_extremes():
    # nothing forgotten 1, as by retraining 0, over-forgotten below 0
    record = outcomes([[[0.2, 1.0, 1.8]]], [0.2] * 3, [[1.0] * 3])
    assert hardness(record, "share-left")[0, 0] == pytest.approx([1, 0, -1])


def test_gap_below_twice_the_noise_is_not_measurable():
    # gaps .39, .4, -.1 against 2 · .2
    record = outcomes(np.ones((1, 1, 3)), [0.5, 0.5, 1.0], [[0.89, 0.9, 0.9]], noise=0.2)
    assert measurable(record, "share-left").tolist() == [False, True, False]
    assert np.isnan(hardness(record, "share-left")[0, 0]).tolist() == [True, False, True]
    assert measurable(record, "increase").all()
    quiet = outcomes(np.ones((1, 1, 2)), [1.0, 0.9], [[1.0, 1.0]])
    assert measurable(quiet, "share-left").tolist() == [False, True]


def test_infinite_loss_is_the_easiest_and_nan_is_not_measurable():
    record = outcomes([[[np.inf, 1.0, np.nan, 2.0]]], np.zeros(4), np.ones((1, 4)))
    assert measurable(record, "increase").tolist() == [True, True, False, True]
    anchors = choose_anchors(record, AnchorSettings(count=1, pool=10))
    assert anchors.easy.tolist() == [0]
    assert anchors.hard.tolist() == [1]


def test_unknown_outcome():
    with pytest.raises(UsageError, match=r"Unknown outcome 'gap'\. Allowed: increase, share-left, level"):
        hardness(noisy(), "gap")


def test_methods_that_did_not_unlearn_have_no_vote():
    record = noisy()
    lazy = np.full((1, 2, 60), 0.5) + 0.01 * np.random.default_rng(9).normal(size=(1, 2, 60))
    more = outcomes(np.concatenate([record.loss_after, lazy]), record.loss_before, record.loss_retrained)
    assert unlearned_methods(more).tolist() == [True, True, True, False]
    with_lazy, without = (choose_anchors(r, AnchorSettings(count=5)) for r in (more, record))
    assert with_lazy.agreement["methods_without_vote"] == 1
    assert np.array_equal(with_lazy.hard, without.hard)
    # when none went far enough, or there is no way to go, all vote
    assert unlearned_methods(outcomes(lazy, record.loss_before, record.loss_retrained)).all()
    assert unlearned_methods(outcomes(more.loss_after, record.loss_before, np.zeros((2, 60)))).all()


def test_consensus_by_hand():
    # method 0, seeds: values (1, 2, 3) -> ranks 0, .5, 1 and (1, 3, 2) -> 0, 1, .5: mean 0, .75, .75
    # method 1: (5, 5, 9) -> .25, .25, 1 and (3, 2, 1) -> 1, .5, 0: mean .625, .375, .5
    values = np.array([[[1.0, 2, 3], [1, 3, 2]], [[5, 5, 9], [3, 2, 1]]])
    ranks = consensus_ranks(values)
    assert ranks[0].tolist() == [[0, 0.5, 1], [0, 1, 0.5]]
    assert ranks[1].tolist() == [[0.25, 0.25, 1], [1, 0.5, 0]]
    # hardness: (0 + .625) / 2, (.75 + .375) / 2, (.75 + .5) / 2
    assert ranks.mean((0, 1)) == pytest.approx([0.3125, 0.5625, 0.625])
    # spread of entity 0: ranks 0, 0, .25, 1, mean .3125, deviation .40984; room √(.3125 · .6875) = .46351
    assert relative_spread(ranks)[0] == pytest.approx(0.40984 / 0.46351, abs=1e-4)


def test_equal_places_stay_equal():
    # In floating point means of k / 299 differ in the last digit where the sums of places k are the same.
    rng = np.random.default_rng(0)
    places = np.array([[rng.permutation(300) for _ in range(3)] for _ in range(5)])
    mean, sums = mean_rank(places / 299, (0, 1)), places.sum((0, 1))
    assert mean == pytest.approx((places / 299).mean((0, 1)), abs=1e-12)
    assert np.array_equal(np.unique(mean, return_inverse=True)[1], np.unique(sums, return_inverse=True)[1])
    # oracle: Friedman's statistic is m (n - 1) W, its ties counted on whole numbers
    friedman = friedmanchisquare(*places.sum(1).T).statistic
    assert agreement(places / 299)["kendall_w_methods"] == pytest.approx(friedman / (5 * 299), abs=1e-12)


def test_the_more_stable_of_two_equals_comes_first():
    # places 0 to 5 in 2 x 2 runs; the first two entities have 0 + 0 + 0 + 3 and 1 + 1 + 1 + 0, but as floats
    # .6 < .2 + .2 + .2. Deviations 1.30 and .43: the second comes first.
    most, last = [0, 1, 2, 3, 4, 5], [3, 0, 1, 2, 4, 5]
    record = outcomes(5 - np.array([[most, most], [most, last]]), np.zeros(6), np.ones((2, 6)))
    assert choose_anchors(record, AnchorSettings(count=1, stability=1)).easy.tolist() == [1]


def test_relative_spread_is_at_most_one():
    # ranks all at the two ends are the most that a mean allows; equal ranks are no spread at all
    extremes = np.array([[[0.0, 1, 0]], [[1.0, 1, 0]]])
    assert relative_spread(extremes) == pytest.approx([1, 0, 0])


def test_plain_deviation_would_prefer_the_ends():
    # With the same noise everywhere the ends deviate less than the middle, but use as much of their room.
    values = consensus_ranks(hardness(noisy(n=300, methods=5, noise=0.3), "increase"))
    middle = np.abs(values.mean((0, 1)) - 0.5) < 0.15
    plain, relative = values.std((0, 1)), relative_spread(values)
    assert plain[~middle].mean() < 0.8 * plain[middle].mean()
    assert relative[~middle].mean() > 0.85 * relative[middle].mean()


def test_stable_ends_by_hand():
    mean = np.array([0.0, 0.1, 0.2, 0.3, 0.7, 0.8, 0.9, 1.0])
    spread = np.array([0.9, 0.1, 0.2, 0.3, 0.4, 0.1, 0.9, 0.3])
    # the stable half of (0, 1, 2, 3) is 1, 2; of (7, 6, 5, 4): 5 and 7, the more extreme first
    easy, hard = stable_ends(mean, spread, 2, 0.5)
    assert (easy.tolist(), hard.tolist()) == ([1, 2], [7, 5])
    # everything is stable enough: plain ends; count 3 overrides a share of 2
    assert stable_ends(mean, spread, 2, 1.0)[0].tolist() == [0, 1]
    assert stable_ends(mean, spread, 3, 0.5)[0].tolist() == [1, 2, 3]
    # of two equals the one with the smaller spread, at both ends
    easy, hard = stable_ends(np.array([0.1, 0.1, 0.9, 0.9]), np.array([0.4, 0.2, 0.4, 0.2]), 1, 1.0)
    assert (easy.tolist(), hard.tolist()) == ([1], [3])


def test_anchors_are_the_true_ends():
    anchors = choose_anchors(noisy(), AnchorSettings(count=8))
    assert anchors.easy.max() < 30 <= anchors.hard.min()
    assert np.nanmean(anchors.hardness[anchors.easy]) < 0.25
    assert np.nanmean(anchors.hardness[anchors.hard]) > 0.75
    assert anchors.agreement["kendall_w_methods"] > 0.8
    assert anchors.agreement["p_methods"] < 1e-6
    assert 0 < anchors.agreement["spread_anchors"] < 1
    assert not set(anchors.easy) & set(anchors.hard)


def test_the_whole_pool_can_be_anchors():
    anchors = choose_anchors(noisy(n=20), AnchorSettings(count=10))
    assert sorted([*anchors.easy, *anchors.hard]) == list(range(20))


def test_not_measurable_entities_are_counted_and_left_out():
    record = noisy(n=40)
    gaps = np.full((2, 40), 1.6)
    gaps[:, ::4] = 0.55
    weak = outcomes(record.loss_after, record.loss_before, gaps, noise=0.1)
    anchors = choose_anchors(weak, AnchorSettings(count=5, outcome="share-left"))
    assert anchors.agreement["not_measurable"] == 10
    assert np.isnan(anchors.hardness[::4]).all()
    assert not any(row % 4 == 0 for row in [*anchors.easy, *anchors.hard])
    assert anchors.measurable.sum() == 30


def test_too_many_anchors():
    with pytest.raises(
        UsageError, match=r"between 1 and 30 \(half of the 60 of 60 outcomes of the probe.*but got 31"
    ):
        choose_anchors(noisy(), AnchorSettings(count=31))


def test_agreement_of_methods_and_seeds():
    ranks = consensus_ranks(hardness(noisy(), "increase"))
    figures = agreement(ranks)
    assert figures["kendall_w_methods"] == pytest.approx(kendall_w((59 * ranks).round().sum(1))[0])
    assert figures["kendall_w_seeds"] == pytest.approx(np.mean([kendall_w(of)[0] for of in ranks]))
    alone = agreement(ranks[:1, :1])
    assert alone == {}


def test_methods_that_contradict_each_other_do_not_agree():
    up = np.linspace(0, 1, 50)
    ranks = np.stack([[up], [up[::-1]]])
    assert agreement(ranks)["kendall_w_methods"] == pytest.approx(0)
    assert agreement(ranks)["spearman_methods"] == pytest.approx(-1)


def test_records_survive_the_disk(tmp_path):
    anchors = choose_anchors(noisy(), AnchorSettings(count=5))
    save_record(anchors, tmp_path / "anchors")
    again = load_record(Anchors, tmp_path / "anchors")
    assert np.array_equal(again.easy, anchors.easy)
    assert dict(again.agreement) == dict(anchors.agreement)
