"""Conformance tests of a subject: subclass, override the ``subject`` fixture, and pytest does the rest."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from recunlearn.subjects.contract import Batch, Subject

SIZES = (7, 64)
FAMILIES = ("pointwise", "pairwise", "softmax")


def _all(subject: Subject, batch_size: int = 64, per_entity: int | None = None, seed: int = 0) -> Batch:
    """All batches joined into one."""
    return Batch.join(list(subject.batches(batch_size=batch_size, per_entity=per_entity, seed=seed)))


def _cropped(batch: Batch, like: Batch) -> Batch:
    """Columns of sequences cut to the length they have in another batch; what is cut off must be zeros."""
    columns = {}
    for name, column in batch.columns.items():
        size = like.columns[name].shape[1] if column.dim() == 2 else 0
        assert column.dim() < 2 or not column[:, size:].any()
        columns[name] = column[:, :size] if column.dim() == 2 else column
    return Batch(columns, batch.entity)


def _same(left: Batch, right: Batch) -> bool:
    return torch.equal(left.entity, right.entity) and all(
        torch.equal(left.columns[k], right.columns[k]) for k in left.columns
    )


def _weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return copy.deepcopy(model.state_dict())


def _unchanged(model: nn.Module, before: dict[str, torch.Tensor]) -> bool:
    after = model.state_dict()
    return after.keys() == before.keys() and all(torch.equal(after[k], before[k]) for k in before)


class SubjectContract:
    """What every later stage relies on. The subject should be small: a few dozen entities."""

    has_entity_vectors = True
    """Whether :meth:`Subject.population_rows` changes anything for this kind of model."""

    @pytest.fixture
    def subject(self) -> Subject:
        """Return the subject under test."""
        raise NotImplementedError("Override the fixture 'subject'.")

    def test_entities_are_unique_text(self, subject: Subject) -> None:
        """Each external id stands once."""
        assert subject.entities.dtype.kind == "U"
        assert len(np.unique(subject.entities)) == len(subject.entities)
        assert subject.n_samples().shape == subject.entities.shape

    def test_model_is_in_eval_mode(self, subject: Subject) -> None:
        """No dropout while measuring; a known family."""
        assert not subject.model.training
        assert all(vars(subject.words).values())
        assert subject.family in FAMILIES

    def test_batches_cover_every_sample_once(self, subject: Subject) -> None:
        """Samples per entity are as counted, in one run of each entity, in the order of ``entities``."""
        owner = _all(subject).entity.numpy()
        assert np.array_equal(np.bincount(owner, minlength=len(subject.entities)), subject.n_samples())
        assert (np.diff(owner) >= 0).all()

    def test_no_sample_stands_twice(self, subject: Subject) -> None:
        """All columns together identify a sample (negatives aside, interactions are distinct)."""
        every = _all(subject)
        rows = np.column_stack(
            [every.columns[k].reshape(len(every), -1).numpy() for k in sorted(every.columns)]
        )
        assert len(np.unique(rows, axis=0)) == len(every)

    @pytest.mark.parametrize("size", SIZES)
    def test_batches_do_not_depend_on_their_size(self, subject: Subject, size: int) -> None:
        """Same samples, same negatives, same order; no batch is larger than asked."""
        assert all(0 < len(b) <= size for b in subject.batches(batch_size=size))
        assert _same(_all(subject, batch_size=size), _all(subject, batch_size=10_000))

    def test_batches_of_some_entities(self, subject: Subject) -> None:
        """Chosen entities give the samples that they have among all, with the same negatives."""
        chosen = np.flatnonzero(subject.n_samples() > 0)[1::3].astype(np.int64)
        every = _all(subject)
        rows = torch.isin(every.entity, torch.from_numpy(chosen))
        some = Batch.join(list(subject.batches(chosen, batch_size=13)))
        assert _same(some, _cropped(every[rows], some))

    def test_cap_per_entity(self, subject: Subject) -> None:
        """``per_entity`` keeps min(cap, samples) of each entity's own samples."""
        owner = _all(subject, per_entity=2).entity.numpy()
        kept = np.bincount(owner, minlength=len(subject.entities))
        assert np.array_equal(kept, np.minimum(subject.n_samples(), 2))
        assert _same(_all(subject, per_entity=2, seed=4), _all(subject, per_entity=2, seed=4, batch_size=5))

    def test_log_likelihood_is_that_of_the_class_scores(self, subject: Subject) -> None:
        """``[B]``, at most 0: the mean of the log softmax of the class scores at the predicted classes."""
        batch = next(subject.batches(batch_size=50))
        with torch.no_grad():
            ll = subject.log_likelihood(subject.model, batch)
            scores = subject.class_scores(subject.model, batch).log_softmax(1)
        assert ll.shape == (len(batch),)
        assert (ll <= 0).all()
        told = subject.predictions(batch)
        assert len(scores) == len(told.sample) == len(told.column)
        assert scores.shape[1] >= 2
        own = scores.gather(1, told.column[:, None]).squeeze(1)
        count = torch.bincount(told.sample, minlength=len(batch))
        assert (count > 0).all()
        mean = torch.zeros(len(batch)).index_add(0, told.sample, own) / count
        torch.testing.assert_close(mean, ll, atol=1e-5, rtol=1e-4)

    def test_log_likelihood_does_not_depend_on_the_batch(self, subject: Subject) -> None:
        """A sample's value is its own."""
        batch = next(subject.batches(batch_size=40))
        with torch.no_grad():
            whole = subject.log_likelihood(subject.model, batch)
            first = subject.log_likelihood(subject.model, batch[slice(0, 5)])
        torch.testing.assert_close(whole[:5], first, atol=1e-5, rtol=1e-4)

    def test_log_likelihood_is_differentiable(self, subject: Subject) -> None:
        """Its gradient is finite, not zero, and leaves no trace on the subject's model."""
        batch = next(subject.batches(batch_size=40))
        before = [p.grad for p in subject.model.parameters()]
        model = copy.deepcopy(subject.model)
        model.zero_grad()
        subject.log_likelihood(model, batch).mean().backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        assert gradients
        assert all(torch.isfinite(g).all() for g in gradients)
        assert any((g != 0).any() for g in gradients)
        after = [p.grad for p in subject.model.parameters()]
        assert all(a is b for a, b in zip(after, before, strict=True))

    def test_draw_is_reproducible(self, subject: Subject) -> None:
        """The generator decides; drawn samples belong to the chosen entities."""
        chosen = np.flatnonzero(subject.n_samples() > 0)[:5].astype(np.int64)
        first, again, other = (
            subject.draw(chosen, 32, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)
        )
        assert _same(first, again)
        assert not _same(first, other)
        assert len(first) == 32
        assert np.isin(first.entity.numpy(), chosen).all()

    def test_draw_with_negatives_is_the_training_loss(self, subject: Subject) -> None:
        """Pointwise subjects add negatives, others none."""
        chosen = np.flatnonzero(subject.n_samples() > 0).astype(np.int64)
        batch = subject.draw(chosen, 32, torch.Generator().manual_seed(0), negatives=True)
        assert len(batch) >= 32 if subject.family == "pointwise" else len(batch) == 32
        with torch.no_grad():
            assert torch.isfinite(subject.log_likelihood(subject.model, batch)).all()

    def test_retraining_leaves_the_original_alone(self, subject: Subject) -> None:
        """A model of the same shape comes back, the seed decides, and the original keeps its weights."""
        before = _weights(subject.model)
        without = np.array([0, 1], dtype=np.int64)
        first, again = (subject.retrain(without, seed=5) for _ in range(2))
        assert _unchanged(subject.model, before)
        assert {k: v.shape for k, v in first.state_dict().items()} == {k: v.shape for k, v in before.items()}
        assert _unchanged(again, _weights(first))

    def test_population_rows_answer_for_strangers(self, subject: Subject) -> None:
        """Chosen entities lose what was their own; nobody else's answers and no original weight change."""
        before = _weights(subject.model)
        chosen = np.flatnonzero(subject.n_samples() > 0)[:3].astype(np.int64)
        changed = subject.population_rows(subject.model, chosen)
        assert _unchanged(subject.model, before)
        batch = _all(subject)
        mine = torch.isin(batch.entity, torch.from_numpy(chosen))
        with torch.no_grad():
            old, new = (subject.log_likelihood(m, batch) for m in (subject.model, changed))
        torch.testing.assert_close(new[~mine], old[~mine], atol=1e-5, rtol=1e-4)
        assert bool((new[mine] - old[mine]).abs().max() > 1e-6) == self.has_entity_vectors

    def test_population_rows_of_everybody_are_finite(self, subject: Subject) -> None:
        """Nobody is left to average over: each entity gets the mean over all but itself."""
        everyone = np.arange(len(subject.entities))
        batch = _all(subject)
        with torch.no_grad():
            changed = subject.population_rows(subject.model, everyone)
            new, old = (subject.log_likelihood(m, batch) for m in (changed, subject.model))
        assert torch.isfinite(new).all()
        assert bool((new - old).abs().max() > 1e-6) == self.has_entity_vectors

    def test_covariates_are_one_figure_an_entity(self, subject: Subject) -> None:
        """Named columns over entities; NaN only where there is no sample."""
        for values in subject.covariates().values():
            assert values.shape == subject.entities.shape
            assert np.isfinite(values[subject.n_samples() > 0]).all()

    def test_description_identifies_the_model(self, subject: Subject) -> None:
        """Plain values, the same each time."""
        assert dict(subject.describe()) == dict(subject.describe())
        assert len(subject.describe()) > 0
