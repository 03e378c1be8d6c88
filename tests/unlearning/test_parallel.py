"""Tasks in processes of their own."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

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


def begin(folder, task):
    """Say who does the task; it takes minutes, and Lightning has taken over SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    (folder / f"{task}.txt").write_text(str(os.getpid()))
    time.sleep(240)


def begin_two(folder):
    parallel.cores = lambda: 2
    parallel.run_tasks(begin, folder, range(2), 2)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_processes_end_with_the_one_that_began_them(tmp_path, sent):
    command = (
        "import signal, pathlib, test_parallel; signal.signal(signal.SIGINT, signal.default_int_handler); "
        f"test_parallel.begin_two(pathlib.Path({str(tmp_path)!r}))"
    )
    paths = [str(Path(__file__).parent), str(Path(parallel.__file__).parents[3])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    main = subprocess.Popen([sys.executable, "-c", command], env=environment, stderr=subprocess.DEVNULL)
    files = [tmp_path / f"{n}.txt" for n in range(2)]
    wait_for(lambda: all(f.exists() and f.read_text() for f in files), 120)
    main.send_signal(sent)
    assert main.wait(30) != 0
    wait_for(lambda: not any(is_alive(int(f.read_text())) for f in files), 30)


def wait_for(reached, seconds):
    until = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < until
        time.sleep(0.05)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


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
