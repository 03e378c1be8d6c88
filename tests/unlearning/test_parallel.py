"""Tasks in processes of their own."""

import os
import pickle
import signal

import pytest

from recunlearn.foundation.errors import RecunlearnError, UsageError
from recunlearn.unlearning.shards import parallel


def note(folder, task):
    """Write one line a call; task 1 is killed the first time."""
    with (folder / f"{task}.txt").open("a") as file:
        file.write(f"{os.getpid()}\n")
    if task == 1 and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def refuse(folder, task):
    raise UsageError(f"No task {task}.")


def fall(folder, task):
    os.kill(os.getpid(), signal.SIGKILL)


def test_one_process_is_this_one(tmp_path):
    (tmp_path / "killed").touch()
    told = []
    parallel.run_tasks(note, tmp_path, [2, 0, 1], 1, told.append)
    assert told == [2, 0, 1]
    assert {(tmp_path / f"{n}.txt").read_text() for n in range(3)} == {f"{os.getpid()}\n"}


def test_no_more_processes_than_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "cores", lambda: 1)
    (tmp_path / "killed").touch()
    parallel.run_tasks(note, tmp_path, [0, 1], 8)
    assert (tmp_path / "1.txt").read_text() == f"{os.getpid()}\n"


def test_killed_process_is_replaced_and_the_others_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "cores", lambda: 2)
    told = []
    parallel.run_tasks(note, tmp_path, range(4), 2, told.append)
    runs = {n: (tmp_path / f"{n}.txt").read_text().split() for n in range(4)}
    assert sorted(told) == [0, 1, 2, 3]
    assert {n: len(who) for n, who in runs.items()} == {0: 1, 1: 2, 2: 1, 3: 1}
    assert str(os.getpid()) not in {who for lines in runs.values() for who in lines}
    # Task 1 killed its process, so the second try is another one's.
    assert runs[1][0] != runs[1][1]


def test_a_task_that_always_dies_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "cores", lambda: 2)
    monkeypatch.setattr(parallel, "TRIES", 1)
    with pytest.raises(RecunlearnError, match=r"ended 1 times over the same task .killed by SIGKILL"):
        parallel.run_tasks(fall, tmp_path, range(2), 2)


class Line:
    """The end of a pipe that sends one task and then breaks."""

    def __init__(self):
        self.tasks, self.answers = [0], []

    def recv(self):
        if not self.tasks:
            raise EOFError
        return self.tasks.pop()

    def send(self, answer):
        self.answers.append(pickle.loads(pickle.dumps(answer)))


def test_refusals_are_sent_as_they_are_and_anything_else_as_a_sentence(monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    line = Line()
    parallel._serve(line, refuse, None)
    assert [(type(a), str(a)) for a in line.answers] == [(UsageError, "No task 0.")]
    line = Line()
    parallel._serve(line, lambda *_: 1 // 0, None)
    assert [str(a) for a in line.answers] == [
        "A process failed (ZeroDivisionError: integer division or modulo by zero)."
    ]
