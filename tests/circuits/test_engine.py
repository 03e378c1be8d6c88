"""The cut-graph engine against hand-made graphs, Captum and closed forms."""

import pytest
import torch
from nets import attention, neumf, score
from torch import Tensor, nn
from torch.nn import functional

from recunlearn.circuits.attribution import EdgeAttribution
from recunlearn.circuits.captum_path import CaptumEdgeAttribution, source_attributions
from recunlearn.circuits.discovery import discover
from recunlearn.circuits.path import gauss_radau
from recunlearn.circuits.plan import ComponentPlan
from recunlearn.circuits.subject import ModuleSubject
from recunlearn.circuits.tables import Tables
from recunlearn.foundation.errors import TraceError
from recunlearn.subjects.contract import Batch, PlanHints

NETS = {"neumf": neumf, "attention": attention}
HINTS = {"neumf": PlanHints(), "attention": PlanHints(padding={"item": 0})}


def engine_for(name: str, **options: object) -> tuple[EdgeAttribution, Batch]:
    kind = options.pop("kind", EdgeAttribution)
    groups = options.pop("groups", 2)
    model, batch = NETS[name](**options.pop("net", {}))
    subject = ModuleSubject(model, score, HINTS[name])
    return kind(subject, discover(subject, batch, groups=groups), **options), batch


def leaving(plan: ComponentPlan, edges: Tensor, component: int) -> Tensor:
    """Sum of the edges that leave a component, per group."""
    at, total = 0, 0
    for u, _, _ in plan.reads:
        width = plan.components[u].groups
        if u == component:
            total = total + edges[:, at : at + width]
        at += width
    return total


def test_plan_of_neumf_has_the_seven_edges_of_its_graph():
    model, batch = neumf()
    plan = discover(ModuleSubject(model, score), batch, groups=1)
    assert set(plan.edges) == {
        "user -> gmf",
        "item -> gmf",
        "user.mlp -> hidden",
        "item.mlp -> hidden",
        "gmf -> score",
        "hidden -> score",
        "score -> output",
    }


def test_plan_of_attention_finds_both_products_the_residual_and_the_norm():
    model, batch = attention()
    plan = discover(ModuleSubject(model, score, HINTS["attention"]), batch, groups=1)
    edges = set(plan.edges)
    assert {"attention.0.query -> attention.0.score", "attention.0.key -> attention.0.score"} <= edges
    assert {"attention.0 -> norm.0", "item -> norm.0", "position -> norm.0", "item.target -> score"} <= edges
    assert len(edges) == 16


def test_edges_by_hand():
    """eap-ig on one path point per half: the gradient through v alone, written out for TinyNeuMF."""
    engine, batch = engine_for("neumf", groups=1, baseline="zero")
    model, (u, i) = engine.model, batch.columns.values()
    nodes, weights = gauss_radau(8)
    expected = {e: torch.zeros(len(u), dtype=torch.float64) for e in engine.plan.edges}
    weight = model.out.weight[0]
    with torch.no_grad():
        tables = {n: getattr(model, n).weight for n in ("user", "item", "user_mlp", "item_mlp")}
        rows = {n: t[u if n.startswith("user") else i] for n, t in tables.items()}

        def run(a: float) -> tuple[Tensor, Tensor, Tensor]:
            product = a * rows["user"] * a * rows["item"]
            hidden = model.hidden(a * torch.cat([rows["user_mlp"], rows["item_mlp"]], -1))
            return product, hidden, model.out(torch.cat([product, hidden.tanh()], -1))[:, 0]

        one, zero = run(1.0), run(0.0)
        for a, c in zip(nodes, weights, strict=True):
            _, hidden, out = run(a)
            g = c * torch.sigmoid(-out)  # d log sigma(s) / ds = sigma(-s)
            expected["score -> output"] += g * (one[2] - zero[2])
            expected["gmf -> score"] += ((one[0] - zero[0]) * g[:, None] * weight[:4]).sum(1)
            through = g[:, None] * weight[4:] * (1 - hidden.tanh() ** 2)
            expected["hidden -> score"] += ((one[1] - zero[1]) * through).sum(1)
            expected["user -> gmf"] += (rows["user"] * g[:, None] * weight[:4] * a * rows["item"]).sum(1)
            expected["item -> gmf"] += (rows["item"] * g[:, None] * weight[:4] * a * rows["user"]).sum(1)
            back = through @ model.hidden.weight
            expected["user.mlp -> hidden"] += (rows["user_mlp"] * back[:, :4]).sum(1)
            expected["item.mlp -> hidden"] += (rows["item_mlp"] * back[:, 4:]).sum(1)
    found = engine.attribute(batch, n_steps=8)
    torch.testing.assert_close(found, torch.stack([expected[e] for e in engine.plan.edges], 1))


@pytest.mark.parametrize("name", NETS)
def test_brute_force_edge_gradient(name: str):
    """Every edge u -> v: only v reads a copy of u that a small shift is added to (central differences)."""
    engine, batch = engine_for(name, groups=1, baseline="zero")
    found = engine.attribute(batch, n_steps=4)
    nodes, weights = gauss_radau(4)
    expected = torch.zeros_like(found)
    with torch.no_grad():
        for a, c in zip(nodes, weights, strict=True):
            for e, (u, v) in enumerate(engine.plan.pairs):
                up, down = (_shifted(engine, batch, a, u, v, h) for h in (1e-5, -1e-5))
                expected[:, e] += c * (up - down) / 2e-5
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)


def _shifted(engine: EdgeAttribution, batch: Batch, a: float, u: int, v: int, h: float) -> Tensor:
    """The metric at path point ``a`` when sink v alone reads u + h * (u at 1 - u at 0)."""
    ends = engine.ends(batch)
    actual = {i: ends.top.leaves[i].detach() for i in engine.plan.sources}
    sources = {i: ends.starts[i] + a * (t - ends.starts[i]) for i, t in actual.items()}
    plain = engine.replay(batch, sources)
    moved = [None if t is None else t.clone() for t in plain.leaves]
    moved[u] = moved[u] + h * ends.changes[u]
    if v == len(engine.plan.components):
        return _recompute(engine, batch, moved, range(len(moved)))[1]
    altered = _recompute(engine, batch, moved, [i for i in range(len(moved)) if i != v])[0][v]
    fixed = list(plain.leaves)
    fixed[v] = altered
    return _recompute(engine, batch, fixed, range(v + 1))[1]


def _recompute(
    engine: EdgeAttribution, batch: Batch, values: list[Tensor], held: object
) -> tuple[list, Tensor]:
    """Run forward with the components in ``held`` set to ``values``; all others follow from them."""
    from recunlearn.circuits.interception import intercepted

    plan, held, seen = engine.plan, set(held), [None] * len(values)

    def put(i: int | None, own: Tensor) -> Tensor:
        if i is None:
            return own
        seen[i] = values[i] if i in held else own
        return seen[i]

    def lookup(call: int, _i: Tensor, _w: Tensor, compute: object) -> Tensor:
        i = plan.lookups.get(call)
        return values[i] if i is not None else compute()

    with intercepted(
        engine.modules,
        lookup,
        lambda call, _n, _o, result: put(plan.products.get(call), result),
        lambda name, call, output: put(plan.modules[name].get(call), output),
        Tables(engine.model),
    ):
        value = engine.metric(engine.model, batch)
    return seen, value


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("baseline", ["mean", "zero", "counterfactual"])
def test_completeness_in_float64(name: str, baseline: str):
    engine, batch = engine_for(name, baseline=baseline)
    found = engine.explain(batch, n_steps=32)
    assert found.delta.abs().max() < 1e-6  # a norm near the zero baseline converges slowly
    assert found.change.abs().min() > 1e-4


def test_conductance_is_complete_on_every_cut_as_steps_grow():
    engine, batch = engine_for("neumf", groups=1)
    cuts = [
        ["score -> output"],
        ["gmf -> score", "hidden -> score"],
        ["user -> gmf", "item -> gmf", "hidden -> score"],
    ]
    names = list(engine.plan.edges)
    for n_steps, bound in ((65, 1e-4), (257, 1e-5)):
        found = engine.explain(batch, n_steps=n_steps, method="conductance")
        for cut in cuts:
            total = found.edges[:, [names.index(e) for e in cut]].sum(1)
            assert (total - found.change).abs().max() < bound


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("kind", ["eap-ig", "conductance"])
def test_captum_drives_the_same_edges(name: str, kind: str):
    """eap-ig has other nodes in Captum: with 48 steps both integrals are exact to Captum's float32 steps."""
    ours, batch = engine_for(name)
    captum, _ = engine_for(name, kind=CaptumEdgeAttribution)
    n_steps = 48 if kind == "eap-ig" else 12
    a, b = (engine.explain(batch, n_steps=n_steps, method=kind) for engine in (ours, captum))
    torch.testing.assert_close(a.edges, b.edges, rtol=0, atol=1e-6)
    torch.testing.assert_close(a.delta, b.delta, rtol=0, atol=1e-6)
    torch.testing.assert_close(a.change, b.change, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NETS)
def test_source_attributions_are_captums(name: str):
    engine, batch = engine_for(name)
    oracle, _ = source_attributions(engine, batch, 48)
    edges = engine.attribute(batch, n_steps=48)
    for i, found in zip(engine.plan.sources, oracle, strict=True):
        expected = engine.plan.components[i].group(found)
        torch.testing.assert_close(leaving(engine.plan, edges, i), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["eap-ig", "conductance"])
@pytest.mark.parametrize("size", [1, 2, 5, None])
def test_results_do_not_depend_on_the_chunk(kind: str, size: int | None):
    engine, batch = engine_for("attention", net={"dtype": torch.float32})
    whole = engine.attribute(batch, n_steps=8, method=kind)
    parts = engine.attribute(batch, n_steps=8, method=kind, internal_batch_size=size)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-6)


def test_groups_are_parts_of_whole_components():
    whole, batch = engine_for("neumf", groups=1)
    parts, _ = engine_for("neumf", groups=4)
    a, b = whole.attribute(batch), parts.attribute(batch)
    at = 0
    for e, (u, _) in enumerate(parts.plan.pairs):
        width = parts.plan.components[u].groups
        torch.testing.assert_close(b[:, at : at + width].sum(1), a[:, e])
        at += width
    assert b.shape[1] == len(parts.plan.edges) == at


def test_padding_never_moves():
    engine, batch = engine_for("attention")
    ends = engine.ends(batch)
    pads = batch.columns["seq"] == 0
    assert pads.any()
    assert (ends.changes[0][pads] == 0).all()
    assert (ends.changes[0][~pads] != 0).any(-1).all()


def test_counterfactual_rows_are_other_rows_of_the_same_field():
    from recunlearn.circuits.baselines import other_rows

    index = torch.arange(3, 60)[:, None].repeat(1, 2) % torch.tensor([10, 7]) + torch.tensor([0, 10])
    found = other_rows(index, ((0, 10), (10, 17)), seed=3)
    assert (found != index).all()
    assert ((found[:, 0] < 10) & (found[:, 0] >= 0)).all()
    assert ((found[:, 1] < 17) & (found[:, 1] >= 10)).all()


def test_the_model_is_given_back_as_it_came():
    engine, batch = engine_for("neumf")
    engine.model.train()  # no dropout in it
    before = {k: v.clone() for k, v in engine.model.state_dict().items()}
    engine.attribute(batch)
    assert engine.model.training
    assert all(p.requires_grad for p in engine.model.parameters())
    assert all(p.grad is None for p in engine.model.parameters())
    assert all(torch.equal(before[k], v) for k, v in engine.model.state_dict().items())
    assert not any(m._forward_hooks for m in engine.model.modules())


def test_a_model_without_look_ups_is_refused():
    model = nn.Linear(3, 1)
    batch = Batch({"x": torch.randn(4, 3)}, torch.arange(4))
    with pytest.raises(TraceError, match="does not depend on any embedding look-up"):
        discover(ModuleSubject(model, lambda m, b: m(b.columns["x"])[:, 0]), batch)


class Wavering(nn.Module):
    """Takes another way for large batches."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.extra = nn.Embedding(9, 4), nn.Linear(4, 4)

    def forward(self, index: Tensor) -> Tensor:
        x = self.table(index)
        return (self.extra(x) if len(x) < 5 else x).sum(-1)


def test_a_model_that_changes_its_way_is_refused_not_scored():
    model, batch = Wavering(), Batch({"i": torch.arange(4)}, torch.arange(4))
    subject = ModuleSubject(model, lambda m, b: m(b.columns["i"]))
    engine = EdgeAttribution(subject, discover(subject, batch[:3]))
    with pytest.raises(TraceError, match="never met 'score'"):
        engine.attribute(batch, n_steps=4)


def test_a_pass_that_fails_for_other_batches_is_one_sentence():
    def only_four(model: nn.Module, batch: Batch) -> Tensor:
        return score(model, batch).view(4)

    model, batch = neumf()
    subject = ModuleSubject(model, only_four)
    engine = EdgeAttribution(subject, discover(subject, batch[:4]))
    with pytest.raises(TraceError, match=r"NeuMF cannot be traced: .* fails \(shape '\[4\]' is invalid"):
        engine.attribute(batch[:4], n_steps=4)


def test_scores_that_are_no_numbers_are_refused():
    model, batch = neumf()
    with torch.no_grad():
        model.out.bias.fill_(float("nan"))
    with pytest.raises(TraceError, match="not finite"):
        discover(ModuleSubject(model, score), batch)


def test_a_metric_without_one_value_a_sample_is_refused():
    model, batch = neumf()
    with pytest.raises(TraceError, match=r"shape \[B\], but got \(\)"):
        discover(ModuleSubject(model, lambda m, b: score(m, b).sum()), batch)


def test_affine_layers_are_found_and_nothing_else():
    model, batch = neumf()
    plan = discover(ModuleSubject(model, score), batch)
    names = [plan.components[i].name for i in plan.affine]
    assert names == ["hidden"]  # "out" follows a tanh and a product
    assert {plan.components[i].name for i in plan.idle} == {"user.mlp", "item.mlp"}
    model, batch = attention()
    plan = discover(ModuleSubject(model, score, HINTS["attention"]), batch)
    assert {plan.components[i].place for i in plan.affine} == {"q", "k", "v"}


class Functional(nn.Module):
    """The computation of an ``nn.MultiheadAttention`` in a module without children."""

    def __init__(self, like: nn.MultiheadAttention) -> None:
        super().__init__()
        self.weight, self.bias = like.in_proj_weight, like.in_proj_bias
        self.out, self.out_bias = like.out_proj.weight, like.out_proj.bias

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        q, k, v = functional.linear(x, self.weight, self.bias).unflatten(2, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return functional.linear(mixed, self.out, self.out_bias), None


class Fields(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.table, self.attention, self.out = nn.Embedding(9, 4), attention, nn.Linear(4, 1)

    def forward(self, fields: Tensor) -> Tensor:
        x = self.table(fields)
        same = isinstance(self.attention, nn.MultiheadAttention)
        mixed, _ = self.attention(x, x, x, need_weights=False) if same else self.attention(x)
        return self.out(torch.tanh(mixed) + x).sum((1, 2))


def test_torchs_attention_is_one_component():
    """Its child gives weights and never runs; edges equal those of a module without children."""
    torch.manual_seed(0)
    net = Fields(nn.MultiheadAttention(4, 2, batch_first=True)).double().eval()
    other = Fields(Functional(net.attention)).double().eval()
    other.table, other.out = net.table, net.out
    batch = Batch({"fields": torch.arange(15).reshape(5, 3) % 9}, torch.arange(5))
    engines = [
        EdgeAttribution(s, discover(s, batch)) for s in (ModuleSubject(m, score) for m in (net, other))
    ]
    assert [c.name for c in engines[0].plan.components] == ["table", "attention", "score"]
    assert engines[0].plan.edges == engines[1].plan.edges
    found = [engine.attribute(batch, n_steps=8) for engine in engines]
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)
    assert found[0].abs().sum() > 0
