import math

import numpy as np
import pytest

from recunlearn.studies.benchmark.budget import Budget, Trial, centre_of, chosen, next_try, tune, with_budget
from recunlearn.testing.checkerboard import CheckerboardWorld
from recunlearn.unlearning.goal import MeanLoss


def test_the_gentlest_of_the_trials_near_the_target_is_chosen():
    # start 1, target 2: within .1 of the way are levels from 1.9 to 2.1
    near, gentle = Trial(0.1, 5, 2.05, 0.9), Trial(0.01, 40, 1.95, 0.7)
    far, broken = Trial(1.0, 1, 9.0, 0.1), Trial(3.0, 1, math.inf, 0.0)
    assert chosen([near, gentle, far, broken], 1.0, 2.0) is gentle
    assert chosen([far, broken, Trial(0.001, 99, 1.5, 0.1)], 1.0, 2.0).level == 1.5


def test_the_learning_rate_is_bracketed_until_a_trial_is_near():
    short, over = Trial(0.1, 60, 1.2, 0.5, 1.0), Trial(1.6, 1, 3.0, 0.5, 1.0)
    assert next_try([short], 1.0, 2.0) == pytest.approx((0.4, 1.0))
    assert next_try([over], 1.0, 2.0) == pytest.approx((0.4, 1.0))
    assert next_try([short, over], 1.0, 2.0) == pytest.approx((0.4, 1.0))  # √(.1 · 1.6)
    assert next_try([Trial(0.1, 9, math.inf, 0.5, 1.0)], 1.0, 2.0) == pytest.approx((0.025, 1.0))


def test_then_the_weight_of_the_forget_loss_is():
    too_low_a_rate, near = Trial(0.1, 60, 1.2, 0.5, 1.0), Trial(0.4, 20, 2.0, 0.9, 1.0)
    made = [too_low_a_rate, near]
    assert next_try(made, 1.0, 2.0) == pytest.approx((0.4, 0.25))
    made.append(Trial(0.4, 30, 2.0, 0.7, 0.25))
    assert next_try(made, 1.0, 2.0) == pytest.approx((0.4, 0.0625))
    made.append(Trial(0.4, 60, 1.5, 0.5, 0.0625))
    assert next_try(made, 1.0, 2.0) == pytest.approx((0.4, 0.125))  # √(.25 · .0625)


def test_methods_without_a_weight_go_on_with_the_learning_rate():
    near = Trial(0.4, 20, 2.0, 0.9)
    assert next_try([near], 1.0, 2.0) == (pytest.approx(0.1), None)
    assert centre_of("GradAscent", {}) == (1e-3, None)  # nothing beside the forget loss
    assert centre_of("E2URec", {})[1] is None
    assert centre_of("SimNPO", {}) == (2e-3, 0.125)
    assert centre_of("NPO", {"gamma": 0.5, "learning_rate": 0.1}) == (0.1, 0.5)


@pytest.fixture(scope="module")
def world():
    return CheckerboardWorld()


@pytest.fixture(scope="module")
def tuned(world):
    forget = np.array([0, 1, 2, 3])
    retrained = [world.population_rows(world.retrain(forget, seed=s), forget) for s in (1, 2)]
    values = {"batch_size": 64}
    return tune(world, "GradDiff", values, forget, retrained, trials=4, most=60, seed=0)


def test_a_budget_brings_the_set_to_the_retrained_loss(world, tuned):
    forget = np.array([0, 1, 2, 3])
    assert len(tuned.trials) == 4
    assert tuned.reached
    method = with_budget("GradDiff", {"batch_size": 64}, tuned, world, forget)
    assert (method.settings.steps, method.settings.until) == (tuned.steps, "steps")
    assert method.settings.gamma == tuned.gamma < tuned.trials[0].gamma == 1
    level = MeanLoss(world, forget, 0)(method.unlearn(world, forget).model)
    assert abs(level - tuned.target) <= 0.1 * (tuned.target - tuned.start)


def test_a_budget_survives_json(tuned):
    assert Budget.from_plain(tuned.plain()) == tuned


def test_methods_without_steps_have_no_budget(world):
    forget = np.array([0])
    budget = tune(world, "retrain", {}, forget, [], trials=3, most=5, seed=0)
    assert (budget.steps, budget.trials) == (None, ())
    assert with_budget("retrain", {}, budget, world, forget).name == "retrain"


def test_where_retraining_forgets_nothing_there_is_a_small_budget(world):
    forget = np.array([0, 1])
    budget = tune(world, "GradAscent", {}, forget, [world.model], trials=2, most=60, seed=0)
    assert (budget.steps, budget.reached, budget.trials) == (10, False, ())


def test_a_budget_is_no_shorter_than_the_method_must_run(world):
    forget = np.array([0, 1, 2, 3])
    short = Budget(learning_rate=1e-3, steps=1)
    method = with_budget("E2URec", {"batch_size": 16}, short, world, forget)
    epoch = -(-int(world.n_samples()[forget].sum()) // 16)
    assert method.settings.steps == 2 * epoch
