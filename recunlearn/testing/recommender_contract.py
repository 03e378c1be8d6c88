"""Conformance tests of a recommender: subclass and override the ``recommender`` fixture."""

import copy

import numpy as np
import pytest
import torch

from recunlearn.subjects.contract import Recommender

SOME = np.array([1, 4, 2])


class RecommenderContract:
    """What the evaluation relies on. The recommender should be small: a few dozen users."""

    has_user_vectors = True
    has_history = False
    first_item = 1
    """Number of the first item in the column ``item_id``."""

    @pytest.fixture
    def recommender(self) -> Recommender:
        """Return the recommender under test."""
        raise NotImplementedError("Override the fixture 'recommender'.")

    def test_is_a_recommender(self, recommender: Recommender) -> None:
        """Everything that the protocol names is there."""
        assert isinstance(recommender, Recommender)
        assert len(np.unique(recommender.items)) == len(recommender.items)

    def test_interactions_are_positions(self, recommender: Recommender) -> None:
        """Rows of users and items, at most as many as there are samples."""
        user, item = recommender.interactions()
        assert user.shape == item.shape
        assert user.min() >= 0
        assert user.max() < len(recommender.entities)
        assert item.min() >= 0
        assert item.max() < len(recommender.items)
        counts = np.bincount(user, minlength=len(recommender.entities))
        assert (counts <= recommender.n_samples()).all()

    def test_scores_are_logits_of_every_item(self, recommender: Recommender) -> None:
        """One row a user, in the order asked for; nobody else's rows matter; they are finite numbers."""
        scores = recommender.item_scores(recommender.model, SOME)
        assert scores.shape == (3, len(recommender.items))
        assert torch.isfinite(scores).all()
        alone = recommender.item_scores(recommender.model, SOME[1:2])
        torch.testing.assert_close(alone[0], scores[1], atol=1e-4, rtol=1e-4)

    def test_scores_are_those_of_the_likelihood(self, recommender: Recommender) -> None:
        """Pointwise and pairwise: the log-likelihood follows from the scores (models without a history)."""
        if self.has_history or recommender.family == "softmax":
            pytest.skip("scores depend on the history, or the likelihood on all items")
        batch = next(recommender.batches(SOME, batch_size=10_000))
        with torch.no_grad():
            found = recommender.log_likelihood(recommender.model, batch)
        rows = np.unique(batch.entity.numpy())
        table = recommender.item_scores(recommender.model, rows)
        place = torch.from_numpy(np.searchsorted(rows, batch.entity.numpy()))
        score = table[place, batch.columns["item_id"] - self.first_item]
        if recommender.family == "pairwise":
            score = score - table[place, batch.columns["neg_item_id"] - self.first_item]
        else:
            score = torch.where(batch.columns["label"] > 0, score, -score)
        torch.testing.assert_close(torch.nn.functional.logsigmoid(score), found, atol=1e-3, rtol=1e-3)

    def test_quality_is_one_figure_a_user(self, recommender: Recommender) -> None:
        """Named columns over users, numbers where there is something to test."""
        for values in recommender.quality(recommender.model).values():
            assert values.shape == recommender.entities.shape
            known = values[~np.isnan(values)]
            assert (known >= 0).all()

    def test_user_vectors(self, recommender: Recommender) -> None:
        """One row a user; the population's rows are alike."""
        vectors = recommender.user_vectors(recommender.model)
        assert (vectors is not None) == self.has_user_vectors
        if vectors is None:
            return
        assert len(vectors) == len(recommender.entities)
        same = recommender.user_vectors(recommender.population_rows(recommender.model, SOME))
        assert same is not None
        torch.testing.assert_close(same[1], same[4])
        others = np.setdiff1d(np.arange(len(vectors)), SOME)
        torch.testing.assert_close(same[others], vectors[others])

    def test_free_rows_begin_as_the_population_and_move_alone(self, recommender: Recommender) -> None:
        """A step of training changes the chosen users' answers and nothing else; the original stays."""
        before = copy.deepcopy(recommender.model.state_dict())
        found = recommender.free_rows(recommender.model, SOME)
        assert (found is not None) == self.has_user_vectors
        if found is None:
            return
        model, vectors = found
        stranger = recommender.population_rows(recommender.model, SOME)
        batch = next(recommender.batches(batch_size=10_000))
        mine = torch.isin(batch.entity, torch.from_numpy(SOME))
        with torch.no_grad():
            start, expected = (recommender.log_likelihood(m, batch) for m in (model, stranger))
        torch.testing.assert_close(start, expected, atol=1e-5, rtol=1e-4)
        optimiser = torch.optim.SGD(vectors, lr=0.1)
        loss = -recommender.log_likelihood(model, batch).sum()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            moved = recommender.log_likelihood(model, batch)
        torch.testing.assert_close(moved[~mine], start[~mine], atol=1e-5, rtol=1e-4)
        assert float((moved[mine] - start[mine]).abs().max()) > 1e-6
        after = recommender.model.state_dict()
        assert all(torch.equal(after[k], before[k]) for k in before)

    def test_an_empty_history_is_empty(self, recommender: Recommender) -> None:
        """The model answers without it, and the original samples and model stay as they are."""
        batch = next(recommender.batches(SOME, batch_size=10_000))
        with torch.no_grad():
            given = recommender.log_likelihood(recommender.model, batch)
            found = recommender.without_history(recommender.model, batch)
            assert (found is not None) == self.has_history
            if found is None:
                return
            empty = recommender.log_likelihood(*found)
            again = recommender.log_likelihood(recommender.model, batch)
        assert torch.isfinite(empty).all()
        assert float((empty - given).abs().max()) > 1e-6
        assert torch.equal(given, again)
