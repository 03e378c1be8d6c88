"""Conformance tests of an unlearning method: subclass, override two fixtures, and pytest does the rest."""

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from recunlearn.foundation.errors import UsageError
from recunlearn.subjects.contract import Batch, IntArray, Subject
from recunlearn.unlearning.contract import Cost, Unlearned, Unlearner

SEED = 3


def _weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return copy.deepcopy(model.state_dict())


def _same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def _loss(subject: Subject, model: nn.Module, entities: IntArray) -> float:
    with torch.no_grad():
        losses = [-subject.log_likelihood(model, b) for b in subject.batches(entities, batch_size=512)]
    return float(torch.cat(losses).mean())


class UnlearnerContract:
    """What the command, the benchmark and the receipts rely on.

    The subject should be small, a few dozen entities; the method's settings such that it ends in a moment.
    """

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls) -> Subject:
        """Return a trained subject."""
        raise NotImplementedError("Override the fixture 'subject'.")

    @pytest.fixture(scope="class")
    @classmethod
    def unlearner(cls) -> Unlearner:
        """Return the method under test."""
        raise NotImplementedError("Override the fixture 'unlearner'.")

    @pytest.fixture(scope="class")
    @classmethod
    def forget(cls, subject: Subject) -> IntArray:
        """Entities to forget: a tenth of those with samples, two at least."""
        known = np.flatnonzero(subject.n_samples() > 0)
        return known[:: max(1, len(known) // max(2, len(known) // 10))][: max(2, len(known) // 10)]

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Folder of the request below."""
        return tmp_path_factory.mktemp("unlearner") / "run"

    @pytest.fixture(scope="class")
    @classmethod
    def unlearned(cls, subject: Subject, unlearner: Unlearner, forget: IntArray, folder: Path) -> Unlearned:
        """Result of one request."""
        return unlearner.unlearn(subject, forget, seed=SEED, folder=folder)

    def test_is_an_unlearner(self, unlearner: Unlearner) -> None:
        """It has the attributes and methods of the contract, and settings that are plain values."""
        assert isinstance(unlearner, Unlearner)
        assert isinstance(unlearner.settings, unlearner.settings_type)
        assert unlearner.settings_type(**unlearner.settings.model_dump()) == unlearner.settings

    def test_cost_is_told_before(self, subject: Subject, unlearner: Unlearner, forget: IntArray) -> None:
        """In one sentence that names the method; figures are finite."""
        cost = unlearner.cost(subject, forget)
        assert isinstance(cost, Cost)
        assert unlearner.name in cost.sentence
        assert cost.sentence.endswith(".")
        assert cost.parameters > 0
        given = [v for v in (cost.steps, cost.passes, cost.seconds, cost.shards) if v is not None]
        assert all(math.isfinite(v) and v >= 0 for v in given)

    def test_subject_stays_as_it_is(
        self, subject: Subject, unlearner: Unlearner, forget: IntArray, tmp_path: Path
    ) -> None:
        """Neither stating the cost nor unlearning changes a weight, a mode or a gradient of the original."""
        before, description = _weights(subject.model), dict(subject.describe())
        needs = [p.requires_grad for p in subject.model.parameters()]
        unlearner.cost(subject, forget)
        found = unlearner.unlearn(subject, forget, seed=SEED, folder=tmp_path)
        assert _same(_weights(subject.model), before)
        assert dict(subject.describe()) == description
        assert not subject.model.training
        assert [p.requires_grad for p in subject.model.parameters()] == needs
        assert all(p.grad is None for p in subject.model.parameters())
        assert found.model is not subject.model

    def test_model_can_be_read(self, subject: Subject, unlearned: Unlearned) -> None:
        """In eval mode; every sample of everybody has a finite log-likelihood at most 0."""
        assert not unlearned.model.training
        with torch.no_grad():
            for batch in subject.batches(batch_size=64):
                ll = subject.log_likelihood(unlearned.model, batch)
                assert ll.shape == (len(batch),)
                assert torch.isfinite(ll).all()
                assert (ll <= 0).all()

    def test_facts_are_complete(self, unlearner: Unlearner, unlearned: Unlearned, forget: IntArray) -> None:
        """What was done can be told without the model, in plain values."""
        facts = unlearned.facts()
        assert facts["method"] == unlearner.name
        assert facts["settings"] == unlearner.settings.model_dump(mode="json")
        assert (facts["seed"], facts["forgotten"], facts["diverged"]) == (SEED, len(forget), False)
        assert facts["seconds"] > 0
        assert facts["peak_memory"] > 0
        assert facts["parameters"] > 0
        lengths = {len(column) for column in unlearned.history.values()}
        assert len(lengths) <= 1

    def test_the_forgotten_are_forgotten_more(
        self, subject: Subject, unlearner: Unlearner, unlearned: Unlearned, forget: IntArray, folder: Path
    ) -> None:
        """Their loss rises, and by more than the others' loss does."""
        others = np.setdiff1d(np.flatnonzero(subject.n_samples() > 0), forget).astype(np.int64)
        original = unlearner.original(subject, seed=SEED, folder=folder)
        rise, rise_of_others = (
            _loss(subject, unlearned.model, who) - _loss(subject, original, who) for who in (forget, others)
        )
        assert rise > 0
        assert rise > rise_of_others

    def test_seed_decides(
        self, subject: Subject, unlearner: Unlearner, unlearned: Unlearned, forget: IntArray, tmp_path: Path
    ) -> None:
        """The same request gives the same model, in whatever order and however often users are named."""
        twice = np.concatenate([forget[::-1], forget[:1]])
        again = unlearner.unlearn(subject, twice, seed=SEED, folder=tmp_path / "again")
        batch = next(subject.batches(batch_size=10_000))
        with torch.no_grad():
            first, second = (subject.log_likelihood(u.model, batch) for u in (unlearned, again))
        assert torch.equal(first, second)

    def test_progress_ends(
        self, subject: Subject, unlearner: Unlearner, forget: IntArray, tmp_path: Path
    ) -> None:
        """Parts done never exceed what there is at most, and grow."""
        told: list[tuple[str, int, int]] = []
        unlearner.unlearn(
            subject, forget, seed=SEED, folder=tmp_path, progress=lambda *what: told.append(what)
        )
        assert all(0 <= done <= total for _, done, total in told)
        for title in {title for title, _, _ in told}:
            done = [d for t, d, _ in told if t == title]
            assert done == sorted(done)

    def test_only_the_others_samples_are_kept(
        self, subject: Subject, unlearner: Unlearner, forget: IntArray, tmp_path: Path
    ) -> None:
        """No sample of a forgotten entity is kept or trained on, once there is an original model."""
        unlearner.original(subject, seed=SEED, folder=tmp_path)
        watched = _Watched(subject, forget)
        unlearner.unlearn(watched, forget, seed=SEED, folder=tmp_path)  # type: ignore[arg-type]
        assert not watched.mixed

    @pytest.mark.parametrize(
        ("rows", "sentence"),
        [
            ([], "The forget set is empty"),
            ([10**6], "must be between 0 and"),
            ([-1], "must be between 0 and"),
        ],
    )
    def test_refuses_what_nobody_can_forget(
        self, subject: Subject, unlearner: Unlearner, rows: list[int], sentence: str
    ) -> None:
        """Neither cost nor unlearning; one sentence."""
        for call in (unlearner.cost, unlearner.unlearn):
            with pytest.raises(UsageError, match=sentence):
                call(subject, np.array(rows, dtype=np.int64))

    def test_refuses_to_forget_everybody(self, subject: Subject, unlearner: Unlearner) -> None:
        """Nothing would be left to keep."""
        with pytest.raises(UsageError, match="All users with training interactions are to be forgotten"):
            unlearner.unlearn(subject, np.arange(len(subject.entities)))

    def test_refuses_an_unknown_objective(
        self, subject: Subject, unlearner: Unlearner, forget: IntArray
    ) -> None:
        """In one sentence that names it."""
        other = copy.copy(subject)
        other.family = "listwise"
        with pytest.raises(UsageError, match="listwise"):
            unlearner.unlearn(other, forget)


class _Watched:
    """A subject that notes draws and retraining in which forgotten and others are mixed."""

    def __init__(self, subject: Subject, forget: IntArray) -> None:
        self._subject, self._forget = subject, forget
        self.mixed = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._subject, name)

    def draw(
        self, entities: IntArray, size: int, generator: torch.Generator, *, negatives: bool = False
    ) -> Batch:
        batch = self._subject.draw(entities, size, generator, negatives=negatives)
        inside = np.isin(batch.entity.numpy(), self._forget)
        self.mixed |= bool(inside.any() and not inside.all())
        return batch

    def train_on(self, kept: NDArray[np.bool_], **how: Any) -> nn.Module:
        subject: Any = self._subject
        self.mixed |= bool(np.isin(subject.pairs()[0][kept], self._forget).any())
        trained: nn.Module = subject.train_on(kept, **how)
        return trained

    def retrain(self, without: IntArray, *, seed: int, progress: bool = False) -> nn.Module:
        self.mixed |= bool(np.setdiff1d(self._forget, without).size)
        return self._subject.retrain(without, seed=seed, progress=progress)
