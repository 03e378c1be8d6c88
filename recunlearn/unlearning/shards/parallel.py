"""Tasks in processes of their own: spawned, one thread each, a killed one's task is done again."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from recunlearn.foundation.errors import RecunlearnError

Job = Callable[[Any, Any], None]
"""Called with what all tasks share and one task; a function of a module, so that it can be sent."""
TRIES = 3
_GONE = (EOFError, OSError)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_tasks(
    job: Job, shared: Any, tasks: Iterable[Any], processes: int, told: Callable[[Any], None] | None = None
) -> None:
    """Do all tasks, in at most ``processes`` processes; 1: in this one.

    Args:
        job: leaves its result somewhere that outlives its process, such as a file.
        shared: sent once to each process.
        tasks: in the order in which they are begun.
        processes: at most as many as there are cores are started.
        told: called with each task that is done.

    Raises:
        RecunlearnError: a task failed, or ended its process :data:`TRIES` times.
    """
    waiting = deque(tasks)
    most = min(processes, len(waiting), cores())
    if most <= 1:
        for task in waiting:
            job(shared, task)
            _tell(told, task)
        return
    _Crew(job, shared, waiting, told).work(most)


def _tell(told: Callable[[Any], None] | None, task: Any) -> None:
    if told is not None:
        told(task)


@dataclass
class _Worker:
    process: Any
    line: Connection
    task: Any = None


class _Crew:
    """Processes and the tasks that are left."""

    def __init__(
        self, job: Job, shared: Any, waiting: deque[Any], told: Callable[[Any], None] | None
    ) -> None:
        self.job, self.shared, self.waiting, self.told = job, shared, waiting, told
        self.context = multiprocessing.get_context("spawn")
        self.workers: list[_Worker] = []
        self.deaths: dict[Any, int] = {}

    def work(self, most: int) -> None:
        """Do everything that waits."""
        try:
            self.workers = [self._start() for _ in range(most)]
            while busy := [w for w in self.workers if w.task is not None]:
                for line in wait([w.line for w in busy]):
                    self._hear(next(w for w in busy if w.line is line))
        finally:
            for worker in self.workers:
                worker.line.close()
                # Not terminate(): Lightning takes SIGTERM as a wish to stop after the batch.
                worker.process.kill()
                worker.process.join()

    def _start(self) -> _Worker:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(theirs, self.job, self.shared), daemon=True)
        process.start()
        theirs.close()
        worker = _Worker(process, ours)
        self._give(worker)
        return worker

    def _give(self, worker: _Worker) -> None:
        worker.task = self.waiting.popleft() if self.waiting else None
        if worker.task is not None:
            try:
                worker.line.send(worker.task)
            except _GONE:
                self._replace(worker)

    def _hear(self, worker: _Worker) -> None:
        try:
            problem = worker.line.recv()
        except _GONE:
            self._replace(worker)
            return
        if problem is not None:
            raise problem
        _tell(self.told, worker.task)
        self._give(worker)

    def _replace(self, worker: _Worker) -> None:
        """Begin a dead process's task again in a new one; the other processes go on."""
        worker.process.join()
        worker.line.close()
        task, code = worker.task, worker.process.exitcode
        self.deaths[task] = self.deaths.get(task, 0) + 1
        if self.deaths[task] >= TRIES:
            raise RecunlearnError(
                f"A process ended {TRIES} times over the same task ({_end(code)}). Free memory, or use "
                "one process (--jobs 1, or processes = 1), and run again: what is done is kept. (A script of "
                "your own that starts processes needs the line: if __name__ == '__main__'.)"
            )
        self.waiting.appendleft(task)
        self.workers[self.workers.index(worker)] = self._start()


def _end(code: int | None) -> str:
    return f"killed by {signal.Signals(-code).name}" if code and code < 0 else f"exit code {code}"


def _end_with_parent() -> None:
    """End with the process that gives the tasks, however it ended: its next run does them again."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _serve(line: Connection, job: Job, shared: Any) -> None:
    """Life of a process: do tasks until nobody is left to send any."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    while True:
        try:
            task = line.recv()
        except _GONE:
            return
        try:
            job(shared, task)
            line.send(None)
        except RecunlearnError as error:
            line.send(error)
        except Exception as error:
            line.send(RecunlearnError(f"A process failed ({type(error).__name__}: {error})."))
