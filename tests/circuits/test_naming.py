"""Names of components: rules by rule, and the same in every run."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nets import neumf, score
from torch import Tensor, nn

from recunlearn.circuits.attribution import EdgeAttribution
from recunlearn.circuits.block import Block
from recunlearn.circuits.discovery import discover
from recunlearn.circuits.field_pairs import pair_labels, pair_products
from recunlearn.circuits.naming import Seen, names_for, table_name
from recunlearn.circuits.plan import labels_for
from recunlearn.circuits.segments import Segment
from recunlearn.circuits.subject import ModuleSubject
from recunlearn.subjects.contract import Batch, PlanHints


def segment(*parents: int, selected: tuple[int, ...] = (), mixes: bool = False) -> Segment:
    return Segment(parents, frozenset(), selected, mixes)


def source(path: str, column: str = "", layer: int | None = None) -> Seen:
    return Seen("source", path, segment(), column=column, layer=layer)


def module(path: str, *parents: int, norm: bool = False) -> Seen:
    return Seen("module", path, segment(*parents), norm=norm)


def product(
    *operands: tuple[int, ...], weights: tuple[int, ...] = (), selected: tuple[int, ...] = ()
) -> Seen:
    parents = tuple(sorted({p for o in operands for p in o}))
    seen = Segment(parents, frozenset(weights), selected, False)
    return Seen("product", "mul", seen, operands=operands, weights=frozenset(weights))


def named(
    *seen: Seen, outputs: tuple[int, ...] = (), mixes: bool = False, hints: PlanHints | None = None
) -> list[str]:
    return list(
        names_for(seen, segment(*(outputs or (len(seen) - 1,)), mixes=mixes), hints or PlanHints())[0]
    )


@pytest.mark.parametrize(
    ("path", "entity", "name"),
    [
        ("user_embedding", "", "user"),
        ("user_mf_embedding", "", "user.mf"),
        ("item_src_embedding", "item", "item.src"),
        ("net.position_embedding", "", "position"),
        ("bias", "item", "item.bias"),
        ("UI_emb", "user", "user.ui"),
        ("LI_emb", "", "li"),
        ("embedding", "", "embedding"),
    ],
)
def test_tables(path: str, entity: str, name: str):
    assert table_name(path, entity) == name


def test_a_product_of_user_and_item_is_gmf_and_the_last_one_the_score():
    seen = [source("user_mf", "user_id"), source("item_mf", "item_id"), product((0,), (1,))]
    assert named(*seen) == ["user.mf", "item.mf", "score"]
    assert named(*seen, module("out", 2)) == ["user.mf", "item.mf", "gmf", "score"]
    assert named(*seen, outputs=(1, 2)) == ["user.mf", "item.mf", "gmf"]  # two ends: neither is the score
    assert named(*seen, mixes=True)[2] == "gmf"  # a matrix comes after it


def test_the_negative_item_of_a_pair_is_named():
    seen = [source("user", "user_id"), source("item", "item_id"), product((0,), (1,))]
    seen += [source("item", "neg_item_id"), product((0,), (3,))]
    assert named(*seen, outputs=(2, 4)) == ["user", "item", "score", "item.negative", "score.negative"]


def test_layers_are_numbered_within_their_stack():
    seen = [
        source("user", "user_id"),
        module("mlp_layers.mlp_layers.1", 0),
        module("mlp_layers.mlp_layers.4", 1),
    ]
    seen += [module("user_fc_layers.mlp_layers.1", 2), module("predict_layer", 3)]
    assert named(*seen)[1:] == ["mlp.0", "mlp.1", "user.mlp.0", "score"]


def test_attention_norms_and_feed_forward():
    block = "trm_encoder.layer.0"
    seen = [source("item_embedding", "item_id_list"), module("LayerNorm", 0, norm=True)]
    seen += [module(f"{block}.multi_head_attention.{part}", 1) for part in ("query", "key", "value")]
    seen += [
        product((2,), (3,)),
        product((5,), (4,), weights=(5,)),
        module(f"{block}.multi_head_attention.dense", 6),
    ]
    seen += [module(f"{block}.multi_head_attention.LayerNorm", 7, norm=True)]
    seen += [module(f"{block}.feed_forward.dense_1", 8), module(f"{block}.feed_forward.dense_2", 9)]
    names, attention = names_for(seen, segment(10, mixes=True), PlanHints())
    assert names == (
        "item.history", "norm.0", "attention.0.query", "attention.0.key", "attention.0.value",
        "attention.0.score", "attention.0", "attention.0.out", "norm.1", "ffn.0.0", "ffn.0.1",
    )  # fmt: skip
    assert [i for i, a in enumerate(attention) if a] == [2, 3, 4, 5, 6, 7]


def test_a_table_layer_of_a_graph_has_its_number():
    """Depths 0, 2 and 4 (two products a layer) are the layers 0, 1 and 2."""
    seen = [source("user_embedding", "user_id"), source("*a", "user_id", 2), source("*b", "user_id", 4)]
    seen += [Seen("product", "rows", segment(0, 1, 2), operands=((0,), (1,), (2,)))]
    assert named(*seen, outputs=(0, 3)) == ["user_layer_0", "user_layer_1", "user_layer_2", "user"]


def test_unknown_things_keep_their_path_and_calls_are_counted():
    seen = [source("rows", ""), module("block.odd_thing", 0), module("block.odd_thing", 1), module("x", 2)]
    assert named(*seen, outputs=(1, 3)) == ["rows", "block.odd_thing", "block.odd_thing/2", "x"]


@given(st.lists(st.sampled_from(["mlp.0", "a.b", "user_embedding", "LayerNorm", "q", "x.dense"]), max_size=8))
def test_names_are_unique_and_never_empty(paths: list[str]):
    seen = [source("user", "user_id"), *(module(p, i) for i, p in enumerate(paths))]
    names = named(*seen)
    assert len(set(names)) == len(names)
    assert all(names)


def test_names_do_not_depend_on_the_batch_or_the_run():
    model, batch = neumf()
    subject = ModuleSubject(model, score)
    first = discover(subject, batch).edges
    assert discover(ModuleSubject(neumf(seed=3)[0], score), batch[2:]).edges == first
    assert discover(subject, batch).edges == first


@pytest.mark.parametrize(
    ("granularity", "layout", "labels"),
    [
        ("module", "vector", ("",)),
        ("head", "vector", ("",)),
        ("group", "vector", ("[0]", "[1]")),
        ("unit", "vector", ("[0]", "[1]", "[2]", "[3]")),
        ("module", "fields", ("",)),
        ("head", "fields", (".a", ".b")),
        ("group", "fields", (".a[0]", ".a[1]", ".b[0]", ".b[1]")),
        ("head", "heads", (".head.0", ".head.1")),
    ],
)
def test_granularity(granularity: str, layout: str, labels: tuple[str, ...]):
    assert labels_for((2, 4) if layout != "vector" else (4,), layout, 2, ("a", "b"), granularity) == labels


@given(st.integers(1, 200), st.integers(1, 40))
def test_groups_hold_every_dimension_once(size: int, groups: int):
    from recunlearn.circuits.plan import Component

    labels = labels_for((size,), "vector", groups, ())
    assert len(labels) <= groups
    component = Component("x", "source", "", 0, (size,), "vector", labels, ())
    values = torch.arange(2 * size, dtype=torch.float64).view(2, size)
    found = component.group(values)
    assert found.shape == (2, len(labels))
    torch.testing.assert_close(found.sum(1), values.sum(1))
    ones = component.group(torch.ones(1, size))[0]
    assert ones.min() >= 1  # no group is empty


class SecondOrder(nn.Module):
    """Rendle's form: half of (square of the sum - sum of the squares)."""

    def __init__(self, summed: bool) -> None:
        super().__init__()
        self.summed = summed

    def forward(self, x: Tensor) -> Tensor:
        out = (x.sum(1) ** 2 - (x**2).sum(1)) / 2
        return out.sum(1, keepdim=True) if self.summed else out


def test_pairs_sum_to_the_second_order_term():
    x = torch.randn(5, 4, 3, dtype=torch.float64)
    pairs = pair_products(x)
    torch.testing.assert_close(pairs.sum(1), SecondOrder(summed=True)(x))
    # the fifth of (0,1) (0,2) (0,3) (1,2) (1,3) (2,3)
    torch.testing.assert_close(pairs[:, 4, 0], (x[:, 1] * x[:, 3]).sum(1))
    assert pair_labels(("a", "b", "c", "d"))[4] == ".pair(b,d)"


def test_a_term_with_dimensions_stays_whole():
    model, batch, subject = tiny_fm(summed=False)
    plan = discover(subject, batch, groups=1)
    assert not any("pair" in e for e in plan.edges)
    found = EdgeAttribution(subject, plan, baseline="zero").explain(batch, n_steps=8)
    torch.testing.assert_close(found.value, model(batch.columns["rows"]).detach())


class TinyFM(nn.Module):
    def __init__(self, summed: bool) -> None:
        super().__init__()
        self.fields, self.fm = nn.Embedding(9, 3), SecondOrder(summed)

    def forward(self, rows: Tensor) -> Tensor:
        return self.fm(self.fields(rows)).sum(1)


NAMES = ("user_id", "age", "item_id")


class Stacked(TinyFM):
    """Weighs every pair of fields, as FwFM and FFM do."""

    def forward(self, rows: Tensor) -> Tensor:
        x, pairs = self.fields(rows), ((0, 1), (0, 2), (1, 2))
        return torch.stack([x[:, f] * x[:, g] * (f + g) for f, g in pairs], 1).sum((1, 2))


def test_stacked_products_of_fields_are_one_component():
    """Weights 1, 2 and 3: the edge of a pair is the weight times the inner product."""
    torch.manual_seed(0)
    model, rows = Stacked(True).double(), torch.tensor([[0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8]])
    hints = PlanHints(fields={"fields": NAMES}, order=NAMES)
    subject = ModuleSubject(model, lambda m, b: m(b.columns["rows"]), hints)
    batch = Batch({"rows": rows}, torch.arange(4))
    plan = discover(subject, batch, groups=1)
    assert [c.name for c in plan.components] == ["fields", "fm"]
    edges = EdgeAttribution(subject, plan, baseline="zero").attribute(batch, n_steps=8)
    with torch.no_grad():
        x = model.fields(rows)
    for f, g in ((0, 1), (0, 2), (1, 2)):
        edge = edges[:, plan.edges.index(f"fm.pair({NAMES[f]},{NAMES[g]}) -> output")]
        torch.testing.assert_close(edge, (f + g) * (x[:, f] * x[:, g]).sum(1))


def tiny_fm(summed: bool) -> tuple[TinyFM, Batch, ModuleSubject]:
    torch.manual_seed(0)
    hints = PlanHints(fields={"fields": NAMES}, order=NAMES, pairs=("fm",))
    rows = torch.tensor([[0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8]])
    model = TinyFM(summed).double()
    subject = ModuleSubject(model, lambda m, b: m(b.columns["rows"]), hints)
    return model, Batch({"rows": rows}, torch.arange(4)), subject


class Bent(TinyFM):
    """The fields leave their straight line before the machine reads them."""

    def forward(self, rows: Tensor) -> Tensor:
        return torch.sigmoid(self.fm(torch.tanh(3 * self.fields(rows))).sum(1))


class Straight(TinyFM):
    def forward(self, rows: Tensor) -> Tensor:
        return torch.sigmoid(2 * self.fm(self.fields(rows)).sum(1))


@pytest.mark.parametrize(("kind", "curved"), [(Straight, False), (Bent, True)])
@pytest.mark.parametrize("method", ["eap-ig", "conductance"])
@pytest.mark.parametrize("steps", [2, 3, 9])
def test_a_machine_left_whole_gives_the_edges_of_its_pairs(monkeypatch, kind, curved, method, steps):
    torch.manual_seed(0)
    hints = PlanHints(fields={"fields": NAMES}, order=NAMES, pairs=("fm",))
    rows = torch.tensor([[0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8]])
    batch = Batch({"rows": rows}, torch.arange(4))
    subject = ModuleSubject(kind(True).double(), lambda m, b: m(b.columns["rows"]), hints)
    plan = discover(subject, batch, groups=1)
    engine = EdgeAttribution(subject, plan, baseline="mean")
    found = engine.attribute(batch, n_steps=steps, method=method)
    assert engine.curved == (curved and method == "conductance" and steps > 2)
    monkeypatch.setattr(Block, "_keeps_whole", lambda self: False)
    pairs = EdgeAttribution(subject, plan, baseline="mean").attribute(batch, n_steps=steps, method=method)
    torch.testing.assert_close(found, pairs, rtol=0, atol=1e-13)


def test_a_factorisation_machine_is_split_into_pairs():
    """Each pair's edge into the output is that pair's share: <x_f, x_g> itself, the metric being linear."""
    model, batch, subject = tiny_fm(summed=True)
    plan = discover(subject, batch, groups=1)
    found = EdgeAttribution(subject, plan, baseline="zero").explain(batch, n_steps=8)
    edges = dict(zip(plan.edges, found.edges.T, strict=True))
    with torch.no_grad():
        x = model.fields(batch.columns["rows"])
    fm = next(c.name for c in plan.components if c.place == "fm")
    for f, g in ((0, 1), (0, 2), (1, 2)):
        edge = edges[f"{fm}.pair({NAMES[f]},{NAMES[g]}) -> output"]
        torch.testing.assert_close(edge, (x[:, f] * x[:, g]).sum(1))
    torch.testing.assert_close(found.value, model(batch.columns["rows"]).detach())
    assert found.delta.abs().max() < 1e-12
