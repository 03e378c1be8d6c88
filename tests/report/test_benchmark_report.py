import io
import re
import threading
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console

from recunlearn.foundation.store import write_json
from recunlearn.report import benchmark_live
from recunlearn.report.benchmark_figures import (
    _draw_by_set,
    _draw_trade_off,
    by_set,
    costs,
    figures,
    trade_off,
)
from recunlearn.report.benchmark_html import headlines, html
from recunlearn.report.benchmark_live import drawn
from recunlearn.report.benchmark_table import Told, draw, grids, markdown, page
from recunlearn.studies.benchmark.board import Board
from recunlearn.studies.benchmark.budget import Budget
from recunlearn.studies.benchmark.collection import tidy
from recunlearn.studies.benchmark.plan import Plan, as_plain
from recunlearn.studies.benchmark.settings import BenchmarkSettings, Grid
from recunlearn.studies.benchmark.table import ORIGINAL, RETRAINED, contrasts, summary

UE = {("NPO", "random"): 60.0, ("NPO", "hard"): 50.0, ("SISA", "random"): 80.0, ("SISA", "hard"): 84.0}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    results = [
        {
            "cell": {"model": "BPR", "method": method, "set": stratum, "draw": 0, "seed": seed},
            "figures": {
                "ue": ue + seed,
                "ue_clipped": ue / 2,
                "retrained/ue": 90.0,
                "ndcg@10/retain/unlearned": 0.2,
                "ndcg@10/retain/original": 0.3,
                "ndcg@10/retain/retrained": 0.29,
                "cost/seconds": 1.0,
                "cost/of_retraining": 0.1 if method == "NPO" else 2.0,
                "share_left_median": -0.1234 + rng.normal(0, 1e-6),
            },
        }
        for (method, stratum), ue in UE.items()
        for seed in (0, 2)
    ]
    return tidy(results, "toy")


@pytest.fixture(scope="module")
def told(frame):
    budgets = {("BPR", "NPO"): Budget(0.001, 12, 0.5, 0.9, True, gamma=0.25), ("BPR", "SISA"): Budget()}
    facts = {"command": "python cli.py benchmark <&>"}
    lost = [("BPR", "Odd", "Odd cannot | do this.")]
    flags = {("BPR", "NPO"): {"over-forgetting (loss)": 2}}
    return Told(summary(frame), contrasts(frame), budgets, lost, flags, facts)


def test_tables_hold_the_figures(told):
    by_title = {grid.title: grid for grid in grids(told)}
    # 60 and 62 over two seeds: mean 61, sd √2 = 1.4
    assert ("NPO", "61.0 ± 1.4", "51.0 ± 1.4") in by_title["BPR: UE by forget set"].rows
    against = by_title["BPR: UE on hard and easy sets minus random ones"].rows
    assert against[0][:3] == ("NPO", "hard", "−10.0")
    assert against[1][:3] == ("SISA", "hard", "+4.0")
    # clipped UE is 25 on hard sets and 30 on random ones
    assert against[0][7:] == ("−5.0", "−14.1", "−0.12", "−0.12")
    budgets = next(g for title, g in by_title.items() if title.startswith("Budgets"))
    assert budgets.rows == (("BPR", "NPO", "0.001", "0.25", "12", "yes", "0", "0"),)
    assert by_title["Not done"].rows == (("BPR", "Odd", "Odd cannot | do this."),)


def test_markdown_keeps_its_columns(told):
    for grid in grids(told):
        lines = [line for line in markdown(grid).splitlines() if line.startswith("|")]
        assert {line.replace("\\|", "").count("|") for line in lines} == {len(grid.head) + 1}
    assert page(told).startswith("# Benchmark\n- command: python cli.py benchmark")


def test_the_terminal_fits_80_columns(told):
    console = Console(width=80, record=True, file=io.StringIO())
    draw(console, told, "/there")
    text = console.export_text()
    assert re.search(r"^NPO +hard +−10\.0 +−10\.0 to −10\.0 ", text, flags=re.M)
    assert max(map(len, text.splitlines())) <= 80
    assert "± 1.4" in text  # of the narrow table
    narrow = Console(width=40, record=True, file=io.StringIO())
    draw(narrow, told, "/there")
    assert "±" not in narrow.export_text()
    assert text.rstrip().endswith("Saved in /there")


def test_points_of_the_figures(frame):
    table = summary(frame)
    points = trade_off(table, "BPR")
    assert points.names == ("NPO", "SISA", RETRAINED)
    assert points.x == (56.0, 83.0, 90.0)  # (61 + 51) / 2, (81 + 85) / 2
    assert points.y == (0.2, 0.2, 0.29)
    assert points.lines == {ORIGINAL: 0.3, RETRAINED: 0.29}
    sets = by_set(table, "BPR")
    assert list(sets) == ["random", "hard"]
    assert sets["hard"].y[:2] == (51.0, 85.0)
    assert dict(zip(costs(table, "BPR").names, costs(table, "BPR").x, strict=True)) == {
        "NPO": 0.1,
        "SISA": 2.0,
    }


def test_both_figures_of_ue_say_what_100_is(frame):
    table = summary(frame)
    by_sets, against = Figure().subplots(2)
    _draw_by_set(by_sets, by_set(table, "BPR"), "")
    _draw_trade_off(against, trade_off(table, "BPR"), "NDCG@10")
    assert by_sets.get_ylabel() == against.get_xlabel() == "UE (100: as forgotten as by retraining)"


def test_a_benchmark_in_which_no_ue_could_be_measured_has_its_report(frame, told):
    """So small a forget set, or so weak a model, that retraining changes nothing: results are not lost."""
    for kept, count in (("cost|ndcg", 3), ("cost", 3), ("nothing", 0)):
        some = summary(frame[frame["metric"].str.match(kept)])
        assert len(figures(some)) == count
        bare = replace(told, summary=some, contrasts=[])
        assert page(bare).startswith("# Benchmark")
        assert "<html" in html(bare, figures(some))


def test_figures_are_drawn_and_the_page_holds_them(told):
    images = figures(told.summary)
    assert set(images) == {"trade-off", "by-set", "cost"}
    for png in images.values():
        image = np.asarray(Image.open(io.BytesIO(png)).convert("L"))
        assert image.shape[1] > 600
        assert (image < 128).mean() > 0.001  # something is drawn
    text = html(told, images)
    assert text.count("<img") == 3
    assert "bars one standard deviation over draws and seeds: 100 is as forgotten as by retraining" in text
    assert "benchmark &lt;&amp;&gt;" in text
    assert all(grid.title in text.replace("&amp;", "&") for grid in grids(told))


def test_headlines_name_the_ends(told):
    (hard,) = headlines(told)
    assert "−10.0 (NPO) to +4.0 (SISA)" in hard
    assert "0 of 2 methods differ at 5\N{NO-BREAK SPACE}% after" in hard
    # clipped UE is 25 against 30 for NPO, 42 against 40 for SISA
    assert "as in the paper, it is −5.0 to +2.0; there −14.1" in hard


def test_without_a_terminal_there_is_a_line_where_something_changed(tmp_path, monkeypatch, capsys):
    grid = Grid(models=("BPR",), methods=("NPO",), sets=("hard", "random"))
    plan = Plan(BenchmarkSettings(grid=(grid,)), tmp_path)
    first = plan.cells[0]
    looked = threading.Event()
    monkeypatch.setattr(benchmark_live, "LINE_SECONDS", 0.01)
    board = Board(plan, 2, [])
    with benchmark_live.live(board):
        write_json(plan.path(first), {"cell": as_plain(first), "seconds": 8.0})
        monkeypatch.setattr(board, "remaining", lambda: looked.set() or 4.0)
        assert looked.wait(30)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "0 of 2 cells done, remaining time known after the first ones."
    assert lines[-1] == "1 of 2 cells done, about 4 s left."
    assert len(lines) == 2


def test_the_board_counts_cells_and_tells_the_time_left(tmp_path):
    grid = Grid(models=("BPR",), methods=("NPO", "SISA"), sets=("hard", "random"))
    plan = Plan(BenchmarkSettings(grid=(grid,)), tmp_path)
    tasks = plan.tasks()
    board = Board(plan, 2, [t for t in tasks if t.kind != "cells"])
    assert board.remaining() is None
    for task in tasks:
        board.told(task)
    assert board.remaining() is None  # nothing is known about cells yet
    first = next(c for c in plan.cells if c.method == "NPO")
    write_json(plan.path(first), {"cell": as_plain(first), "seconds": 8.0, "unable": "no"})
    plan.path(plan.cells[-1]).write_text("half a fi")
    board.look()
    assert board.remaining() == pytest.approx(3 * 8.0 / 2)  # three cells, two processes
    assert list(board.rows()) == [("BPR", "NPO", 1, 2, 8.0, 1), ("BPR", "SISA", 0, 2, None, 0)]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(drawn(board))
    text = console.export_text()
    assert "1/2" in text
    assert "1 of 4 cells done, about 12 s left." in text
