import re

import pytest

from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.settings import make_settings
from recunlearn.studies.benchmark.plan import Cell, Plan, check_names
from recunlearn.studies.benchmark.settings import BenchmarkSettings
from recunlearn.unlearning.registry import known


def settings(**values):
    return make_settings(BenchmarkSettings, values, "my.toml")


def grid(**values):
    return {"models": ["BPR"], "methods": ["NPO"], "sets": ["hard", "random"], **values}


def test_cells_are_the_product_and_each_is_there_once(tmp_path):
    # 2 methods x 2 sets x 2 draws x 3 seeds = 24; the second block adds SISA on hard-0 with one seed: 25
    blocks = [
        grid(methods=["NPO", "retrain"], draws=2, seeds=3),
        grid(methods=["NPO", "SISA"], sets=["hard"]),
    ]
    plan = Plan(settings(seed=5, grid=blocks), tmp_path)
    assert len(plan.cells) == len(set(plan.cells)) == 25
    assert {c.seed for c in plan.cells} == {5, 6, 7}
    assert [c for c in plan.cells if c.method == "SISA"] == [Cell("BPR", "SISA", "hard", 0, 5)]
    assert plan.draws("BPR") == 2


def test_no_method_named_is_every_method(tmp_path):
    plan = Plan(settings(grid=[grid(methods=[])]), tmp_path)
    assert set(plan.methods) == set(known())


def test_tasks_make_what_cells_need_and_cells_come_last(tmp_path):
    plan = Plan(settings(references=2, grid=[grid(methods=["NPO", "SISA"], seeds=2)]), tmp_path)
    tasks = plan.tasks()
    kinds = [t.kind for t in tasks]
    assert kinds.index("cells") == len(kinds) - kinds.count("cells")
    # hard-0, random-0 and the tuning set, 2 references each, and as many of SISA's own on the first two
    assert sum(t.kind == "reference" and not t.method for t in tasks) == 6
    assert sum(t.kind == "reference" and t.method == "SISA" for t in tasks) == 4
    assert not any(t.method == "NPO" and t.kind in ("own", "reference") for t in tasks)
    assert {c for t in tasks for c in t.cells} == set(plan.cells)


def test_results_of_different_settings_have_different_files(tmp_path):
    one, other = (Plan(settings(trials=n, grid=[grid()]), tmp_path) for n in (2, 3))
    assert not {one.path(c) for c in one.cells} & {other.path(c) for c in other.cells}
    assert len({one.path(c) for c in one.cells}) == len(one.cells)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"grid": [grid(models=["NeuMFF"])]}, "Did you mean NeuMF?"),
        ({"grid": [grid(methods=["NPOO"])]}, "Did you mean NPO?"),
        ({"grid": [grid(sets=["hrad"])]}, "Did you mean hard?"),
        ({"grid": [grid()], "methods": {"NPO": {"betta": 1}}}, "Did you mean beta?"),
        ({"grid": [grid()], "methods": {"NBO": {}}}, "Did you mean NPO?"),
        ({"grid": [grid()], "models": {"NeuMF": {}}}, "[models.NeuMF] of my.toml is of no model"),
        ({"grid": [grid()], "methods": {"NPO": {"steps": 5}}}, "steps in [methods.NPO] of my.toml is tuned"),
        ({"grid": [grid()], "fraction": 1e-5}, "means sets of 0 of 943 users"),
        ({"grid": [grid()], "fraction": 0.7}, "means sets of 660 of 943 users"),
        ({"grid": [grid()], "dataset": "ml-100"}, "Did you mean ml-100k?"),
    ],
)
def test_unknown_names_are_refused(values, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        check_names(settings(**values), "my.toml")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"grid": []}, "grid"),
        ({"grid": [grid(sets=[])]}, "sets"),
        ({"grid": [grid(methods=["NPO", "NPO"])]}, "Name each once"),
        ({"membership": 7}, "even number of 8 or more"),
        ({"referenecs": 3}, "Did you mean references?"),
        ({"fraction": 0}, "greater than 0"),
        ({"models": {"BPR": {"epocs": 1}}}, "Did you mean epochs?"),
        ({"grid": [{"mehtods": ["NPO"]}]}, "Did you mean methods?"),
    ],
)
def test_settings_that_mean_nothing_are_refused(values, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        settings(**values)
