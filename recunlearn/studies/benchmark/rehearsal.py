"""What a dry run times: a model as it is before training, and the measurement of one on a forget set."""

import time
from typing import Any

from recunlearn.data.catalogue import load_interactions
from recunlearn.studies.benchmark.plan import Plan
from recunlearn.studies.fold_in import FoldIn
from recunlearn.studies.measuring import Setting, measure
from recunlearn.subjects.contract import IntArray
from recunlearn.subjects.recbole.parameters import epochs_of
from recunlearn.subjects.recbole.store import load_subject, untrained_subject


class Rehearsal:
    """Of recommenders; nothing is trained and nothing is written.

    Args:
        plan: of the benchmark.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def begin(self, model: str) -> tuple[Any, int]:
        """Subject with its model and its epochs where they are stored, else an untrained one and the most."""
        keys = self.plan.keys(model)
        interactions = load_interactions(keys.settings.dataset)
        if (keys.model / "manifest.json").is_file():
            subject = load_subject(keys.model, interactions, device="cpu")
            return subject, subject.epochs
        return untrained_subject(interactions, keys.settings), epochs_of(keys.settings)

    def measuring(self, subject: Any, forget: IntArray) -> float:
        """Seconds that one model is measured on a set."""
        began = time.perf_counter()
        fold_in = FoldIn(steps=self.plan.settings.fold_in_steps)
        measure(Setting.of(subject, forget, fold_in, 0), subject.model)
        return time.perf_counter() - began
