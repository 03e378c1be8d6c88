"""The loop of the gradient methods: closed forms, stopping rule, resume after a kill, divergence."""

import csv
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from recunlearn.foundation.errors import UsageError
from recunlearn.studies.methods import find
from recunlearn.studies.unlearn import Budget, Trainer
from recunlearn.testing.checkerboard import CheckerboardWorld
from recunlearn.testing.linear import LinearWorld
from recunlearn.unlearning import journal
from recunlearn.unlearning.goal import MeanLoss
from recunlearn.unlearning.methods.grad_ascent import GradAscent
from recunlearn.unlearning.registry import make
from recunlearn.unlearning.request import rest_of

FORGET = np.array([3, 8, 11])
QUICK = {"batch_size": 64, "learning_rate": 0.02}
STEPS = {**QUICK, "steps": 12, "until": "steps"}


class Killed(Exception):
    pass


@pytest.fixture(scope="module")
def world():
    return CheckerboardWorld(n_users=20, n_items=16, epochs=40)


def weights(model):
    return model.state_dict()


def same(left, right):
    return all(torch.equal(v, right.state_dict()[k]) for k, v in left.state_dict().items())


def kill_at(step):
    def progress(title, done, total):
        if done == step:
            raise Killed

    return progress


def test_plain_gradient_steps_have_a_closed_form():
    world, user, rate, steps = LinearWorld(n_users=12), 2, 0.05, 7
    method = make("GradAscent", {"optimiser": "sgd", "learning_rate": rate, "steps": steps, "until": "steps"})
    found = method.unlearn(world, np.array([user]))
    batch = next(world.batches(np.array([user]), batch_size=9))
    # ∂ log σ(s) / ∂w = σ(-s) x, and s = w · x: each step takes rate · σ(-s) ‖x‖² off the score
    score, size = 2.0, float((found.model.item_features(batch.columns["item_id"][0]) ** 2).sum())
    for _ in range(steps):
        score -= rate * size / (1 + math.exp(score))
    assert world.class_scores(found.model, batch)[:, 1].tolist() == pytest.approx([score] * 5, abs=1e-5)
    before, after = (m.user_embedding.weight for m in (world.model, found.model))
    assert torch.equal(before[np.arange(12) != user], after[np.arange(12) != user])


def test_adam_takes_sign_steps_at_first():
    world = LinearWorld(n_users=12)
    settings = {"learning_rate": 1e-3, "steps": 5, "until": "steps", "batch_size": 4096}
    found = make("GradAscent", settings).unlearn(world, np.arange(11))
    batch = next(world.batches(np.arange(11), batch_size=55))
    with torch.no_grad():
        rise = world.log_likelihood(world.model, batch) - world.log_likelihood(found.model, batch)
    assert rise.view(11, 5).mean(1).numpy() == pytest.approx(world.increase(1e-3, 5)[:11], rel=0.05)


@pytest.mark.parametrize("name", ["GradAscent", "GradDiff"])
def test_the_probe_makes_the_same_model_without_lightning(world, name):
    trainer = Trainer(world, FORGET, rest_of(world, FORGET), 64)
    expected = trainer.unlearned(find(name), Budget(12, 0.02, True), seed=5)
    assert same(make(name, STEPS).unlearn(world, FORGET, seed=5).model, expected)


def test_npo_with_a_small_beta_makes_grad_diffs_model(world):
    sgd = {**STEPS, "optimiser": "sgd", "learning_rate": 0.5}
    npo = make("NPO", {**sgd, "beta": 1e-5}).unlearn(world, FORGET).model
    diff = make("GradDiff", sgd).unlearn(world, FORGET).model
    for name, value in weights(npo).items():
        torch.testing.assert_close(value, weights(diff)[name], atol=2e-4, rtol=0)
    assert not same(npo, diff)


def test_stops_just_past_the_target(world):
    found = make("GradDiff", QUICK).unlearn(world, FORGET)
    look = MeanLoss(world, FORGET, 0)
    target = look(world.population_rows(world.model, FORGET))
    assert found.reached
    assert look(found.model) >= target
    one_less = make("GradDiff", {**QUICK, "steps": found.steps - 1}).unlearn(world, FORGET)
    assert one_less.reached is False
    assert look(one_less.model) < target


def test_stops_at_a_given_loss(world):
    found = make("GradDiff", {**QUICK, "target": 0.9}).unlearn(world, FORGET)
    assert found.reached
    assert 0.9 <= MeanLoss(world, FORGET, 0)(found.model) < 1.1


def test_a_target_below_the_loss_is_refused(world):
    with pytest.raises(UsageError, match=r"target must be above 0\.\d+, the loss .* but got 0\.01"):
        make("NPO", {"target": 0.01}).unlearn(world, FORGET)


def test_without_entity_vectors_strangers_say_nothing(world, monkeypatch):
    monkeypatch.setattr(world, "population_rows", lambda model, entities: model)
    with pytest.raises(UsageError, match=r"does not tell when to stop.*target = .*until = 'steps'"):
        make("NPO").cost(world, FORGET)
    assert make("NPO", STEPS).unlearn(world, FORGET).reached is None


@pytest.mark.parametrize("name", ["NPO", "E2URec"])
@pytest.mark.parametrize("step", [1, 7])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(world, tmp_path, monkeypatch, name, step):
    monkeypatch.setattr(journal, "SECONDS_APART", 0.0)
    method = make(name, {**STEPS, "until": "stranger"})
    whole = method.unlearn(world, FORGET, seed=1, folder=tmp_path / "whole")
    with pytest.raises(Killed):
        method.unlearn(world, FORGET, seed=1, folder=tmp_path / "cut", progress=kill_at(step + 1))
    told = []
    cut = method.unlearn(
        world, FORGET, seed=1, folder=tmp_path / "cut", progress=lambda _, done, __: told.append(done)
    )
    assert told[0] == step + 1
    assert same(cut.model, whole.model)
    assert (cut.steps, cut.reached) == (whole.steps, whole.reached)
    for column, values in whole.history.items():
        assert cut.history[column] == pytest.approx(values, abs=0, nan_ok=True)
    first, second = ((tmp_path / n / "metrics.csv").read_text() for n in ("whole", "cut"))
    assert first == second
    assert [p.name for p in (tmp_path / "cut").iterdir()] == ["metrics.csv"]


@pytest.mark.parametrize("other", [{"seed": 2}, {"forget": FORGET[:2]}, {"beta": 0.2}])
def test_another_request_does_not_go_on_from_there(world, tmp_path, monkeypatch, other):
    monkeypatch.setattr(journal, "SECONDS_APART", 0.0)
    with pytest.raises(Killed):
        make("NPO", STEPS).unlearn(world, FORGET, seed=1, folder=tmp_path, progress=kill_at(5))
    told = []
    make("NPO", {**STEPS, **({"beta": other["beta"]} if "beta" in other else {})}).unlearn(
        world,
        other.get("forget", FORGET),
        seed=other.get("seed", 1),
        folder=tmp_path,
        progress=lambda _, done, __: told.append(done),
    )
    assert told[0] == 1


def test_a_damaged_journal_is_ignored(world, tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "SECONDS_APART", 0.0)
    whole = make("NPO", STEPS).unlearn(world, FORGET)
    with pytest.raises(Killed):
        make("NPO", STEPS).unlearn(world, FORGET, folder=tmp_path, progress=kill_at(5))
    (tmp_path / "unlearning.ckpt").write_bytes(b"PK not a checkpoint")
    assert same(make("NPO", STEPS).unlearn(world, FORGET, folder=tmp_path).model, whole.model)


def test_the_log_is_the_history(world, tmp_path):
    found = make("GradDiff", {**STEPS, "until": "stranger"}).unlearn(world, FORGET, folder=tmp_path)
    rows = list(csv.DictReader((tmp_path / "metrics.csv").read_text().splitlines()))
    assert [int(r["step"]) for r in rows] == list(range(1, found.steps + 1))
    for column in ("forget_loss", "retain_loss", "level"):
        logged = [float(r[column]) if r[column] else math.nan for r in rows]
        assert logged == pytest.approx(found.history[column], nan_ok=True)
    # the first step sees the original model
    batch = world.draw(FORGET, 64, torch.Generator().manual_seed(0))
    first = world.log_likelihood(world.model, batch).mean().item()
    assert found.history["forget_loss"][0] == pytest.approx(first, abs=1e-6)


def test_a_diverging_loss_keeps_the_last_good_state(world):
    found = make("GradDiff", {**STEPS, "learning_rate": 1e30}).unlearn(world, FORGET)
    assert found.diverged
    # the first step already leaps to where the loss is no number: what is left is the original
    assert same(found.model, world.model)
    assert all(math.isfinite(v) for v in found.history["forget_loss"])


def test_a_last_step_into_nothing_is_noticed(world):
    class Leap(GradAscent):
        def forget_loss(self, subject, model, original, batch):
            loss = super().forget_loss(subject, model, original, batch)
            return loss + (0 * model.out.bias / torch.zeros(())).sum().clamp(0, 0).nan_to_num(0.0)

    # the loss is a number, its gradient is not
    found = Leap(make("GradAscent", {**STEPS, "steps": 1}).settings).unlearn(world, FORGET)
    assert found.diverged
    assert all(torch.isfinite(p).all() for p in found.model.parameters())


def test_clipping_bounds_the_step(world):
    sgd = {**STEPS, "optimiser": "sgd", "learning_rate": 1.0, "steps": 1}

    def moved(**more):
        found = make("GradAscent", {**sgd, **more}).unlearn(world, FORGET).model
        changes = [a - b for a, b in zip(weights(found).values(), weights(world.model).values(), strict=True)]
        return torch.cat([c.flatten() for c in changes]).norm().item()

    free = moved()
    assert moved(clip=free / 4) == pytest.approx(free / 4, rel=1e-4)
    assert moved(clip=free * 4) == pytest.approx(free, rel=1e-4)


def test_model_is_in_eval_mode_throughout(world):
    modes = []

    class Noted(GradAscent):
        def forget_loss(self, subject, model, original, batch):
            modes.append(model.training or any(m.training for m in model.modules()))
            return super().forget_loss(subject, model, original, batch)

    Noted(make("GradAscent", STEPS).settings).unlearn(world, FORGET)
    assert modes == [False] * 12


def test_retaining_by_divergence_starts_at_nothing(world):
    found = make("GradDiff", {**STEPS, "retain": "kl"}).unlearn(world, FORGET)
    assert found.history["retain_loss"][0] == pytest.approx(0, abs=1e-6)
    assert found.history["retain_loss"][-1] > 0


def test_weights_of_the_losses(world):
    """With alpha 0 nothing is retained; gamma scales plain steps."""
    sgd = {**STEPS, "optimiser": "sgd", "steps": 3}
    alone = make("GradDiff", {**sgd, "alpha": 0.0, "gamma": 2.0}).unlearn(world, FORGET)
    ascent = make("GradAscent", {**sgd, "learning_rate": 0.04}).unlearn(world, FORGET)
    for name, value in weights(alone.model).items():
        torch.testing.assert_close(value, weights(ascent.model)[name])
    assert all(math.isnan(v) for v in alone.history["retain_loss"])


def test_looks_come_closer_together(world):
    found = make("SimNPO", {**QUICK, "learning_rate": 0.005, "steps": 200}).unlearn(world, FORGET)
    looked = [n for n, level in enumerate(found.history["level"], 1) if not math.isnan(level)]
    assert looked[0] == 1
    assert looked[-1] == found.steps
    assert all(b - a <= max(1, a // 8) for a, b in pairwise(looked))


def test_cost_names_what_will_happen(world):
    cost = make("NPO", {**STEPS, "steps": 10}).cost(world, FORGET)
    assert cost.steps == 10
    # 10 steps of 64 + 64 samples
    assert cost.passes == pytest.approx(1280 / world.n_samples().sum())
    # users 20 x 2, items 16 x 2, output 2 + 1
    assert cost.parameters == 75
    assert f"NPO forgets 3 of 20 users ({world.n_samples()[FORGET].sum()} interactions)" in cost.sentence
    assert make("GradAscent", STEPS).cost(world, FORGET).passes == pytest.approx(
        12 * 64 / world.n_samples().sum()
    )


def test_mean_loss_is_over_the_chosen_samples(world):
    batch = next(world.batches(FORGET, batch_size=1000))
    with torch.no_grad():
        expected = -world.log_likelihood(world.model, batch).mean().item()
    assert MeanLoss(world, FORGET, 0, samples=1000)(world.model) == pytest.approx(expected, abs=1e-6)
    few = next(world.batches(FORGET[::2], batch_size=1000, per_entity=2))
    with torch.no_grad():
        expected = -world.log_likelihood(world.model, few).mean().item()
    assert MeanLoss(world, FORGET, 0, users=2, samples=2)(world.model) == pytest.approx(expected, abs=1e-6)


def test_frozen_parameters_stay_frozen():
    world = LinearWorld(n_users=12)
    found = make("GradDiff", STEPS).unlearn(world, np.arange(3))
    assert torch.equal(found.model.item_features.weight, world.model.item_features.weight)
    assert not found.model.item_features.weight.requires_grad
    assert isinstance(found.model.user_embedding.weight, nn.Parameter)
    assert found.parameters == 12 * 12
