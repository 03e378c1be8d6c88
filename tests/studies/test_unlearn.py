import copy
import math
from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest
import torch

from recunlearn.foundation.errors import UsageError
from recunlearn.studies.losses import entity_losses, samples
from recunlearn.studies.methods import find
from recunlearn.studies.pool import draw_pool, rest_of
from recunlearn.studies.unlearn import FEWEST_STEPS, Budget, Trainer, calibrate, stopped
from recunlearn.testing.checkerboard import CheckerboardWorld
from recunlearn.testing.linear import LinearWorld
from recunlearn.unlearning.goal import Goal, next_look


@pytest.fixture(scope="module")
def world():
    return CheckerboardWorld()


def trainer_of(world):
    pool = draw_pool(world, 20, 5, 0)
    return Trainer(world, pool, rest_of(world, pool), 128)


def goal_of(trainer, target, most=60):
    batches = samples(trainer.subject, trainer.forget, 0)
    loss = lambda m: float(entity_losses(trainer.subject, m, batches, trainer.forget).mean())  # noqa: E731
    return Goal(loss, loss(trainer.subject.model), target, most)


def test_entity_losses_are_means_over_own_samples(world):
    rows = np.array([7, 2])
    losses = entity_losses(world, world.model, samples(world, rows, 0), rows)
    for row, loss in zip(rows, losses, strict=True):
        items = torch.from_numpy(np.flatnonzero(world.consumed[row]))
        with torch.no_grad():
            score = world.model(torch.full_like(items, int(row)), items)
        assert loss == pytest.approx(torch.nn.functional.softplus(-score).mean().item(), abs=1e-6)


def test_entity_without_samples_has_no_loss():
    world = CheckerboardWorld(n_users=6, n_items=6, density=0.3, epochs=1)
    empty = np.flatnonzero(world.n_samples() == 0)
    assert len(empty)
    everyone = np.arange(6)
    losses = entity_losses(world, world.model, samples(world, everyone, 0), everyone)
    assert np.array_equal(np.isnan(losses), world.n_samples() == 0)


def test_pool_is_fixed_by_its_seed(world):
    pool = draw_pool(world, 12, 3, 7)
    assert np.array_equal(pool, draw_pool(world, 12, 3, 7))
    assert not np.array_equal(pool, draw_pool(world, 12, 3, 8))
    assert len(np.unique(pool)) == 12
    assert sorted([*pool, *rest_of(world, pool)]) == list(range(40))


def test_pool_is_at_most_half_of_all(world):
    assert len(draw_pool(world, 300, 10, 0)) == 20
    with pytest.raises(
        UsageError, match=r"between 1 and 10 \(half of the 20 users that can be probed.*got 11"
    ):
        draw_pool(world, 300, 11, 0)


def test_users_with_one_interaction_are_not_probed():
    world = CheckerboardWorld(n_users=30, n_items=6, density=0.5, epochs=1)
    few = np.flatnonzero(world.n_samples() < 2)
    assert len(few)
    assert not np.isin(draw_pool(world, 15, 2, 0), few).any()


def test_unlearning_leaves_the_original_alone(world):
    before = copy.deepcopy(world.model.state_dict())
    list(islice(trainer_of(world).run(find("NPO"), seed=0, learning_rate=0.1), 5))
    assert all(torch.equal(v, before[k]) for k, v in world.model.state_dict().items())


def test_runs_repeat_by_seed(world):
    trainer, budget = trainer_of(world), Budget(4, 0.05, True)
    first, again, other = (
        trainer.unlearned(find("GradDiff"), budget, seed=s).user_embedding.weight for s in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("most", [20, 37, 160])
def test_looks_end_at_the_most_steps_and_are_close_near_the_target(most):
    steps = [0]
    while steps[-1] < most:
        steps.append(next_look(steps[-1], 0.0, most))
    assert steps[:2] == [0, 1]
    assert steps[-1] == most
    assert all(b - a <= max(1, a / 8) for a, b in pairwise(steps))
    assert next_look(most - 7, 0.5, most) == most - 6


@pytest.mark.parametrize("learning_rate", [1e-5, 0.01, 5.0])
@pytest.mark.parametrize("name", ["GradAscent", "SimNPO"])
def test_calibration_reaches_the_target_from_any_learning_rate(world, name, learning_rate):
    trainer = trainer_of(world)
    goal = goal_of(trainer, target=1.0)
    budget, model = calibrate(trainer, find(name), goal, learning_rate=learning_rate, seed=0)
    assert budget.reached
    assert FEWEST_STEPS <= budget.steps <= 60
    assert 1.0 <= goal.loss(model) < 1.5
    # the same budget again gives the same model
    again = trainer.unlearned(find(name), budget, seed=0)
    assert torch.equal(again.user_embedding.weight, model.user_embedding.weight)


@pytest.mark.parametrize("name", ["GradDiff", "NPO"])
def test_every_run_stops_just_past_the_target(world, name):
    """One step before the end the target is not reached: looks are one by one from halfway on."""
    trainer = trainer_of(world)
    goal = goal_of(trainer, target=1.0, most=60)
    first, _ = calibrate(trainer, find(name), goal, learning_rate=0.01, seed=0)
    for seed in (1, 2):
        budget, model = stopped(trainer, find(name), goal, learning_rate=first.learning_rate, seed=seed)
        assert budget.reached
        assert goal.closed(model) >= 1
        earlier = trainer.unlearned(find(name), replace(budget, steps=budget.steps - 1), seed=seed)
        assert goal.closed(earlier) < 1


def test_a_method_that_levels_off_is_reported():
    # UNDIAL on a softmax over all items: the targets of a user's own items contradict each other
    world = CheckerboardWorld(family="softmax")
    trainer = trainer_of(world)
    goal = goal_of(trainer, target=8.0)
    budget, model = calibrate(trainer, find("UNDIAL"), goal, learning_rate=0.01, seed=0)
    assert not budget.reached
    assert math.isfinite(goal.loss(model))


def test_without_a_way_to_go_a_few_steps_are_made(world):
    trainer = trainer_of(world)
    budget, _ = calibrate(
        trainer, find("GradAscent"), goal_of(trainer, target=0.0), learning_rate=0.01, seed=0
    )
    assert budget == Budget(FEWEST_STEPS, 0.01, False)


def test_fixed_parameters_stay_fixed():
    world = LinearWorld(n_users=12)
    everyone = np.arange(12)
    model = Trainer(world, everyone, everyone, 64).unlearned(find("GradDiff"), Budget(3, 0.1, True), seed=0)
    assert torch.equal(model.item_features.weight, world.model.item_features.weight)
    assert not torch.equal(model.user_embedding.weight, world.model.user_embedding.weight)
