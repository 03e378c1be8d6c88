import numpy as np
import pandas as pd
import pytest

from recunlearn.studies.benchmark.collection import COLUMNS, export, tidy
from recunlearn.studies.benchmark.table import RETRAINED, contrasts, own_kinds, summary, unable


def result(method, stratum, draw, seed, ue, own=False, **figures):
    cell = {"model": "BPR", "method": method, "set": stratum, "draw": draw, "seed": seed}
    return {"cell": cell, "own_original": own, "figures": {"ue": ue, **figures}, "flags": []}


def results():
    """UE on hard sets lies 10, 12, 14 and 16 below random ones, on easy sets 1 above."""
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1)]
    made = []
    for place, (draw, seed) in enumerate(pairs):
        figures = {"share_left_median": -0.5, "ue_clipped": 90.0}
        lesser = {"share_left_median": -0.1, "ue_clipped": 80.0 + place}
        made.append(result("NPO", "random", draw, seed, 60.0 + place, **lesser))
        made.append(result("NPO", "hard", draw, seed, 50.0 - place, **figures))
        made.append(result("NPO", "easy", draw, seed, 61.0 + place, **figures))
    return made


def test_contrasts_by_hand():
    hard, easy = contrasts(tidy(results(), "toy"))
    # differences 50-60, 49-61, 48-62, 47-63: -10, -12, -14, -16, mean -13
    assert (hard.stratum, hard.pairs, hard.difference) == ("hard", 4, -13.0)
    # all four of one sign: of 2^4 = 16 sign patterns two are as extreme, p = 2/16; both tests have it
    assert hard.p == pytest.approx(0.125)
    assert hard.p_holm == pytest.approx(0.25)  # Holm over two: 2 x 0.125
    assert -16 <= hard.low < -13 < hard.high <= -10
    assert (easy.difference, easy.low, easy.high) == (1.0, 1.0, 1.0)
    assert (hard.median, hard.median_random) == (-0.5, pytest.approx(-0.1))
    assert hard.clipped == pytest.approx(8.5)  # 90 less the mean of 80, 81, 82, 83


def test_counts_are_of_those_who_are_forgotten():
    made = [result("NPO", "random", 0, 0, 60.0, forget_users=4)]
    for entities in ("users", "rows"):
        units = tidy(made, "toy", entities).set_index("metric")["unit"]
        assert units["forget_users"] == entities


def test_pairs_need_both_sides():
    made = [r for r in results() if not (r["cell"]["set"] == "random" and r["cell"]["draw"] == 1)]
    assert {c.pairs for c in contrasts(tidy(made, "toy"))} == {2}
    assert contrasts(tidy([r for r in made if r["cell"]["set"] != "random"], "toy")) == []


def test_one_pair_has_a_difference_but_no_test():
    made = [r for r in results() if (r["cell"]["draw"], r["cell"]["seed"]) == (0, 0)]
    hard, _ = contrasts(tidy(made, "toy"))
    assert hard.difference == -10
    assert np.isnan([hard.low, hard.high, hard.p, hard.p_holm]).all()


def test_means_and_deviations_by_hand():
    table = summary(tidy(results(), "toy"))
    row = table[(table["method"] == "NPO") & (table["set"] == "hard") & (table["column"] == "UE")].iloc[0]
    # 50, 49, 48, 47: mean 48.5, variance (1.5² + .5² + .5² + 1.5²) / 3 = 5 / 3
    assert (row["mean"], row["n"]) == (48.5, 4)
    assert row["sd"] == pytest.approx((5 / 3) ** 0.5)


def test_the_reference_row_is_read_once_a_cell_and_not_from_ensembles():
    made = [
        result("NPO", "hard", 0, 0, 50.0, **{"retrained/ue": 90.0}),
        result("SimNPO", "hard", 0, 0, 50.0, **{"retrained/ue": 90.0}),
        result("SISA", "hard", 0, 0, 50.0, own=True, **{"retrained/ue": 10.0}),
    ]
    table = summary(tidy(made, "toy"), own_kinds(made))
    row = table[(table["method"] == RETRAINED) & (table["column"] == "UE")].iloc[0]
    assert (row["mean"], row["n"]) == (90.0, 1)


def test_the_tidy_table_has_a_row_a_figure_and_units(tmp_path):
    lost = {"cell": {"model": "BPR", "method": "X", "set": "hard", "draw": 0, "seed": 0}, "unable": "no."}
    made = [*results(), result("NPO", "core", 0, 0, 1.0, **{"loss/original": 0.5, "cost/seconds": 2.0}), lost]
    frame = tidy(made, "toy")
    assert tuple(frame.columns) == COLUMNS
    assert len(frame) == 12 * 3 + 3
    units = frame.set_index("metric")["unit"].to_dict()
    assert (units["loss/original"], units["cost/seconds"]) == ("nats", "s")
    assert unable([*made, lost]) == [("BPR", "X", "no.")]
    csv, parquet = export(frame, tmp_path)
    pd.testing.assert_frame_equal(pd.read_csv(csv), frame)
    pd.testing.assert_frame_equal(pd.read_parquet(parquet), frame)
