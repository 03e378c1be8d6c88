"""Columns of the predicted residual beside a score table: names, order, reasons, warnings."""

import numpy as np
import pandas as pd
import pytest

from recunlearn.foundation.records import Circuits, Outcomes
from recunlearn.foundation.words import Words
from recunlearn.studies.residual import NO_OUTCOMES, residual_columns

USERS, METHODS = 120, ("GradDiff", "NPO")
NAMES = ["predicted_residual", "residual_low", "residual_high"]
NAMES += ["predicted_residual_GradDiff", "predicted_residual_NPO"]


def records(probed=60, signal=1.0):
    """Circuits and a table of 120 users, the last without interactions; outcomes of the first ones."""
    rng = np.random.default_rng(0)
    ids = np.array([f"u{k}" for k in range(USERS)])
    values = rng.normal(size=(USERS, 10)).astype(np.float32)
    values[-1] = np.nan
    circuits = Circuits(ids, tuple(map(str, range(10))), values, np.zeros(USERS), np.full(USERS, 4))
    # loss before 0, retrained 1: the share left is 1 - loss after
    after = 1 + signal * values[:probed, 0] + 0.1 * rng.normal(size=(2, 1, probed))
    ones = np.ones(probed)
    outcomes = Outcomes(ids[:probed], METHODS, (0,), 0 * ones, after, np.stack([ones, ones]), ones)
    loss = rng.random(USERS)
    loss[-1] = np.nan
    table = pd.DataFrame(
        {"n_interactions": rng.integers(1, 50, USERS), "mean_item_popularity": rng.random(USERS)}
    ).assign(loss=loss, personalisation_gap=np.nan)
    return circuits, outcomes, table


@pytest.fixture
def told():
    return []


def test_columns_follow_the_users_and_the_facts_the_columns(told):
    circuits, outcomes, table = records()
    columns, facts = residual_columns(circuits, outcomes, table, METHODS, told.append)
    assert list(columns.columns) == NAMES
    known = columns.iloc[:-1]
    assert known.notna().all(axis=None)
    assert columns.iloc[-1].isna().all()
    truth = -circuits.values[60:-1, 0]
    assert np.corrcoef(known["predicted_residual"][60:], truth)[0, 1] > 0.9
    assert (known["residual_low"] <= known["residual_high"]).all()
    assert facts["users"] == 60
    assert facts["reason"] is None
    assert facts["spearman"] > 0.9
    assert facts["methods"]["NPO"].keys() == {"r2", "spearman", "median_error", "coverage"}
    assert told == []


def test_bilevel_anchors_leave_the_columns_empty_and_say_why(told):
    circuits, _, table = records()
    columns, facts = residual_columns(circuits, None, table, METHODS, told.append)
    assert list(columns.columns) == NAMES
    assert columns.isna().all(axis=None)
    assert facts == {"reason": NO_OUTCOMES}
    assert told == []


def test_too_few_measurable_users_are_told_once(told):
    circuits, outcomes, table = records(probed=20)
    columns, facts = residual_columns(circuits, outcomes, table, METHODS, told.append)
    assert columns.isna().all(axis=None)
    assert facts["users"] == 20
    assert facts["reason"] == "20 outcomes could be measured, and 30 are needed"
    assert len(told) == 1
    assert told[0].startswith("Warning: predicted_residual is empty: 20 outcomes could be measured")
    assert told[0].endswith("so that it knows its users better than strangers.")


def test_rows_are_not_called_users(told):
    rows = Words("row", "rows", "answers")
    residual_columns(*records(signal=0.0), METHODS, told.append, words=rows)
    residual_columns(*records(probed=20), METHODS, told.append, words=rows)
    assert "what unlearning left of probed rows" in told[0]
    assert "knows its rows better" in told[1]
    assert "user" not in "".join(told)


def test_a_weak_prediction_is_told(told):
    _, facts = residual_columns(*records(signal=0.0), METHODS, told.append)
    assert facts["spearman"] is None or facts["spearman"] < 0.5
    assert len(told) == 1
    assert told[0].startswith("Warning: predicted_residual is weak for this model")
    assert told[0].endswith("Go by its interval.")
