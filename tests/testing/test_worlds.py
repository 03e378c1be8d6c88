import math

import numpy as np
import pytest
import torch

from recunlearn.studies.losses import entity_losses, samples
from recunlearn.studies.methods import find
from recunlearn.studies.unlearn import Budget, Trainer
from recunlearn.subjects.contract import Subject
from recunlearn.testing.checkerboard import CheckerboardWorld
from recunlearn.testing.linear import LinearWorld
from recunlearn.testing.subject_contract import SubjectContract


class TestPointwiseCheckerboard(SubjectContract):
    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls):
        return CheckerboardWorld(n_users=20, n_items=16, epochs=10)


class TestPairwiseCheckerboard(SubjectContract):
    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls):
        return CheckerboardWorld(n_users=20, n_items=16, epochs=10, family="pairwise")


class TestSoftmaxCheckerboard(SubjectContract):
    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls):
        return CheckerboardWorld(n_users=20, n_items=16, epochs=10, family="softmax")


class TestLinearWorld(SubjectContract):
    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls):
        return LinearWorld(n_users=16)


@pytest.mark.parametrize("family", ["pointwise", "pairwise", "softmax"])
def test_checkerboard_scores_own_colour_higher(family):
    world = CheckerboardWorld(family=family)
    users, items = torch.arange(40), torch.arange(30)
    with torch.no_grad():
        scores = world.model(users[:, None], items[None, :])
    own = (users[:, None] + items[None, :]) % 2 == 0
    unseen = torch.from_numpy(~world.consumed)
    # an own-colour item that the user never saw stands above every item of the other colour
    best_other = scores.masked_fill(own, -torch.inf).amax(1, keepdim=True)
    assert (scores > best_other)[own & unseen].float().mean() > 0.95


def test_strangers_of_the_checkerboard_have_no_colour():
    world = CheckerboardWorld(family="pairwise")
    pool = np.arange(20)  # ten users of each colour, so that the mean of the others has none
    strangers = world.population_rows(world.retrain(pool, seed=1), pool)
    losses = entity_losses(world, strangers, samples(world, pool, 0), pool)
    assert losses.mean() == pytest.approx(math.log(2), abs=0.02)


def test_worlds_are_subjects():
    assert isinstance(CheckerboardWorld(n_users=4, n_items=4, epochs=1), Subject)
    assert isinstance(LinearWorld(n_users=4), Subject)


def test_linear_world_unlearns_by_its_formula():
    world = LinearWorld()
    everyone = np.arange(len(world.entities))
    trainer = Trainer(world, everyone, everyone, batch_size=4096)
    batches = samples(world, everyone, 0)
    before = entity_losses(world, world.model, batches, everyone)
    # every loss before: softplus(-2) = log(1 + exp(-2)) = 0.126928
    assert before == pytest.approx(np.full(48, 0.126928), abs=1e-6)
    model = trainer.unlearned(find("GradAscent"), Budget(5, 1e-3, True), seed=0)
    after = entity_losses(world, model, batches, everyone)
    # Adam's first steps are sign steps while the gradient keeps its size
    assert after - before == pytest.approx(world.increase(1e-3, 5), rel=0.05)


def test_linear_world_hides_difficulty_from_totals():
    world = LinearWorld()
    assert world.circuits().sum(1) == pytest.approx(np.full(48, 2.0), abs=1e-5)
    assert world.length[world.fragile].min() > world.length[~world.fragile].max()
