"""A benchmark on rows or authors of a language model."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.settings import make_settings
from recunlearn.foundation.words import Words
from recunlearn.studies.benchmark.language_settings import LanguageBenchmarkSettings
from recunlearn.studies.benchmark.plan import Plan, check_fraction, check_methods, refuse_tuned
from recunlearn.studies.keys import Keys
from recunlearn.studies.language_keys import language_keys
from recunlearn.studies.methods import STRENGTHS
from recunlearn.subjects.tofu.data import Rows, read_rows
from recunlearn.unlearning.registry import find
from recunlearn.unlearning.stepwise import LoopSettings

if TYPE_CHECKING:
    from recunlearn.studies.benchmark.material import Material
    from recunlearn.studies.benchmark.rehearsal import Rehearsal

PACKAGES = ("recunlearn", "transformers", "torch", "numpy")
RETRAIN = "retrain"
FORMAT = 2
"""Raised when the same models would no longer be measured by the same figures."""


@dataclass(frozen=True)
class LanguagePlan(Plan):
    """A benchmark of one language model, trained once for every seed.

    Args:
        place: folder of the rows' files.
        online: whether missing data and models may be fetched.
    """

    place: Path = Path()
    online: bool = False

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages whose versions the table depends on."""
        return PACKAGES

    @property
    def words(self) -> Words:
        """Rows or authors."""
        words: Words = self.settings.words
        return words

    @cached_property
    def rows(self) -> Rows:
        """Rows of the training."""
        s = self.settings
        return read_rows(s.files, self.place, per_author=s.rows_per_author, fetch=self.online)

    def data_hash(self) -> str:
        """Content hash of the rows, of every file that a model is asked about beside them, and the format."""
        asked = self.settings.metrics
        names = [*asked.perturbed, *filter(None, (asked.real_authors, asked.world_facts, asked.holdout))]
        return "".join([str(FORMAT), self.rows.hash, *(_hash(n, self.place, self.online) for n in names)])

    def material(self) -> "Material":
        """What its cells are made of."""
        from recunlearn.studies.benchmark.language_material import LanguageMaterial

        return LanguageMaterial(self)

    def rehearsal(self) -> "Rehearsal":
        """What a dry run times."""
        from recunlearn.studies.benchmark.language_rehearsal import LanguageRehearsal

        return LanguageRehearsal(self)

    def names(self, block: Any) -> tuple[str, ...]:
        """The one model."""
        return (self.settings.name,)

    def keys(self, model: str) -> Keys:
        """Stored stages of ``tofu score``."""
        return language_keys(self.settings.scored(), self.place, online=self.online)

    def values(self, method: str) -> dict[str, Any]:
        """Settings of a method: the common ones, those that suit single samples, and its own."""
        common = self.settings.unlearning if issubclass(find(method).settings_type, LoopSettings) else {}
        return {**common, **STRENGTHS.get(method, {}), **self.settings.methods.get(method, {})}


def _hash(name: str, place: Path, online: bool) -> str:
    rows = read_rows([name], place, fetch=online)
    return rows.hash + str([sorted(map(str, m.items())) for m in rows.more])


def language_plan(
    settings: LanguageBenchmarkSettings, out: Path, place: Path, *, online: bool = False, where: str = "it"
) -> LanguagePlan:
    """Plan whose names and numbers are known to be right, before anything is trained.

    Args:
        settings: of the benchmark.
        out: folder of the results.
        place: folder of the rows' files.
        online: whether missing data and models may be fetched.
        where: the settings were written, for sentences.

    Raises:
        RecunlearnError: what is wrong, in one sentence.
    """
    plan = LanguagePlan(settings, Path(out), Path(place), online)
    check_methods(settings.grid, settings.methods, where)
    refuse_tuned(LoopSettings, settings.unlearning, f"[unlearning] of {where}")
    for method in plan.methods:
        kind = find(method).settings_type
        if method != RETRAIN and not issubclass(kind, LoopSettings):
            raise UsageError(
                f"{method} in {where} splits a recommender's interactions into shards, so it cannot unlearn "
                "a language model. Leave it out."
            )
        make_settings(kind, plan.values(method), f"[unlearning] and [methods.{method}] of {where}")
    names = plan.rows.ids if settings.entity == "row" else plan.rows.authors
    check_fraction(settings.fraction, len(np.unique(names)), plan.words.entities, where)
    plan.data_hash()  # files of metrics that cannot be read are named now
    return plan


__all__ = ["LanguagePlan", "language_plan"]
