import math

import numpy as np
import pytest
import torch

from recunlearn.evaluation.membership import References
from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.records import Evaluation, load_record, save_record
from recunlearn.studies.evaluation import Yardstick, evaluate
from recunlearn.studies.fold_in import FoldIn, folded_in, split_history
from recunlearn.studies.measuring import Setting, distances, measure
from recunlearn.studies.references import membership_references
from recunlearn.testing.checkerboard import CheckerboardWorld
from recunlearn.testing.linear import LinearWorld

FORGET = np.arange(4, 12)


@pytest.fixture(scope="module")
def world():
    return CheckerboardWorld(family="pairwise")


@pytest.fixture(scope="module")
def references(world):
    return membership_references(world, 8)


@pytest.fixture(scope="module")
def retrained(world):
    return [world.retrain(FORGET, seed=seed) for seed in (1, 2, 3)]


@pytest.fixture(scope="module")
def yardstick(world, retrained, references):
    return Yardstick.of(world, world.model, retrained, FORGET, references=references)


@pytest.fixture(scope="module")
def untouched(world, yardstick):
    return yardstick.evaluate(world.model)


@pytest.fixture(scope="module")
def perfect(world, yardstick):
    return yardstick.evaluate(world.retrain(FORGET, seed=9), absent=True)


def test_a_model_that_was_not_touched_has_everything_left(untouched):
    assert untouched.share_left == pytest.approx(np.ones(8))
    assert untouched.figures["ue"] == pytest.approx(0)
    assert untouched.figures["set_share_left"] == pytest.approx(1)
    assert untouched.flags == ()
    for name in ("jsd", "half_jeffreys", "l2", "top10"):
        assert untouched.figures[f"residual/{name}/forget"] == pytest.approx(1)
        assert untouched.figures[f"residual/{name}/near"] == pytest.approx(1)


def test_another_retrained_model_has_forgotten(perfect):
    assert perfect.figures["ue"] > 90
    assert abs(perfect.figures["set_share_left"]) < 0.1
    assert perfect.figures["residual/jsd/forget"] < 0.05
    assert perfect.figures["retrained/ue"] > 85
    assert perfect.flags == ()


def test_one_of_the_retrained_models_is_no_distance_from_itself(world, retrained):
    setting = Setting.of(world, FORGET, FoldIn(steps=1), 0)
    one, other = (measure(setting, m, absent=True) for m in retrained[:2])
    found = distances(setting, one, [one, other], "forget")
    for values in found.values():
        assert values.shape == (2, 8)
        assert values[0] == pytest.approx(np.zeros(8), abs=1e-9)
    assert found["jsd"][1].min() > 0
    assert found["jsd"].max() <= math.log(2)


def test_losses_are_those_of_the_definition(world, retrained, untouched):
    user, item = np.nonzero(world.consumed[FORGET])
    batch = next(world.batches(FORGET, batch_size=10_000))
    stranger = world.population_rows(retrained[1], FORGET)
    with torch.no_grad():
        loss = -world.log_likelihood(stranger, batch).double().numpy()
    expected = np.bincount(user, weights=loss) / np.bincount(user)
    assert untouched.loss_retrained[1] == pytest.approx(expected, rel=1e-5)
    # a stranger's vector has no colour: log 2
    assert untouched.loss_retrained.mean() == pytest.approx(math.log(2), abs=0.05)
    assert len(item) == int(world.n_samples()[FORGET].sum())


def test_ranks_by_brute_force(world, untouched):
    scores = world.item_scores(world.model, FORGET).numpy()
    medians = []
    for row, user in enumerate(FORGET):
        ranks = [1 + (scores[row] > scores[row, i]).sum() for i in np.flatnonzero(world.consumed[user])]
        medians.append(np.median(ranks))
    assert untouched.figures["rank/original"] == np.median(medians)
    assert untouched.figures["rank/retrained"] > untouched.figures["rank/original"] + 3


def test_membership_is_read_against_retraining(untouched, perfect):
    assert untouched.figures["membership_auc/unlearned"] > 0.95
    target = perfect.figures["membership_auc/retrained"]
    assert perfect.figures["membership_auc/unlearned"] == pytest.approx(target, abs=0.15)


def test_norms_give_the_unlearned_away(untouched, perfect):
    # the retrained model's rows are a mean of many vectors and so shorter than anybody's own
    assert perfect.figures["norm_auc/unlearned"] == 1
    assert untouched.figures["norm_auc/unlearned"] == untouched.figures["norm_auc/original"] < 0.9


def test_a_wrecked_model_is_flagged_and_has_no_effectiveness(world, yardstick):
    wrecked = world.population_rows(world.model, FORGET)
    weight = wrecked.get_parameter("user_embedding.weight").data
    weight[torch.from_numpy(FORGET)] = -3 * world.model.get_parameter("user_embedding.weight").data[4:12]
    found = yardstick.evaluate(wrecked)
    assert found.figures["ue"] < 5
    assert found.figures["ue_clipped"] > 95
    assert found.figures["over_forgotten"] == 1
    assert found.flags == ("over-forgetting (loss)", "over-forgetting (membership)")
    # the row alone was changed: with a reset or fitted row everything is as before
    assert found.figures["loss/unlearned/fold_in"] == pytest.approx(found.figures["loss/original/fold_in"])
    assert found.figures["loss/unlearned/reset"] == pytest.approx(found.figures["loss/original/reset"])


def test_a_model_of_nan_is_called_diverged(world, yardstick):
    broken = world.population_rows(world.model, FORGET)
    broken.get_parameter("user_embedding.weight").data[4:12] = math.nan
    found = yardstick.evaluate(broken)
    assert found.flags[0] == "diverged"
    assert found.figures["ue"] == 0
    assert found.figures["not_measurable"] == yardstick.evaluate(world.model).figures["not_measurable"]


def test_quality_of_those_who_stay(world, untouched):
    quality = world.quality(world.model)["ndcg@10"]
    stay = np.setdiff1d(np.arange(40), FORGET)
    assert untouched.figures["ndcg@10/retain/unlearned"] == pytest.approx(np.nanmean(quality[stay]))
    groups = [untouched.figures[f"ndcg@10/activity_{g}/unlearned"] for g in ("low", "middle", "high")]
    assert untouched.figures["ndcg@10/activity_gap/unlearned"] == pytest.approx(max(groups) - min(groups))


def test_groups_are_apart(world):
    setting = Setting.of(world, FORGET, FoldIn(), 0)
    near, others = set(setting.near), set(setting.others)
    assert len(near) == len(others) == 8
    assert not near & others
    assert not (near | others) & set(FORGET)


def test_an_evaluation_survives_the_disk(untouched, tmp_path):
    save_record(untouched, tmp_path / "evaluation")
    again = load_record(Evaluation, tmp_path / "evaluation")
    assert again.figures == untouched.figures
    assert again.flags == untouched.flags
    np.testing.assert_array_equal(again.share_left_fold_in, untouched.share_left_fold_in)


def test_known_answer_retraining_the_linear_world_is_exact():
    world = LinearWorld()
    retrained = [world.retrain(FORGET, seed=seed) for seed in (1, 2, 3)]
    exact = evaluate(world, world.model, retrained[0], retrained, FORGET, absent=True)
    # users are independent: every retrained model is the same, and so is the unlearned one
    assert exact.share_left == pytest.approx(np.zeros(8))
    assert exact.figures["ue"] == pytest.approx(100)
    assert exact.figures["residual/jsd/forget"] == pytest.approx(0, abs=1e-9)
    # nobody else's vector moved and item features are fixed: nothing is left of users in shared weights
    assert np.isnan(exact.share_left_fold_in).all()
    assert "ue/fold_in" in exact.reasons
    # kinds of items that only forgotten users have: none, each kind has six users
    assert exact.figures["cold_items"] == 0


def test_cold_items_are_counted():
    world = LinearWorld()
    forget = np.flatnonzero(world.kind == 2)
    retrained = [world.retrain(forget, seed=seed) for seed in (1, 2)]
    found = evaluate(world, world.model, world.model, retrained, forget)
    assert found.figures["cold_items"] == 5
    assert "noise" in found.reasons


def test_history_is_split_within_each_user(world):
    history = split_history(world, FORGET, FoldIn(share=0.5), seed=0)
    counts = world.n_samples()[FORGET]
    fit = np.bincount(history.fit.entity.numpy(), minlength=40)[FORGET]
    assert fit.tolist() == (counts // 2).tolist()
    test = torch.cat([b.columns["item_id"] + 1000 * b.entity for b in history.test]).tolist()
    fitted = (history.fit.columns["item_id"] + 1000 * history.fit.entity).tolist()
    assert not set(test) & set(fitted)
    assert len(test) + len(fitted) == counts.sum()
    assert history.negatives is None


def test_fold_in_learns_the_colour_from_half_of_the_history(world):
    for family in ("pairwise", "pointwise", "softmax"):
        subject = world if family == "pairwise" else CheckerboardWorld(family=family)
        setting = Setting.of(subject, FORGET, FoldIn(steps=200, learning_rate=0.1, ridge=1e-4), 0)
        fitted = folded_in(subject, subject.model, FORGET, setting.history, setting.fold_in, 0)
        assert fitted is not None
        scores = subject.item_scores(fitted, FORGET).numpy()
        own = (FORGET[:, None] + np.arange(30)[None, :]) % 2 == 0
        top = np.argsort(-scores, axis=1)[:, :15]  # half of the items, as many as there are of a colour
        assert np.take_along_axis(own, top, 1).mean() > 0.85
        stranger = subject.item_scores(subject.population_rows(subject.model, FORGET), FORGET).numpy()
        before = np.argsort(-stranger, axis=1)[:, :15]
        assert np.take_along_axis(own, before, 1).mean() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("forget", "models", "words"),
    [
        ([], 2, "The forget set is empty"),
        (range(40), 2, "All users are forgotten"),
        ([1, 2], 1, "needs 2 retrained models or more to know their noise, but got 1"),
    ],
)
def test_what_cannot_be_evaluated(world, retrained, forget, models, words):
    with pytest.raises(UsageError, match=words):
        evaluate(world, world.model, world.model, retrained[:models], np.array(list(forget), dtype=int))


def test_references_are_kept_and_go_on(world, references, tmp_path, monkeypatch):
    trained = []
    retrain = CheckerboardWorld.retrain

    def counted(self, without, *, seed, progress=False):
        trained.append(seed)
        return retrain(self, without, seed=seed, progress=progress)

    def kill(what, done, total):
        if done == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(CheckerboardWorld, "retrain", counted)
    with pytest.raises(KeyboardInterrupt):
        membership_references(world, 8, folder=tmp_path, progress=kill)
    again = membership_references(world, 8, folder=tmp_path)
    assert trained == [1, 2, 3, 4, 5, 6, 7, 8]
    assert isinstance(again, References)
    np.testing.assert_array_equal(again.loss, references.loss)
    # members are known better than strangers
    assert again.loss[again.inside].mean() < again.loss[~again.inside].mean() - 0.2


@pytest.mark.parametrize("count", [6, 9])
def test_too_few_references(world, count):
    with pytest.raises(UsageError, match=f"even number of reference models, 8 or more, but got {count}"):
        membership_references(world, count)
