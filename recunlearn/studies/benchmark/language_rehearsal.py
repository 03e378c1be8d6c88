"""What a dry run times of a language model: some answers that it is asked for, and some that it writes."""

import time
from collections.abc import Callable
from typing import Any

from recunlearn.studies.benchmark.language_plan import LanguagePlan
from recunlearn.studies.benchmark.rehearsal import Rehearsal
from recunlearn.studies.language_asked import first, tokens, written
from recunlearn.studies.language_metrics import Questions
from recunlearn.studies.language_yardstick import LanguageYardstick
from recunlearn.subjects.contract import IntArray
from recunlearn.subjects.tofu.samples import MOST_ROWS
from recunlearn.subjects.tofu.store import load_subject, untrained_subject
from recunlearn.subjects.tofu.subject import LanguageSubject

WRITTEN_TOKENS = 4
"""Tokens of the written answers that are timed."""


class LanguageRehearsal(Rehearsal):
    """Of a language model."""

    plan: LanguagePlan

    def begin(self, model: str) -> tuple[LanguageSubject, int]:
        """Subject with its trained model where it is stored, else the untrained one; and its epochs."""
        keys, rows, online = self.plan.keys(model), self.plan.rows, self.plan.online
        if (keys.model / "manifest.json").is_file():
            subject = load_subject(keys.model, rows, keys.settings, online=online)
        else:
            subject = untrained_subject(rows, keys.settings, online=online)
        return subject, keys.settings.training.epochs

    def measuring(self, subject: LanguageSubject, forget: IntArray) -> float:
        """Seconds of one batch, times all answers that a model is asked for and all that it writes."""
        plan = self.plan
        options: dict[str, Any] = {"seed": plan.settings.seed, "online": plan.online}
        questions = Questions.of(subject, forget, plan.settings.metrics, plan.place, **options)
        read, wrote = questions.answers()
        read += LanguageYardstick.answers(subject, forget, plan.settings.references)
        some = first(questions.asked["forget"].samples, MOST_ROWS)
        total = read / some.entities * _seconds(lambda: tokens(subject.model, some))
        if wrote:
            few = first(some, wrote)
            most = plan.settings.metrics.new_tokens
            tried = min(WRITTEN_TOKENS, most)
            once = _seconds(lambda: written(subject.model, subject.tokenizer, few, tried))
            total += wrote / few.entities * once * most / tried
        return total


def _seconds(call: Callable[[], Any]) -> float:
    """Wall time of a call; the first one is not counted."""
    call()
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
