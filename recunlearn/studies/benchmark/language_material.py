"""What the cells of a language model's benchmark are made of."""

import copy
from collections.abc import Mapping
from typing import Any

from torch import nn

from recunlearn.studies.benchmark.language_plan import LanguagePlan
from recunlearn.studies.benchmark.material import Material
from recunlearn.studies.language_metrics import Questions
from recunlearn.studies.language_yardstick import LanguageYardstick
from recunlearn.studies.scoring import Listener
from recunlearn.studies.sources.language import trained
from recunlearn.subjects.contract import IntArray
from recunlearn.subjects.tofu.subject import LanguageSubject


class LanguageMaterial(Material):
    """Pieces of one benchmark on a language model."""

    plan: LanguagePlan

    def _first(self, model: str) -> LanguageSubject:
        return trained(self.plan.keys(model), Listener())

    def _loaded(self, base: Any, forget: IntArray, state: Mapping[str, Any]) -> nn.Module:
        model: nn.Module = copy.deepcopy(base.model)
        model.load_state_dict(dict(state))
        return model

    def _membership(self, model: str) -> None:
        """Rows that no model saw stand in for models that did not see the forgotten rows."""

    def _yardstick(self, model: str, seed: int, set_name: str, own: str = "") -> LanguageYardstick:
        subject, forget = self.subject(model, seed), self.forget(model, set_name)
        retrained = [self.reference(model, set_name, n)[0] for n in range(self.plan.settings.references)]
        first = self.plan.settings.seed
        settings = self.plan.settings.metrics
        options: dict[str, Any] = {"seed": first, "online": self.plan.online}
        questions = Questions.of(subject, forget, settings, self.plan.place, **options)
        return LanguageYardstick.of(subject, retrained, forget, questions, seed=first)
