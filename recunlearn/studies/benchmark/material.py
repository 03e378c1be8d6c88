"""What cells are made of, each piece made once and kept: originals, references, budgets, yardsticks."""

import copy
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from recunlearn.data.catalogue import load_interactions
from recunlearn.evaluation.membership import References
from recunlearn.foundation import paths
from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.store import content_hash
from recunlearn.studies.benchmark.budget import Budget, is_tuned, tune, with_budget
from recunlearn.studies.benchmark.locks import json_once, locked, once
from recunlearn.studies.benchmark.plan import REFERENCE_SEEDS, Cell, Plan
from recunlearn.studies.evaluation import Yardstick
from recunlearn.studies.fold_in import FoldIn
from recunlearn.studies.forget_sets import load_sets
from recunlearn.studies.references import membership_references
from recunlearn.subjects.contract import IntArray
from recunlearn.subjects.recbole.store import load_subject
from recunlearn.subjects.recbole.subject import RecBoleSubject
from recunlearn.unlearning.contract import Unlearner
from recunlearn.unlearning.registry import make
from recunlearn.unlearning.shards.submodels import read_state, write_state

NOBODY: IntArray = np.zeros(0, dtype=np.int64)
TUNING = "tuning"


class Material:
    """Pieces of one benchmark; everything slow is stored, and several processes share what is stored.

    What differs between recommenders and language models are the methods ``_first``, ``_loaded``,
    ``_membership`` and ``_yardstick``.

    Args:
        plan: whose models are trained and whose sets are drawn already.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.subject = lru_cache(4)(self._subject)
        self.reference = lru_cache(8)(self._reference)
        self.membership = lru_cache(2)(self._membership)
        self.sets = lru_cache(4)(self._sets)
        self.yardstick = lru_cache(2)(self._yardstick)
        self.own_original = lru_cache(2)(self._own_original)

    def forget(self, model: str, set_name: str) -> IntArray:
        """Rows of a forget set."""
        return self.sets(model)[set_name]

    def method(self, cell: Cell) -> Unlearner:
        """Method of a cell with its tuned budget."""
        forget = self.forget(cell.model, cell.set_name)
        budget = self.budget(cell.model, cell.method)
        return with_budget(
            cell.method, self.plan.values(cell.method), budget, self.subject(cell.model, cell.seed), forget
        )

    def budget(self, model: str, method: str) -> Budget:
        """Tuned budget.

        Raises:
            UsageError: the method cannot forget from this model.
        """
        found = json_once(self.plan.budget_path(model, method), lambda: self._tuned(model, method))
        if "unable" in found:
            raise UsageError(found["unable"])
        return Budget.from_plain(found["budget"])

    def owns(self, model: str, method: str) -> bool:
        """Tell whether a method forgets from an original of its own kind (an ensemble of shards).

        Raises:
            UsageError: the method cannot make one of this model.
        """
        first = self.plan.settings.seed
        identity = content_hash(self.plan.identity, model, method)

        def look() -> dict[str, Any]:
            try:
                return {
                    "own": self.own_original(model, method, first) is not self.subject(model, first).model
                }
            except UsageError as error:
                return {"unable": str(error)}

        found = json_once(self.plan.out / "budgets" / f"own-{identity}.json", look)
        if "unable" in found:
            raise UsageError(found["unable"])
        return bool(found["own"])

    def folder(self, model: str, method: str, seed: int) -> Path:
        """Where a method keeps what its original is made of."""
        facts = dict(self.subject(model, seed).describe())
        return (
            paths.cache() / "benchmark" / "own" / content_hash(facts, method, self.plan.values(method), seed)
        )

    def own_reference(self, model: str, method: str, set_name: str, number: int) -> nn.Module:
        """Original of the method's own kind, made anew without the set."""
        seed = self.plan.settings.seed + REFERENCE_SEEDS + number
        forget = self.forget(model, set_name)
        subject = self.subject(model, self.plan.settings.seed)
        reduced = without(subject, forget, self.reference(model, set_name, number)[0])
        folder = paths.cache() / "benchmark" / "own"
        folder /= content_hash(dict(reduced.describe()), method, self.plan.values(method), seed)
        with locked(folder):
            return self._made(method).original(reduced, seed=seed, folder=folder)

    def retraining_seconds(self, model: str, set_name: str) -> float:
        """Mean wall time of the retrained references of a set."""
        numbers = range(self.plan.settings.references)
        return float(np.mean([self.reference(model, set_name, n)[1] for n in numbers]))

    def _made(self, method: str) -> Unlearner:
        return single_process(make(method, self.plan.values(method)))

    def _sets(self, model: str) -> dict[str, IntArray]:
        entities = self.subject(model, self.plan.settings.seed).entities.tolist()
        place = {user: row for row, user in enumerate(entities)}
        found = {s.name: s for s in load_sets(self.plan.out / "sets" / model)}
        found[TUNING] = load_sets(self.plan.out / "sets" / model / TUNING)[0]
        return {
            n: np.sort(np.array([place[u] for u in s.entities], dtype=np.int64)) for n, s in found.items()
        }

    def _first(self, model: str) -> Any:
        """Subject with the model of the first seed, as it is stored."""
        keys = self.plan.keys(model)
        return load_subject(keys.model, load_interactions(keys.settings.dataset), device="cpu")

    def _subject(self, model: str, seed: int) -> Any:
        base = self._first(model)
        if seed == self.plan.settings.seed:
            return base
        found, key, _ = self._stored_model(base, NOBODY, seed)
        other = copy.copy(base)
        other.model, other.weights_hash = found.eval(), key
        return other

    def _reference(self, model: str, set_name: str, number: int) -> tuple[nn.Module, float]:
        """Model retrained without a set, and the seconds that took."""
        base = self.subject(model, self.plan.settings.seed)
        seed = self.plan.settings.seed + REFERENCE_SEEDS + number
        found, _, seconds = self._stored_model(base, self.forget(model, set_name), seed)
        return found, seconds

    def _stored_model(self, base: Any, forget: IntArray, seed: int) -> tuple[nn.Module, str, float]:
        key = content_hash(dict(base.describe()), base.entities[forget], seed)
        path = paths.cache() / "benchmark" / "models" / f"{key}.safetensors"

        def train() -> None:
            began = time.perf_counter()
            model = base.retrain(forget, seed=seed)
            write_state(path, dict(model.state_dict()), time.perf_counter() - began)

        state, seconds = once(path, read_state, train)
        return self._loaded(base, forget, state).eval(), key, seconds

    def _loaded(self, base: Any, forget: IntArray, state: Mapping[str, Any]) -> nn.Module:
        """Model with stored weights, trained without ``forget``."""
        owner, _ = base.pairs()
        return base.load_on(~np.isin(owner, forget), dict(state))

    def _membership(self, model: str) -> References | None:
        if not self.plan.settings.membership:
            return None
        folder = paths.cache() / "benchmark" / "membership"
        base = self.subject(model, self.plan.settings.seed)
        with locked(folder / content_hash(dict(base.describe()))):
            return membership_references(
                base, self.plan.settings.membership, seed=self.plan.settings.seed, folder=folder
            )

    def _tuned(self, model: str, method: str) -> dict[str, Any]:
        settings = self.plan.settings
        subject = self.subject(model, settings.seed)
        if not is_tuned(make(method, self.plan.values(method))):
            return {"budget": Budget().plain()}
        forget = self.forget(model, TUNING)
        models = [
            subject.population_rows(self.reference(model, TUNING, n)[0], forget)
            for n in range(settings.references)
        ]
        try:
            budget = tune(
                subject,
                method,
                self.plan.values(method),
                forget,
                models,
                trials=settings.trials,
                most=settings.most_steps,
                seed=settings.seed,
            )
        except UsageError as error:
            return {"unable": str(error)}
        return {"budget": budget.plain()}

    def _own_original(self, model: str, method: str, seed: int) -> nn.Module:
        folder = self.folder(model, method, seed)
        with locked(folder):
            return self._made(method).original(self.subject(model, seed), seed=seed, folder=folder)

    def _yardstick(self, model: str, seed: int, set_name: str, own: str = "") -> Any:
        """Original and retrained models measured on a set; those of a method's own kind where it has one."""
        subject, numbers = self.subject(model, seed), range(self.plan.settings.references)
        if own:
            original = self.own_original(model, own, seed)
            retrained = [self.own_reference(model, own, set_name, n) for n in numbers]
        else:
            original = subject.model
            retrained = [self.reference(model, set_name, n)[0] for n in numbers]
        return Yardstick.of(
            subject,
            original,
            retrained,
            self.forget(model, set_name),
            references=self.membership(model),
            fold_in=FoldIn(steps=self.plan.settings.fold_in_steps),
            seed=self.plan.settings.seed,
        )


def without(subject: RecBoleSubject, forget: IntArray, model: nn.Module) -> RecBoleSubject:
    """The subject as if the forgotten had never been there, with a model retrained without them."""
    kept = ~np.isin(subject.samples.user.astype(np.int64) - 1, forget)
    weights = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    return RecBoleSubject(
        subject.bundle.without(kept),
        model,
        epochs=subject.epochs,
        metrics={},
        popularity_metrics={},
        weights_hash=content_hash(weights),
    )


def single_process(method: Unlearner) -> Unlearner:
    """The same method without processes of its own: cells have theirs."""
    settings: Any = method.settings
    if "processes" not in type(settings).model_fields:
        return method
    kind: Callable[[Any], Unlearner] = type(method)
    return kind(settings.model_copy(update={"processes": 1}))
