"""The policy's file, and which method a job gets."""

from pathlib import Path

import pytest

from recunlearn.deletion.acceptance import violations
from recunlearn.deletion.drift import advice, drift_after
from recunlearn.deletion.plan import choose, mean_residual
from recunlearn.deletion.policy import DriftSettings, LimitSettings, Policy, read_policy
from recunlearn.deletion.standing import UserScore
from recunlearn.foundation.errors import UsageError

EASY, HARD = UserScore(0.2, "easy", None), UserScore(0.9, "hard", None)
SURE, DOUBTFUL = UserScore(0.9, "hard", 0.1), UserScore(0.1, "easy", 0.8)


def test_the_file_in_configs_writes_out_the_defaults():
    assert read_policy(Path(__file__).parents[2] / "configs" / "policy.toml") == Policy() == read_policy()


WRONG = {
    '[plan]\neasy = "SimNPOO"\n': "Unknown unlearning method 'SimNPOO'. Did you mean SimNPO",
    "[plan]\neasi = 1\n": "Unknown setting 'plan.easi' in .*Did you mean easy",
    "[limits]\nshare_left = -1\n": "'limits.share_left' in .* but got -1",
    "[methods.SimNPO]\nbetta = 1\n": "Unknown setting 'betta' in .*methods.SimNPO.* Did you mean beta",
    "[methods]\nSimNPO = 1\n": "methods.SimNPO",
    "[drift\n": "is not valid TOML",
    '[plan]\neasy = "SISA"\n': "SISA forgets from several models at once",
}


@pytest.mark.parametrize("text", WRONG)
def test_mistakes_in_a_policy_get_a_sentence(tmp_path, text):
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(UsageError, match=WRONG[text]):
        read_policy(tmp_path / "p.toml")


def chosen(scores, *, users=None, population=1000, named=None, partial=False, trained=5, bound=True):
    names = users or [f"u{n}" for n in range(len(scores))]
    known = dict(zip(names, scores, strict=False))
    return choose(
        names,
        known,
        Policy(),
        partial=partial,
        trained=trained,
        population=population,
        bound=bound,
        named=named,
    )


def test_easy_users_get_the_cheap_method_and_then_retraining():
    assert chosen([EASY, EASY]) == (("SimNPO", "retrain"), "nobody is hard")


def test_the_predicted_residual_outweighs_the_band():
    assert chosen([SURE])[0][0] == "SimNPO"
    assert chosen([SURE, DOUBTFUL]) == (("retrain",), "1 of 2 users are hard")
    assert mean_residual({"a": SURE, "b": DOUBTFUL, "c": EASY}) == pytest.approx(0.45)  # (0.1 + 0.8) / 2
    assert mean_residual({"c": EASY}) is None


def test_hard_many_unscored_and_partial_requests_are_retrained():
    assert chosen([EASY, HARD]) == (("retrain",), "1 of 2 users are hard")
    assert chosen([EASY] * 10) == (("retrain",), "10 of 1000 users are many")  # 1 % of 1000
    assert chosen([EASY] * 9)[0][0] == "SimNPO"
    assert chosen([EASY], population=20)[0][0] == "SimNPO"  # one user is never many
    assert chosen([EASY], users=["a", "b"]) == (("retrain",), "1 of 2 users have no score")
    assert chosen([EASY], partial=True)[0] == ("retrain",)


def test_without_a_bound_nothing_but_retraining_is_certain():
    assert chosen([EASY], bound=False)[0] == ("retrain",)
    assert chosen([EASY], bound=False, named="NPO")[0] == ("retrain",)


def test_a_named_method_goes_first_and_what_was_never_trained_on_needs_none():
    assert chosen([HARD], named="NPO")[0] == ("NPO", "retrain")
    assert chosen([HARD], named="retrain")[0] == ("retrain",)
    assert chosen([HARD], named="NPO", trained=0)[0] == ("none",)


FINE = {"share_left": 0.1, "quality_drop": 0.01, "loss_rise": 0.0, "loss/others/after": 0.2}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, []),
        ({"share_left": 0.26}, ["share left 0.26 above 0.25"]),
        ({"share_left": -0.51}, ["over-forgotten: share left -0.51 below -0.5"]),
        ({"quality_drop": 0.04}, ["quality_drop 0.0400 above 0.03"]),
        ({"loss_rise": 0.06}, ["loss_rise 0.0600 above 0.05"]),
    ],
)
def test_limits(change, found):
    assert violations({**FINE, **change}, LimitSettings(), exact=False) == found
    assert violations({**FINE, **change}, LimitSettings(), exact=True) == []


def test_what_cannot_be_measured_is_not_accepted():
    assert violations({}, LimitSettings(), exact=True) == ["the loss of the others is no finite number"]
    unknown = {k: v for k, v in FINE.items() if k != "share_left"}
    assert violations(unknown, LimitSettings(), exact=False) == [
        "no bound tells whether the users are forgotten"
    ]


def test_drift_adds_up_until_a_training_begins_anew():
    before = {"since_training": 0.125, "since_scores": 0.25, "deleted": 0.5}
    assert drift_after(before, "NPO", "reused", 0.125, 0.25) == {
        "since_training": 0.25,
        "since_scores": 0.375,
        "deleted": 0.75,
    }
    # scores of the model before: only this step lies between; a retrained model is where it all begins
    assert drift_after(before, "retrain", "computed", 0.125, 0.25) == {
        "since_training": 0.0,
        "since_scores": 0.125,
        "deleted": 0.0,
    }


def test_a_retrain_is_advised_when_a_limit_is_passed():
    limits = DriftSettings(retrain=0.2, deleted=0.05)
    assert advice({"since_training": 0.2, "deleted": 0.05}, limits) == ""
    assert "drift 0.201 above 0.2 since" in advice({"since_training": 0.201, "deleted": 0.0}, limits)
    assert "6.0% of the interactions deleted, above 5.0% since" in advice(
        {"since_training": 0.0, "deleted": 0.06}, limits
    )
