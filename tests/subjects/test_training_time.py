"""The line that says how long a training will take."""

from types import SimpleNamespace

import pytest

from recunlearn.subjects.progress import Bar


@pytest.mark.parametrize(
    ("most", "done", "said"),
    [
        (30, 0, "about 60 s for 30 epochs;"),  # 2 s x 30
        (30, 9, "about 42 s for 21 more epochs;"),  # 2 s x (30 - 9)
        (30, 29, "about 2 s for 1 more epoch;"),
    ],
)
def test_epochs_that_are_done_are_told_from_those_that_follow(most, done, said, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    bar = Bar("Training", most, SimpleNamespace(epoch=done, best=None, history=[]))
    bar._announce(2.0)
    assert said in capsys.readouterr().err
