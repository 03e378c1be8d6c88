"""Rows of tables that depend on parameters alone, and input rows, against the tables written out."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from recunlearn.circuits.attribution import EdgeAttribution
from recunlearn.circuits.discovery import discover
from recunlearn.circuits.input_rows import InputRows
from recunlearn.circuits.interception import intercepted
from recunlearn.circuits.subject import ModuleSubject
from recunlearn.circuits.tables import Tables
from recunlearn.subjects.contract import COMPUTED, Batch, PlanHints

USERS, ITEMS, D = 5, 6, 4


class TinyGraph(nn.Module):
    """Two propagations over a user-item graph, averaged: the shape of LightGCN (``mix`` makes it NGCF's)."""

    def __init__(self, mix: bool = False) -> None:
        super().__init__()
        self.user_embedding, self.item_embedding = nn.Embedding(USERS, D), nn.Embedding(ITEMS, D)
        self.mix = nn.Linear(D, D) if mix else None
        self.runs = 0
        seen = (torch.arange(USERS)[:, None] + torch.arange(ITEMS)[None]) % 3 == 0
        whole = torch.zeros(USERS + ITEMS, USERS + ITEMS)
        whole[:USERS, USERS:] = seen.float()
        whole[USERS:, :USERS] = seen.float().T
        self.graph = (whole / whole.sum(1, keepdim=True).clamp_min(1)).double().to_sparse()

    def forward(self) -> tuple[Tensor, Tensor]:
        self.runs += 1
        layer = torch.cat([self.user_embedding.weight, self.item_embedding.weight])
        layers = [layer]
        for _ in range(2):
            layer = torch.sparse.mm(self.graph, layer)
            if self.mix is not None:
                layer = functional.normalize(torch.tanh(self.mix(layer) * 3 + layer * layer), dim=1)
            layers.append(layer)
        whole = torch.cat(layers, 1) if self.mix is not None else torch.stack(layers, 1).mean(1)
        user, item = torch.split(whole, [USERS, ITEMS])
        return user, item

    def score(self, user: Tensor, item: Tensor) -> Tensor:
        users, items = self.forward()
        return (users[user] * items[item]).sum(1)


def graph(mix: bool = False) -> tuple[TinyGraph, Batch]:
    torch.manual_seed(1)
    columns = {"user_id": torch.tensor([0, 3, 1, 4, 2]), "item_id": torch.tensor([5, 1, 1, 0, 2])}
    return TinyGraph(mix).double().eval(), Batch(columns, torch.arange(5))


def metric(model: nn.Module, batch: Batch) -> Tensor:
    return functional.logsigmoid(model.score(*batch.columns.values()))


def test_layers_of_a_graph_model_are_components():
    model, batch = graph()
    plan = discover(ModuleSubject(model, metric), batch, groups=1)
    assert set(plan.edges) == {
        *(f"{side}_layer_{k} -> {side}" for side in ("user", "item") for k in range(3)),
        "user -> score",
        "item -> score",
        "score -> output",
    }


@pytest.mark.parametrize("mix", [False, True])
def test_edges_of_the_layers_by_plain_autograd(mix: bool):
    """The layers' tables as leaves, rows gathered by hand: integrated gradients of every layer's rows."""
    model, batch = graph(mix)
    plan = discover(ModuleSubject(model, metric), batch, groups=1)
    engine = EdgeAttribution(ModuleSubject(model, metric), plan, baseline="zero")
    found = dict(zip(plan.edges, engine.attribute(batch, n_steps=48).T, strict=True))
    with torch.no_grad():
        layers = [torch.cat([model.user_embedding.weight, model.item_embedding.weight])]
        products, ego = [], layers[0]
        for _ in range(2):
            products.append(torch.sparse.mm(model.graph, ego))
            ego = products[-1] if not mix else _mixed(model, products[-1])
    places = {"user": batch.columns["user_id"], "item": batch.columns["item_id"] + USERS}
    rows = {(s, k): t[i] for s, i in places.items() for k, t in enumerate([layers[0], *products])}
    expected = {key: torch.zeros(len(batch), dtype=torch.float64) for key in rows}
    for a in (torch.arange(400, dtype=torch.float64) + 0.5) / 400:  # the midpoint rule
        leaves = {key: (a * r).requires_grad_() for key, r in rows.items()}
        sides = [_aggregated(model, [leaves[s, k] for k in range(3)], mix) for s in ("user", "item")]
        value = functional.logsigmoid((sides[0] * sides[1]).sum(1))
        for key, g in zip(leaves, torch.autograd.grad(value.sum(), list(leaves.values())), strict=True):
            expected[key] += (g * rows[key]).sum(1) / 400
    for (side, k), value in expected.items():
        torch.testing.assert_close(found[f"{side}_layer_{k} -> {side}"], value, rtol=1e-3, atol=1e-4)


def _mixed(model: TinyGraph, rows: Tensor) -> Tensor:
    return functional.normalize(torch.tanh(model.mix(rows) * 3 + rows * rows), dim=1)


def _aggregated(model: TinyGraph, rows: list[Tensor], mix: bool) -> Tensor:
    if not mix:
        return sum(rows) / 3
    return torch.cat([rows[0], *(_mixed(model, r) for r in rows[1:])], 1)


def test_the_mean_of_a_layer_skips_the_row_that_stands_for_nothing():
    model, batch = graph()
    hints = PlanHints(padding={COMPUTED: 0, "user_embedding": 0, "item_embedding": 0})
    plan = discover(ModuleSubject(model, metric, hints), batch, groups=1)
    engine = EdgeAttribution(ModuleSubject(model, metric, hints), plan)
    layer = next(i for i, c in enumerate(plan.components) if c.name == "user_layer_1")
    with torch.no_grad():
        start = engine.ends(batch).starts[layer]
        whole = torch.cat([model.user_embedding.weight, model.item_embedding.weight])
        table = torch.sparse.mm(model.graph, whole)[:USERS]
    torch.testing.assert_close(start[1], table[1:].mean(0))
    torch.testing.assert_close(start[0], table[0])  # sample 0 is user 0: "nothing" stays


def test_tables_are_propagated_once_and_again_after_a_change():
    model, batch = graph()
    plan = discover(ModuleSubject(model, metric), batch)
    engine = EdgeAttribution(ModuleSubject(model, metric), plan)
    products = []
    plain = torch.sparse.mm

    class Counting(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            products.append(func is plain)
            return func(*args, **(kwargs or {}))

    with Counting():
        first = engine.explain(batch, internal_batch_size=1).value
    assert sum(products) == 2  # five tiles and the ends: two layers in all
    with torch.no_grad():
        model.user_embedding.weight.mul_(2)
    second = engine.explain(batch).value
    assert (first - second).abs().min() > 1e-6
    torch.testing.assert_close(second, metric(model, batch).detach())


def test_forward_is_given_back():
    model, batch = graph()
    discover(ModuleSubject(model, metric), batch)
    assert "forward" not in model.__dict__


def test_a_table_that_mixes_rows_is_a_look_up_itself():
    """A softmax over users is no row-wise operation: its output is the table."""
    model, batch = graph()

    def mixed(m: nn.Module, b: Batch) -> Tensor:
        table = torch.softmax(m.user_embedding.weight, 0)
        return (table[b.columns["user_id"]] * m.item_embedding(b.columns["item_id"])).sum(1)

    plan = discover(ModuleSubject(model, mixed), batch, groups=1)
    assert plan.edges == ("score -> output", "user -> score", "item -> score")
    found = EdgeAttribution(ModuleSubject(model, mixed), plan, baseline="zero").attribute(batch, n_steps=4)
    half = mixed(model, batch).detach() / 2  # a product of two: each carries half
    torch.testing.assert_close(found, torch.stack([2 * half, half, half], 1))


@pytest.mark.parametrize(
    "program",
    [
        lambda t: torch.relu(t)[2:6],
        lambda t: torch.stack([t, t * 2], 1).sum(1)[:, :3],
        lambda t: torch.cat([t, t + 1], 0)[9:14],
        lambda t: torch.cat([t, t + 1], 1)[:, 2:6],
        lambda t: t.chunk(2, 0)[1],
        lambda t: t.chunk(2, 1)[1] / 3,
        lambda t: functional.linear(t, t[:3]).split([4, 5])[1],
        lambda t: functional.normalize(t, p=2, dim=1),
        lambda t: t.unsqueeze(1).mean(dim=1),
        lambda t: t - t.mean(0, keepdim=True),
        lambda t: torch.softmax(t, 0)[1:],
    ],
)
def test_rows_of_a_table_equal_the_table(program):
    """Reading rows through any program gives what the whole table holds there."""
    model = nn.Embedding(9, 4).double()
    tables, index = Tables(model), torch.tensor([2, 0, 3])
    reads = []

    def on_lookup(_call, rows, weight, _compute):  # type: ignore[no-untyped-def]
        reads.append(weight)
        return weight[rows]

    with torch.no_grad(), intercepted({}, on_lookup, lambda _c, _n, _o, r: r, lambda _n, _c, o: o, tables):
        table = program(model.weight)
        found = table[index]
    assert reads
    torch.testing.assert_close(found, program(model.weight.detach())[index])


def test_a_table_that_is_written_to_is_forgotten():
    model = nn.Embedding(3, 2)
    tables = Tables(model)
    with torch.no_grad(), intercepted({}, lambda *a: a[3](), lambda *a: a[3], lambda *a: a[2], tables):
        for _ in range(2):
            copy = model.weight * 1
            before = copy.sum().item()
            copy[0] = 7.0
            assert copy[0, 0] == 7
            assert copy.sum().item() != before
        torch.testing.assert_close(torch.tensor(before), model.weight.sum())


class TinyAutoEncoder(nn.Module):
    """Scatters a user's items into a row, as RecBole's auto-encoders do."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = torch.tensor([[0, 0, 0], [1, 3, 0], [2, 3, 4], [4, 0, 0]])
        self.values = (self.ids > 0).double()
        self.encoder, self.decoder = nn.Linear(5, 3), nn.Linear(3, 5)

    def row(self, user: Tensor) -> Tensor:
        row = torch.zeros(1, dtype=torch.float64).repeat(len(user), 5)
        places = torch.arange(len(user)).repeat_interleave(3, dim=0)
        row.index_put_((places, self.ids[user].flatten()), self.values[user].flatten())
        return row

    def forward(self, user: Tensor) -> Tensor:
        return self.decoder(torch.tanh(self.encoder(functional.normalize(self.row(user)))))


def test_input_rows_are_a_source_and_complete():
    torch.manual_seed(0)
    model = TinyAutoEncoder().double().eval()
    batch = Batch({"user_id": torch.tensor([1, 2, 3]), "item_id": torch.tensor([3, 4, 4])}, torch.arange(3))

    def likelihood(m: nn.Module, b: Batch) -> Tensor:
        return m(b.columns["user_id"]).log_softmax(-1).gather(1, b.columns["item_id"][:, None]).squeeze(1)

    hints = PlanHints(padding={COMPUTED: 0})
    plan = discover(ModuleSubject(model, likelihood, hints), batch, groups=5)
    assert [c.name for c in plan.components] == ["user.input", "encoder", "score"]
    engine = EdgeAttribution(ModuleSubject(model, likelihood, hints), plan)
    with torch.no_grad():
        ends = engine.ends(batch)
    torch.testing.assert_close(ends.top.leaves[0], model.row(batch.columns["user_id"]))
    # items 1, 2, 3, 4 are held by 1, 1, 2 and 2 of the users 1 to 3; user 0 is padding
    expected = torch.tensor([0.0, 1 / 3, 1 / 3, 2 / 3, 2 / 3]).double()
    torch.testing.assert_close(ends.starts[0], expected.expand(3, 5))
    found = engine.explain(batch, n_steps=32)
    assert found.delta.abs().max() < 1e-6
    assert found.change.abs().min() > 1e-4


def test_groups_of_an_input_row_are_runs_of_items_by_popularity():
    """Items 3 and 4 have two users, 1 and 2 one, 0 (padding) none: runs of two, the last of one."""
    model = TinyAutoEncoder().double().eval()
    batch = Batch({"user_id": torch.tensor([1, 2, 3])}, torch.arange(3))
    subject = ModuleSubject(model, lambda m, b: m(b.columns["user_id"]).sum(1))
    source = discover(subject, batch, groups=3).components[0]
    assert source.order == (3, 4, 1, 2, 0)
    found = source.group(torch.tensor([[1.0, 10.0, 100.0, 1000.0, 10000.0]]))
    assert found.tolist() == [[11000.0, 110.0, 1.0]]


def test_input_rows_are_the_dense_table():
    ids, values = torch.tensor([[1, 2], [3, 0]]), torch.tensor([[1.0, 2.0], [5.0, 0.0]])
    table = InputRows(ids, values, 4)
    dense = torch.tensor([[0.0, 1.0, 2.0, 0.0], [0.0, 0.0, 0.0, 5.0]])
    torch.testing.assert_close(table[torch.tensor([1, 0, 1])], dense[[1, 0, 1]])
    torch.testing.assert_close(table.mean(0, 2), dense.mean(0))
    assert len(table) == 2
