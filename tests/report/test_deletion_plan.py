"""The plan of a deletion on the terminal."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from recunlearn.report.deletion_table import draw_plan


@pytest.mark.parametrize(
    ("users", "rows", "cold", "said"),
    [
        (1, 1, 1, ("1 user, 1 interaction (1 of", "1 item that nobody has afterwards, no longer ranked")),
        (3, 1161, 30, ("3 users, 1,161 interactions (1 of", "30 items that nobody has")),
    ],
)
def test_one_is_no_plural(users, rows, cold, said):
    plan = SimpleNamespace(
        users=users, interactions=rows, trained=1, cold_items=cold, methods=["retrain"], reason="few",
        cost="", seconds=None, retrain_seconds=None, risk="None",
    )  # fmt: skip
    console = Console(file=io.StringIO(), width=200)
    draw_plan(console, plan)
    assert all(part in console.file.getvalue() for part in said)
