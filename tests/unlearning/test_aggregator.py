"""RecEraser's aggregator: by hand, against plain loops, and what its gradient reaches."""

import math

import pytest
import torch
from torch import nn

from recunlearn.subjects.parts import Rows, Vectors
from recunlearn.testing.checkerboard import CheckerboardWorld
from recunlearn.unlearning.shards.aggregator import (
    Aggregator,
    Attention,
    Translation,
    own_parameters,
    softmax_within,
)


@pytest.fixture(scope="module")
def world():
    return CheckerboardWorld(12, 8, family="pairwise", epochs=10)


@pytest.fixture(scope="module")
def parts(world):
    """Vectors of two sub-models, users dealt out by turns."""
    owner = world.pairs()[0]
    return [world.vectors(world.train_on(owner % 4 // 2 == shard, seed=0)) for shard in (0, 1)]


def seen_by(world, shards=2):
    owner, item = world.pairs()
    entities, items = (torch.zeros(shards, n, dtype=torch.bool) for n in (12, 8))
    entities[owner % 4 // 2, owner] = True
    items[owner % 4 // 2, item] = True
    return entities, items


def make(world, parts, seed=0):
    return Aggregator(world, parts, *seen_by(world), seed=seed)


def test_softmax_within_groups():
    # Group 0: 1 and 1 + log 3 -> 1/4, 3/4. Group 2: alone -> 1.
    found = softmax_within(torch.tensor([1.0, 5.0, 1.0 + math.log(3)]), torch.tensor([0, 2, 0]), 3)
    torch.testing.assert_close(found, torch.tensor([0.25, 1.0, 0.75]))


def test_attention_by_hand():
    # d = 2, one unit: W_A = (1, 0), b_A = 0, h = 1. Row 0: vectors (1, 0) and (1 + log 3, 2), weights relu
    # of the first number, so alpha = 1/4 and 3/4 and e = 1/4 (1, 0) + 3/4 (1 + log 3, 2).
    # Row 1 is only known to shard 1: e = (7, 8), whatever the weights.
    stacked = torch.tensor([[[1.0, 0.0], [-5.0, -6.0]], [[1.0 + math.log(3), 2.0], [7.0, 8.0]]])
    attention = Attention(stacked, torch.tensor([[True, False], [True, True]]))
    with torch.no_grad():
        attention.hidden.weight.copy_(torch.tensor([[1.0, 0.0]]))
        attention.hidden.bias.zero_()
        attention.score.weight.fill_(1.0)
    found = attention(Translation(2, 2))
    torch.testing.assert_close(found, torch.tensor([[1.0 + 0.75 * math.log(3), 1.5], [7.0, 8.0]]))


def test_attention_against_plain_loops():
    generator = torch.Generator().manual_seed(0)
    stacked, seen = torch.randn(3, 5, 4, generator=generator), torch.rand(3, 5, generator=generator) < 0.6
    seen[:, 2] = False
    attention, translation = Attention(stacked, seen), Translation(3, 4)
    with torch.no_grad():
        translation.weight += 0.3 * torch.randn(3, 4, 4, generator=generator)
        translation.bias += torch.randn(3, 4, generator=generator)
        found = attention(translation)
        for row in range(5):
            known = [m for m in range(3) if seen[m, row] or not seen[:, row].any()]
            moved = [stacked[m, row] @ translation.weight[m] + translation.bias[m] for m in known]
            weight = torch.stack([attention.score(torch.relu(attention.hidden(v)))[0] for v in moved])
            wanted = sum(a * v for a, v in zip(weight.softmax(0), moved, strict=True))
            torch.testing.assert_close(found[row], wanted)


def test_dropout_leaves_shards_out_but_never_all():
    # Row 0 has shards 0 and 1, row 1 only shard 1. At a rate of nearly 1 both candidates of row 0 are left
    # out, so all are kept again; at 1/2 a draw sometimes leaves one of them alone.
    stacked = torch.tensor([[[1.0, 0.0], [9.0, 9.0]], [[0.0, 1.0], [3.0, 4.0]]])
    attention = Attention(stacked, torch.tensor([[True, False], [True, True]]))
    translation, generator = Translation(2, 2), torch.Generator().manual_seed(0)
    whole = attention(translation)
    torch.testing.assert_close(attention(translation, (0.999999, generator)), whole)
    found = {tuple(attention(translation, (0.5, generator))[0].tolist()) for _ in range(40)}
    assert found == {(1.0, 0.0), (0.0, 1.0), tuple(whole[0].tolist())}
    assert attention(translation, (0.5, generator))[1].tolist() == [3.0, 4.0]


def test_tables_of_the_plain_model_are_the_aggregated_vectors(world, parts):
    aggregator = make(world, parts)
    model = aggregator.plain()
    torch.testing.assert_close(model.user_embedding.weight.data, aggregator.vectors("entity"))
    torch.testing.assert_close(model.item_embedding.weight.data, aggregator.vectors("item"))
    batch = next(world.batches(batch_size=1000))
    torch.testing.assert_close(world.log_likelihood(model, batch), aggregator.log_likelihood(batch))
    assert all(p.requires_grad for p in model.parameters())


def test_gradient_reaches_the_aggregator_alone(world, parts):
    aggregator = make(world, parts)
    aggregator.log_likelihood(next(world.batches(batch_size=1000))).mean().backward()
    reached = {n for n, p in aggregator.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    # A user is in one shard, so the users' attention has nothing to choose and no gradient.
    assert {n for n in reached if n.startswith(("translation.", "template."))} == {
        "translation.2.weight",
        "translation.2.bias",
        "template.model.out.weight",
    }
    assert {n for n in reached if n.startswith("attention.")} == {
        "attention.item.hidden.weight",
        "attention.item.hidden.bias",
        "attention.item.score.weight",
    }
    assert all(p.grad is None for part in parts for p in part.model.parameters())


def test_what_is_no_vector_begins_as_the_mean(world, parts):
    wanted = sum(p.model.out.weight for p in parts) / 2
    torch.testing.assert_close(make(world, parts).plain().out.weight, wanted)


def test_seed_decides_the_attention_and_leaves_the_global_generator_alone(world, parts):
    before = torch.get_rng_state()
    first, again, other = (make(world, parts, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    weight = [a.attention["item"].hidden.weight for a in (first, again, other)]
    assert torch.equal(weight[0], weight[1])
    assert not torch.equal(weight[0], weight[2])


def test_parameters_are_counted_beforehand(world, parts):
    aggregator = make(world, parts)
    wanted = sum(p.numel() for p in aggregator.parameters() if p.requires_grad)
    # Translation 2 (4 + 2); two attentions of one unit (2 + 1 + 1); out 2 + 1: 12 + 8 + 3 = 23.
    assert own_parameters(world.vectors(world.model), 2) == wanted == 23


class _OneTable(nn.Module):
    """Users 0 to 2 in rows 1 to 3, items 0 and 1 in rows 5 and 6, features in the last two."""

    def __init__(self, fill):
        super().__init__()
        self.table = nn.Embedding.from_pretrained(torch.arange(9.0)[:, None] + fill, freeze=False)


def test_users_and_items_within_one_table():
    parts = [
        Vectors(_OneTable(fill), (Rows("table.weight", 1, 3),), (Rows("table.weight", 5, 2),))
        for fill in (0.0, 100.0)
    ]
    users, items = torch.tensor([[True, True, False], [False, False, True]]), torch.ones(2, 2, dtype=bool)
    aggregator = Aggregator(CheckerboardWorld(4, 4, epochs=1), parts, users, items)
    table = aggregator.plain().table.weight.data[:, 0]
    # Users from their own shard, items mixed, all else the mean: row + 50.
    assert table[[1, 2, 3]].tolist() == [1.0, 2.0, 103.0]
    assert all(5.0 <= value <= 106.0 for value in table[[5, 6]].tolist())
    assert table[[0, 4, 7, 8]].tolist() == [50.0, 54.0, 57.0, 58.0]
    assert aggregator.template.model.table.weight.requires_grad
