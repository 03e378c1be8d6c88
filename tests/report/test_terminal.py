"""Progress in a file or a pipe: now and then a line, and nothing of a stage that is short."""

import pytest

from recunlearn.report import terminal


def test_a_long_stage_has_a_line_a_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 30.0, 61.0, 100.0, 150.0])
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(clock))
    with terminal.listening() as listener:
        advance = listener.stage("Unlearning", 5)
        for _ in range(4):
            advance(1)
    assert capsys.readouterr().err == "Unlearning: 2 of 5 after 1 min.\nUnlearning: 4 of 5 after 2 min.\n"


def test_a_short_stage_and_one_of_unknown_length_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.listening() as listener:
        listener.stage("Tracing", 2)(1)
        listener.stage("Reading", None)(1)
        listener.say("Warning: look")
    assert capsys.readouterr().err == "Warning: look\n"
