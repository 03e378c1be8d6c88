"""Exact ablation against networks written out by hand, and the identities of circuits."""

import numpy as np
import pytest
import torch
from nets import attention, neumf, score
from sklearn.metrics import roc_auc_score
from torch import nn

from recunlearn.circuits.ablation import Ablation
from recunlearn.circuits.attribution import EdgeAttribution
from recunlearn.circuits.discovery import discover
from recunlearn.circuits.rankings import activation_scores, gradient_scores, window
from recunlearn.circuits.subject import ModuleSubject
from recunlearn.subjects.contract import Batch, PlanHints

HINTS = {neumf: PlanHints(), attention: PlanHints(padding={"item": 0})}


def ablation(net, groups=2, *, metric=score, hints=None, **options):
    model, batch = net()
    rows = options.pop("rows", 4096)
    hints = HINTS[net] if hints is None else hints
    subject = ModuleSubject(model, metric, hints)
    plan = discover(subject, batch, groups=groups)
    return Ablation(EdgeAttribution(subject, plan, **options), batch, rows=rows)


def column(run, source, sink=None):
    """Columns of the edges between two components, by table or module; products by their number."""
    products = [i for i, c in enumerate(run.plan.components) if c.kind == "product"]
    places = [c.table or c.place or f"product {products.index(i)}" for i, c in enumerate(run.plan.components)]
    places.append("output")
    found = [
        i for i, e in enumerate(run.edges) if places[e.source] == source and sink in (None, places[e.sink])
    ]
    assert found
    return found


def log_sigmoid(x):
    return -np.log1p(np.exp(-x))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("edge", ["user", "item", "user_mlp", "item_mlp", "product", "hidden", "out"])
def test_every_edge_of_neumf_by_hand(edge, groups):
    """The network written out in numpy, with one edge (or half of its dimensions) at the baseline."""
    run = ablation(neumf, groups, baseline="mean")
    effects = run.single().numpy()
    model, batch = run.engine.model, run.batch
    w = {n: p.detach().numpy() for n, p in model.named_parameters()}
    user, item = batch.columns["user"].numpy(), batch.columns["item"].numpy()

    def forward(rows, swap=None):
        def read(name, value):
            if swap is None or name != edge:
                return value
            value = value.copy()
            value[:, swap[0]] = swap[1][name][:, swap[0]]
            return value

        z = dict(rows)
        z["product"] = read("user", z["user"]) * read("item", z["item"])
        z["hidden"] = (
            np.concatenate([read("user_mlp", z["user_mlp"]), read("item_mlp", z["item_mlp"])], 1)
            @ w["hidden.weight"].T
            + w["hidden.bias"]
        )
        z["out"] = (
            np.concatenate([read("product", z["product"]), np.tanh(read("hidden", z["hidden"]))], 1)
            @ w["out.weight"].T
            + w["out.bias"]
        )
        return log_sigmoid(read("out", z["out"])[:, 0]), z

    index = {"user": user, "item": item, "user_mlp": user, "item_mlp": item}
    full, actual = forward({n: w[f"{n}.weight"][i] for n, i in index.items()})
    _, low = forward({n: w[f"{n}.weight"].mean(0, keepdims=True).repeat(len(user), 0) for n in index})
    columns = column(run, edge.replace("product", "product 0"))
    parts = [np.flatnonzero(run.edges[c].part.numpy()) for c in columns]
    assert sorted(np.concatenate(parts)) == list(range(actual[edge].shape[1]))
    for c, dims in zip(columns, parts, strict=True):
        expected = full - forward({n: actual[n] for n in index}, (dims, low))[0]
        np.testing.assert_allclose(effects[:, c], expected, atol=1e-12)


def test_attention_edges_by_hand():
    """The weights of q or v as the attention alone reads them, and the residual that the norm reads."""
    run = ablation(attention, 1, baseline="mean")
    effects, model, columns = run.single(), run.engine.model, run.batch.columns
    seq, target = columns["seq"], columns["target"]
    with torch.no_grad():
        real = model.item(seq)
        moved = torch.where((seq == 0).unsqueeze(-1), real, model.item.weight[1:].mean(0))
        place = model.position(torch.arange(5)).expand(3, -1, -1)
        placed = model.position.weight.mean(0).expand_as(place)
        x, low = real + place, moved + placed

        def run_by_hand(q=x, v=x, residual=x):
            masked = -1e4 * (seq == 0).unsqueeze(1)
            weights = torch.softmax(model.q(q) @ model.k(x).transpose(1, 2) + masked, -1)
            y = model.norm(residual + weights @ model.v(v))[:, -1]
            return torch.nn.functional.logsigmoid((y * model.item(target)).sum(-1))

        full = run_by_hand()
        expected = {
            "q": full - run_by_hand(q=low),
            "v": full - run_by_hand(v=low),
            "item to norm": full - run_by_hand(residual=moved + place),
        }
    reads = {"q": ("q", None), "v": ("v", None), "item to norm": ("item", "norm")}
    for name, (source, sink) in reads.items():
        (c,) = column(run, source, sink)
        torch.testing.assert_close(effects[:, c], expected[name], atol=1e-10, rtol=0)


@pytest.mark.parametrize("baseline", ["mean", "zero", "counterfactual"])
@pytest.mark.parametrize("net", [neumf, attention])
def test_circuits_of_all_of_none_and_of_all_but_one(net, baseline):
    run = ablation(net, 2, baseline=baseline)
    edges = len(run.edges)
    keep = torch.cat([torch.ones(1, edges), torch.zeros(1, edges), 1 - torch.eye(edges)]).bool()
    kept = run.kept(keep[:, None])
    torch.testing.assert_close(kept[0], run.full)
    torch.testing.assert_close(kept[1], run.empty)
    torch.testing.assert_close(run.full - kept[2:], run.single().T, atol=1e-12, rtol=0)


@pytest.mark.parametrize("net", [neumf, attention])
def test_results_do_not_depend_on_the_rows_of_a_run(net):
    keep = torch.rand(7, 1, len(ablation(net).edges)) < 0.6
    for a, b in [(ablation(net, rows=1), ablation(net, rows=1000))]:
        torch.testing.assert_close(a.single(), b.single(), atol=1e-12, rtol=0)
        torch.testing.assert_close(a.kept(keep), b.kept(keep), atol=1e-12, rtol=0)


def test_circuits_of_single_samples():
    """A mask of its own for every sample gives what the sample alone gives."""
    run = ablation(neumf)
    keep = torch.rand(3, len(run.batch), len(run.edges)) < 0.5
    together = run.kept(keep)
    for b in range(len(run.batch)):
        torch.testing.assert_close(run.kept(keep[:, b : b + 1])[:, b], together[:, b], atol=1e-12, rtol=0)


def test_parts_of_sinks_add_up_where_the_rest_is_linear():
    """Ablating an edge into all parts of a sink at once is ablating the whole edge."""
    import dataclasses

    whole = ablation(neumf, 1)
    split = [
        dataclasses.replace(c, sink_labels=("[0]", "[1]", "[2]")) if c.place == "hidden" else c
        for c in whole.plan.components
    ]
    plan = dataclasses.replace(whole.plan, components=tuple(split))
    subject = ModuleSubject(whole.engine.model, score)
    run = Ablation(EdgeAttribution(subject, plan), whole.batch)
    parts = column(run, "user_mlp", "hidden")
    (edge,) = column(whole, "user_mlp", "hidden")
    assert len(parts) == 3
    keep = torch.ones(1, 1, len(run.edges), dtype=torch.bool)
    keep[:, :, parts] = False
    torch.testing.assert_close(run.full - run.kept(keep)[0], whole.single()[:, edge], atol=1e-12, rtol=0)
    keep = ~torch.eye(len(run.edges), dtype=torch.bool)[:, None]
    torch.testing.assert_close(run.full - run.kept(keep), run.single().T, atol=1e-12, rtol=0)


class Linear(nn.Module):
    """A score that is linear in everything, with weights that are zero for some dimensions."""

    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(9, 6), nn.Embedding(9, 6)
        self.hidden, self.out = nn.Linear(12, 4, bias=False), nn.Linear(10, 1, bias=False)
        with torch.no_grad():
            self.hidden.weight[:, [0, 1, 8, 9]] = 0  # dimensions 0, 1 of the user and 2, 3 of the item
            self.out.weight[:, 6:10] = 0  # dimensions 2 to 5 of the item, after the 4 of hidden

    def forward(self, user, item):
        hidden = self.hidden(torch.cat([self.user(user), self.item(item)], -1))
        return self.out(torch.cat([hidden, self.item(item)], -1)).squeeze(-1)


def linear():
    torch.manual_seed(5)
    batch = Batch({"user": torch.arange(8), "item": torch.arange(8).flip(0)}, torch.arange(8))
    return Linear().double().eval(), batch


def plain(model, batch):
    return model(*batch.columns.values())


@pytest.mark.parametrize("method", ["eap-ig", "conductance"])
def test_in_a_linear_model_attribution_is_ablation(method):
    run = ablation(linear, 3, metric=plain, hints=PlanHints())
    found = run.engine.attribute(run.batch, n_steps=8, method=method)
    torch.testing.assert_close(found, run.single(), atol=1e-6, rtol=0)
    torch.testing.assert_close(gradient_scores(run, [(1.0, 1.0)]), run.single(), atol=1e-10, rtol=0)


def test_known_important_edges_are_found():
    """Edges into zero weights do nothing; attribution and ablation both tell them from all others."""
    run = ablation(linear, 3, metric=score, hints=PlanHints())
    user, item, direct = column(run, "user"), column(run, "item", "hidden"), column(run, "item", "out")
    nothing = {user[0], item[1], *direct[1:]}
    truth = [int(c not in nothing) for c in range(len(run.edges))]
    for strengths in (run.engine.attribute(run.batch), run.single()):
        assert roc_auc_score(truth, strengths.abs().mean(0).numpy()) == 1.0
        assert strengths.abs().mean(0)[[t == 0 for t in truth]].max() < 1e-12


@pytest.mark.parametrize("net", [neumf, attention])
def test_gradients_on_the_whole_path_are_eap_ig(net):
    run = ablation(net)
    engine = run.engine.attribute(run.batch, n_steps=24)
    torch.testing.assert_close(gradient_scores(run, window(0, 24)), engine, atol=1e-6, rtol=0)


def test_activations_by_hand():
    run = ablation(neumf, 2)
    (first, second) = column(run, "user_mlp", "hidden")
    rows = run.engine.model.user_mlp.weight.detach()[run.batch.columns["user"]].abs()
    found = activation_scores(run)
    torch.testing.assert_close(found[:, first], rows[:, :2].mean(1))
    torch.testing.assert_close(found[:, second], rows[:, 2:].mean(1))


def test_the_model_is_left_as_it_was():
    model, batch = neumf()
    model.train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    subject = ModuleSubject(model, score)
    run = Ablation(EdgeAttribution(subject, discover(subject, batch, groups=2)), batch)
    run.single()
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks or "forward" in m.__dict__ for m in model.modules())


@pytest.mark.parametrize("net", [neumf, attention])
def test_what_does_not_add_up(net):
    """Non-identities, as documented: neither all edges of eap-ig nor all single effects are the change."""
    run = ablation(net)
    found = run.engine.explain(run.batch, n_steps=32)
    sources = found.edges[:, list(run.plan.source_columns)].sum(1)
    torch.testing.assert_close(sources, found.change, rtol=0, atol=1e-6)  # these do
    change = found.change.abs()
    assert ((found.edges.sum(1) - found.change).abs() > 0.1 * change).all()
    assert ((run.single().sum(1) - found.change).abs() > 0.1 * change).any()
