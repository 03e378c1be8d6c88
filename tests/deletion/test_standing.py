"""Which scores a job uses, and how they lose the deleted."""

import pandas as pd
import pytest

from recunlearn.deletion import standing
from recunlearn.deletion.policy import DriftSettings
from recunlearn.foundation.errors import UsageError
from recunlearn.studies.keys import keys_for
from recunlearn.studies.scoring import Listener

TABLE = pd.DataFrame(
    {
        "user_id": ["a", "b", "c"],
        "cud": [0.1, 0.5, 0.9],
        "band": ["easy", "medium", "hard"],
        "predicted_residual": [0.25, float("nan"), 0.75],
    }
)


@pytest.fixture
def asked(shop):
    """Ask for the scores of users after some drift."""
    standing._keep(TABLE, standing.scores_file("shop", "BPR"))
    model = standing.Standing(keys_for(shop.settings), None)

    def call(*users, since, needed=False):
        drift = {"since_training": 0.0, "since_scores": since, "deleted": 0.0}
        limits = DriftSettings(rescore=0.1)
        return standing.scores_for(model, users, drift, limits, Listener(), needed=needed)

    return call


def test_scores_are_reused_until_the_drift_passes_its_limit(asked):
    found, source = asked("a", "b", "x", since=0.1)
    assert source == "reused"
    assert found == {
        "a": standing.UserScore(0.1, "easy", 0.25),
        "b": standing.UserScore(0.5, "medium", None),
    }
    assert asked("a", since=0.11) == ({}, "none")


def test_scores_that_are_needed_are_made_anew(asked, monkeypatch):
    class Made:
        table = TABLE.assign(cud=[0.3, 0.3, 0.3])

    monkeypatch.setattr(standing, "scored_users", lambda *_args, **_options: Made())
    found, source = asked("a", since=0.11, needed=True)
    assert (found["a"].cud, source) == (0.3, "computed")
    # and are the ones that are reused from then on
    assert asked("a", since=0.05)[0]["a"].cud == 0.3


def test_data_that_cannot_be_scored_are_planned_without(asked, monkeypatch):
    def refuse(*_args, **_options):
        raise UsageError("too few users")

    monkeypatch.setattr(standing, "scored_users", refuse)
    assert asked("a", since=0.0, needed=True) == ({}, "none")


def test_the_deleted_leave_the_scores_that_are_kept(asked):
    standing.drop_scores_of("shop", "BPR", ["a"])
    assert list(pd.read_parquet(standing.scores_file("shop", "BPR"))["user_id"]) == ["b", "c"]
    assert asked("a", "c", since=0.05)[0].keys() == {"c"}


def test_the_last_job_is_gone_on_from_whatever_model_it_had(shop):
    from recunlearn.deletion import states
    from recunlearn.deletion.ledger import Ledger
    from recunlearn.deletion.request import Request

    made = keys_for(shop.settings).model
    other = shop.settings.model_copy(update={"model": "LightGCN"})
    with Ledger(Ledger.default_path(), shop.keys) as ledger:
        with pytest.raises(UsageError, match="There is no trained LightGCN of 'shop'"):
            standing.standing_model(ledger, other, None)
        ledger.receive("shop", [Request("R-1", "a")])
        job = ledger.begin("shop", ["R-1"], {})
        for state in (states.UNLEARNED, states.VERIFIED, states.PURGED):
            job = ledger.advance(job, state, {"after": {"model": "BPR", "folder": str(made)}})
        ledger.close("R-1", "x")
        ledger.finish(job, job.facts)
        found = standing.standing_model(ledger, other, None)
    assert (found.checkpoint, found.keys.settings.model) == (made, "BPR")
