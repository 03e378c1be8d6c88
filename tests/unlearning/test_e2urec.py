"""E2URec: teachers by hand, schedule, adapters that merge, and peft as oracle."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

from recunlearn.foundation.errors import UsageError
from recunlearn.testing.checkerboard import CheckerboardWorld
from recunlearn.testing.linear import LinearWorld
from recunlearn.unlearning.lora import add_adapters, merge_adapters, other_rows
from recunlearn.unlearning.methods.e2urec import forgetting_teacher, teach
from recunlearn.unlearning.registry import make

FORGET = np.array([3, 8])
SETTINGS = {"batch_size": 32, "learning_rate": 0.03, "steps": 8, "augment_epochs": 5}


class Net(nn.Module):
    """Reads one table by calling it, the other by its weight."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.user, self.item, self.out = (
            nn.Embedding(9, 4),
            nn.Embedding(7, 4, padding_idx=0),
            nn.Linear(4, 3),
        )

    def forward(self, user):
        return self.out(self.user(user)) @ self.out(self.item.weight).T


@pytest.fixture(scope="module")
def world():
    return CheckerboardWorld(n_users=20, n_items=16, epochs=40)


def adapted(net, **options):
    return add_adapters(net, **{"rank": 2, "alpha": 4.0, "seed": 0, "frozen": {}, **options})


def disturb(net):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in net.parameters():
            if p.requires_grad:
                p.normal_(generator=generator)


def test_forgetting_teacher_by_hand():
    # raised by training on (1 -> 1.5): 1 - 2 · .5 = 0; lowered (2 -> 1): stays
    original, augmented = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.5, 1.0]])
    assert forgetting_teacher(original, augmented, 2.0).tolist() == [[0.0, 2.0]]


def test_teach_by_hand_and_by_torch():
    # softmax(0, log 3) = (¼, ¾); CE to (½, ½): -¼ log ½ - ¾ log ½ = log 2
    assert teach(torch.tensor([[0.0, 1.098612]]), torch.zeros(1, 2)).item() == pytest.approx(
        0.693147, abs=1e-6
    )
    torch.manual_seed(0)
    teacher, scores = torch.randn(4, 5), torch.randn(4, 5)
    assert teach(teacher, scores).item() == pytest.approx(F.cross_entropy(scores, teacher.softmax(1)).item())


def test_schedule_forgets_alone_for_one_epoch():
    method = make("E2URec", {"weight": 0.6})
    assert [method.weights(step, 2) for step in range(4)] == [(1, 0), (1, 0), (0.4, 0.6), (0.4, 0.6)]
    with pytest.raises(UsageError, match="steps must be 12 or more, but got 10"):
        make("E2URec", {"steps": 10}).look_from(6)


@pytest.mark.parametrize("family", ["pointwise", "pairwise", "softmax"])
def test_remembering_is_training_loss_and_teaching(family):
    world = CheckerboardWorld(n_users=20, n_items=16, epochs=40, family=family)
    method = make("E2URec", SETTINGS)
    other = world.retrain(FORGET, seed=2)
    batch = world.draw(np.arange(20), 50, torch.Generator().manual_seed(0), negatives=True)
    with torch.no_grad():
        found = method._remember(world, other, method.stand_in(world), batch)
        predicted = -world.log_likelihood(other, batch).mean()
        taught = teach(world.class_scores(world.model, batch), world.class_scores(other, batch))
    assert found.item() == pytest.approx((predicted + taught).item(), abs=1e-5)


def test_adapters_change_nothing_at_first():
    net, ids = Net(), torch.arange(9)
    before = net(ids)
    assert torch.equal(adapted(net)(ids), before)


def test_merged_equals_adapter():
    net, ids = adapted(Net()), torch.arange(9)
    disturb(net)
    expected, parameters = net(ids), set(dict(Net().named_parameters()))
    assert (expected - Net()(ids)).abs().max() > 0.1
    merged = merge_adapters(net)
    torch.testing.assert_close(merged(ids), expected, atol=1e-6, rtol=1e-6)
    assert set(dict(merged.named_parameters())) == parameters
    assert not any(parametrize.is_parametrized(m) for m in merged.modules())


def test_method_merges_to_within_rounding(world):
    method = make("E2URec", SETTINGS)
    run = method._run(world, FORGET, 0, method.reference(world, FORGET, 0))
    run()
    batch = next(world.batches(batch_size=500))
    with torch.no_grad():
        before = world.log_likelihood(run.model, batch)
        after = world.log_likelihood(method.merge(run.model), batch)
    torch.testing.assert_close(after, before, atol=1e-6, rtol=0)
    assert (before - world.log_likelihood(world.model, batch)).abs().max() > 0.01


def test_adapter_is_low_rank_by_hand():
    net = adapted(nn.Linear(3, 2), rank=1, alpha=2.0)
    base, low = net.parametrizations.weight.original.clone(), net.parametrizations.weight[0]
    with torch.no_grad():
        low.p.copy_(torch.tensor([[1.0], [3.0]]))
        low.q.copy_(torch.tensor([[1.0, 0.0, 2.0]]))
    # alpha / rank = 2: 2 · (1, 3)ᵀ (1, 0, 2)
    change = torch.tensor([[2.0, 0.0, 4.0], [6.0, 0.0, 12.0]])
    torch.testing.assert_close(net.weight - base, change, atol=1e-5, rtol=0)


def test_frozen_rows_stay():
    frozen = torch.tensor([True] * 5 + [False] * 4)
    net = adapted(Net(), frozen={"user.weight": frozen})
    disturb(net)
    change = (merge_adapters(net).user.weight != Net().user.weight).any(1)
    assert torch.equal(change, ~frozen)


def test_rows_of_other_users_are_known(world):
    rows = other_rows(world, FORGET)
    assert list(rows) == ["user_embedding.weight"]
    assert (~rows["user_embedding.weight"]).nonzero().squeeze(1).tolist() == FORGET.tolist()


def test_only_the_forgotten_rows_of_the_user_table_change(world):
    found = make("E2URec", SETTINGS).unlearn(world, FORGET)
    changed = (found.model.user_embedding.weight != world.model.user_embedding.weight).any(1)
    assert changed.nonzero().squeeze(1).tolist() == FORGET.tolist()
    assert (found.model.item_embedding.weight != world.model.item_embedding.weight).any()
    # users: 2 x 2 and 2 x 2; items: 16 x 2 and 2 x 2; output: 1 x 1 and 1 x 2
    assert found.parameters == 8 + 36 + 3
    assert torch.equal(found.model.out.bias, world.model.out.bias)


def test_fixed_tables_get_no_adapter():
    world = LinearWorld(n_users=12)
    found = make("E2URec", SETTINGS).unlearn(world, FORGET)
    assert torch.equal(found.model.item_features.weight, world.model.item_features.weight)


def test_a_model_without_a_place_for_adapters_is_refused():
    with pytest.raises(UsageError, match="GRUCell has no trainable linear layer"):
        adapted(nn.GRUCell(2, 2))


def test_peft_makes_the_same_weights():
    peft = pytest.importorskip("peft")
    net = Net()
    config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=["user", "item", "out"])
    theirs = peft.inject_adapter_in_model(config, copy.deepcopy(net))
    disturb(theirs)
    ours = adapted(copy.deepcopy(net))
    with torch.no_grad():
        for name in ("user", "item"):
            low, layer = ours.get_submodule(name).parametrizations.weight[0], theirs.get_submodule(name)
            low.p.copy_(layer.lora_embedding_A["default"].T)
            low.q.copy_(layer.lora_embedding_B["default"].T)
        low, layer = ours.out.parametrizations.weight[0], theirs.out
        low.p.copy_(layer.lora_B["default"].weight)
        low.q.copy_(layer.lora_A["default"].weight)
    merged = merge_adapters(ours)
    for name in ("user", "item", "out"):
        layer = theirs.get_submodule(name)
        layer.merge()
        torch.testing.assert_close(
            merged.get_submodule(name).weight, layer.base_layer.weight, atol=1e-6, rtol=0
        )
