"""The score table on a terminal: the predicted residual and its sentence."""

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from recunlearn.report.score_table import draw, facts, sections

FIGURES = {
    "users": 250,
    "r2": 0.412,
    "spearman": 0.678,
    "median_error": 0.357,
    "coverage": 0.896,
    "stated_coverage": 0.9,
    "reason": None,
}


def table(left):
    n = len(left)
    return pd.DataFrame(
        {
            "user_id": [f"1234{k}" for k in range(n)],
            "n_interactions": 1234,
            "cud": np.linspace(0.9, 0.1, n),
            "percentile": 100.0,
            "band": "medium",
            "cud_low": 0.1,
            "cud_high": 0.2,
            "s_easy": 0.5,
            "s_hard": 0.5,
            "is_anchor": True,
            "loss": 0.11,
            "personalisation_gap": 12.34,
            "predicted_residual": left,
        }
    )


def summary(residual):
    return {
        "dataset": "d",
        "model": "m",
        "positives": "all",
        "epochs": 1,
        "metrics": {"test": {"auc": 0.7}},
        "popularity_metrics": {"test": {}},
        "settings": {
            "circuits": {"per_user": None, "score": "eap-ig", "steps": 16},
            "anchors": {"source": "probe", "outcome": "increase"},
        },
        "traced_interactions": 10,
        "edges": 3,
        "median_completeness_gap": 0.01,
        "anchors": {"easy": 2, "hard": 2, "pool": 10.0},
        "spearman": {"loss": 0.5},
        "predicted_residual": residual,
    }


@pytest.mark.parametrize(
    ("value", "cell"), [(0.923, "92 %"), (-4.68, "-468 %"), (-0.001, "0 %"), (1.2, "120 %"), (np.nan, "")]
)
def test_left_is_in_per_cent(value, cell):
    rows = sections(table([value, 0.5]), None)[0].rows
    assert rows[0]["predicted_residual"] == cell


def test_the_line_below_says_how_good_it_was():
    line = dict(facts(summary(FIGURES)))["residual"]
    assert line == (
        "on 250 probed users, each predicted from the others: Spearman 0.68, R² 0.41, half of the errors "
        "below 36 points, 90% inside their 90% interval"
    )
    unknown = dict(facts(summary(FIGURES | {"spearman": None, "r2": None})))["residual"]
    assert "Spearman none, R² none" in unknown


def test_the_line_below_says_why_there_is_none():
    assert dict(facts(summary({"reason": "nobody was measured"})))["residual"] == "none: nobody was measured"


def test_the_widest_table_fits_80_columns():
    console = Console(file=io.StringIO(), width=80)
    draw(console, sections(table([-12.34, 0.5, np.nan]), None), facts(summary(FIGURES)))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in console.file.getvalue()
    assert "-1234 %" in console.file.getvalue()
