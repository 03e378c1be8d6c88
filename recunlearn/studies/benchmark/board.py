"""How far a benchmark is: finished cells as they lie in its folder, and the time that is left."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recunlearn.studies.benchmark.cells import read_result
from recunlearn.studies.benchmark.plan import Cell, Plan, Task


@dataclass
class Board:
    """Progress of a run; looking at it reads the files that are new.

    Args:
        plan: of the run.
        jobs: processes that work on it.
        waiting: tasks before the cells that are not done.
        began: when the run began.
    """

    plan: Plan
    jobs: int
    waiting: list[Task]
    began: float = field(default_factory=time.perf_counter)
    prepared: int = 0
    prepared_at: float = 0.0
    found: dict[Cell, dict[str, Any]] = field(default_factory=dict)

    def told(self, task: Task) -> None:
        """Note that a task is done."""
        if task in self.waiting:
            self.waiting.remove(task)
            self.prepared += 1
            self.prepared_at = time.perf_counter()

    def look(self) -> None:
        """Read what is new."""
        for cell in self.plan.cells:
            if cell not in self.found and self.plan.path(cell).is_file():
                result = read_result(self.plan, cell)
                if result is not None:
                    self.found[cell] = result

    def rows(self) -> Iterator[tuple[str, str, int, int, float | None, int]]:
        """Model, method, cells done, all cells, mean seconds of a cell, cells the method is unable for."""
        for model in self.plan.models:
            for method in dict.fromkeys(c.method for c in self.plan.of(model)):
                cells = [c for c in self.plan.of(model) if c.method == method]
                done = [self.found[c] for c in cells if c in self.found]
                mean = float(np.mean([d["seconds"] for d in done])) if done else None
                yield model, method, len(done), len(cells), mean, sum("unable" in d for d in done)

    def remaining(self) -> float | None:
        """Seconds that are left; None where nothing of the kind has been done yet."""
        left = 0.0
        if self.waiting:
            if not self.prepared:
                return None
            left += len(self.waiting) * (self.prepared_at - self.began) / self.prepared
        rows = list(self.rows())
        known = [mean for *_, mean, _ in rows if mean is not None]
        for _, _, done, count, mean, _ in rows:
            if done < count:
                if not known:
                    return None
                left += (count - done) * (float(np.mean(known)) if mean is None else mean) / self.jobs
        return left
