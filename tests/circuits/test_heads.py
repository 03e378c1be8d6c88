"""Named components and layers over heads: a small pre-norm transformer against its uncut pass."""

import pytest
import torch
from torch import Tensor, nn

from recunlearn.circuits.ablation import Ablation
from recunlearn.circuits.attribution import EdgeAttribution
from recunlearn.circuits.captum_path import CaptumEdgeAttribution
from recunlearn.circuits.discovery import discover
from recunlearn.circuits.heads import edges_by_head, flows_by_head, head_terms, head_weights
from recunlearn.circuits.path import Path
from recunlearn.circuits.plan import ComponentPlan
from recunlearn.circuits.subject import ModuleSubject
from recunlearn.circuits.sweep import edge_gradients
from recunlearn.circuits.trust import check_trust
from recunlearn.foundation.errors import UsageError
from recunlearn.subjects.contract import Batch, PlanHints

HEADS, SIZE, LAYERS = 2, 6, 2


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)

    def mixed(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return ((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2).flatten(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.mixed(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.before, self.between = Attention(), nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)
        self.mlp = nn.Sequential(nn.Linear(SIZE, 8), nn.Tanh(), nn.Linear(8, SIZE))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.between(x))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(12, SIZE)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.classes = nn.LayerNorm(SIZE), nn.Linear(SIZE, 3)

    def forward(self, text: Tensor) -> Tensor:
        x = self.words(text)
        for layer in self.layers:
            x = layer(x)
        return self.classes(self.norm(x)[:, -1])


def metric(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch.columns["text"]).log_softmax(-1)[:, 1]


def hints(heads: int = HEADS) -> PlanHints:
    names = {"words": "token"}
    for n in range(LAYERS):
        names |= {f"layers.{n}.attention.out": f"attention.{n}", f"layers.{n}.mlp": f"mlp.{n}"}
    components = tuple(n for n in names if n != "words")
    return PlanHints(
        names=names,
        components=components,
        heads={n: heads for n in components if n.endswith(".out")},
    )


@pytest.fixture(scope="module")
def found() -> tuple[ModuleSubject, Batch, ComponentPlan]:
    torch.manual_seed(0)
    model = Transformer().double().eval()
    for p in model.parameters():
        p.data.mul_(1.5)
    subject = ModuleSubject(model, metric, hints())
    batch = Batch.of(text=torch.randint(0, 12, (5, 4)))
    return subject, batch, discover(subject, batch, granularity="head")


def by_hand(model: Transformer, start: Tensor, end: Tensor, path: Path) -> dict[str, Tensor]:
    """Every sink adds up the outputs of all earlier sources, each read with a zero of its own added."""

    def run(embedded: Tensor) -> tuple[Tensor, dict[str, Tensor], dict[tuple[str, str], Tensor]]:
        out, reads = {"token": embedded}, {}

        def read(sink: str) -> Tensor:
            for source, value in out.items():
                reads[source, sink] = torch.zeros_like(value, requires_grad=True)
            # The bias of an attention's last layer belongs to no head and never moves.
            bias = sum(model.layers[int(s[10])].attention.out.bias for s in out if s.endswith("head.0"))
            return sum(value + reads[source, sink] for source, value in out.items()) + bias

        for n, layer in enumerate(model.layers):
            mixed = layer.attention.mixed(layer.before(read(f"attention.{n}")))
            weight = layer.attention.out.weight
            for h, (x, w) in enumerate(zip(mixed.chunk(HEADS, -1), weight.chunk(HEADS, 1), strict=True)):
                out[f"attention.{n}.head.{h}"] = x @ w.T
            out[f"mlp.{n}"] = layer.mlp(layer.between(read(f"mlp.{n}")))
        logits = model.classes(model.norm(read("output"))[:, -1])
        return logits.log_softmax(-1)[:, 1], out, reads

    (_, low, _), (_, high, _) = run(start), run(end)
    sums: dict[tuple[str, str], Tensor] = {}
    for alpha, weight in zip(path.alphas, path.weights, strict=True):
        value, _, reads = run(start + alpha * (end - start))
        grads = torch.autograd.grad(value.sum(), list(reads.values()))
        sums = {e: sums.get(e, 0) + weight * g for e, g in zip(reads, grads, strict=True)}
    return {f"{u} -> {v}": ((high[u] - low[u]) * g).flatten(1).sum(1) for (u, v), g in sums.items()}


def test_every_edge_is_that_of_the_uncut_pass(found):
    subject, batch, plan = found
    engine = EdgeAttribution(subject, plan)
    edges = engine.attribute(batch, n_steps=4, internal_batch_size=2)
    table = subject.model.words
    end = table(batch.columns["text"]).detach()
    start = table.weight.detach().mean(0).expand_as(end)
    expected = by_hand(subject.model, start, end, Path.of("eap-ig", 4, torch.float64, torch.device("cpu")))
    # 1 embedding, 2 x (2 heads, 1 MLP): 1 + 3 + 4 + 6 + 7 reads
    assert set(plan.edges) == set(expected)
    assert len(plan.edges) == 21
    torch.testing.assert_close(
        edges, torch.stack([expected[e] for e in plan.edges], 1), atol=1e-12, rtol=1e-9
    )


def test_the_plan_is_what_was_named(found):
    _, _, plan = found
    assert [c.name for c in plan.components] == ["token", "attention.0", "mlp.0", "attention.1", "mlp.1"]
    assert [c.attention for c in plan.components] == [False, True, False, True, False]
    assert plan.components[3].parents == (0, 1, 2)
    assert plan.graph.depths == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("method", ["eap-ig", "conductance"])
def test_heads_add_up_to_their_layer(found, method):
    subject, batch, fine = found
    coarse = discover(subject, batch, granularity="module")
    edges, whole = (
        EdgeAttribution(subject, p).attribute(batch, n_steps=6, method=method) for p in (fine, coarse)
    )
    for at, (u, v) in enumerate(zip(coarse.graph.source, coarse.graph.sink, strict=True)):
        names = (coarse.graph.nodes[u], coarse.graph.nodes[v])
        together = edges[:, fine.columns_of(*names)].sum(1)
        torch.testing.assert_close(together, whole[:, at], atol=1e-12, rtol=1e-9)


def test_complete_and_trusted(found):
    subject, batch, plan = found
    engine = EdgeAttribution(subject, plan)
    check_trust(engine, batch)
    check_trust(engine, batch, 4, large=True)
    found_ = engine.explain(batch, n_steps=64)
    assert found_.change.abs().max() > 0.1
    torch.testing.assert_close(
        found_.edges[:, plan.columns_of(source="token")].sum(1), found_.change, atol=1e-4, rtol=1e-4
    )


def test_the_sums_of_a_stream_are_those_of_plain_autograd(found):
    """Gradients that many components share are added once; the gradient of each is still the model's."""
    subject, batch, plan = found
    engine = EdgeAttribution(subject, plan)
    run = engine.replay(batch, cut=True)
    leaves, weights = list(run.leaves), torch.ones(len(batch), dtype=torch.float64)
    sums: dict[int, Tensor] = {}
    for u, _, _, g in edge_gradients(plan, run, weights):
        sums[u] = sums[u] + g if u in sums else g.clone()
    whole = subject.model.words(batch.columns["text"]).detach().requires_grad_()
    x = whole
    for layer in subject.model.layers:
        x = layer(x)
    value = subject.model.classes(subject.model.norm(x)[:, -1]).log_softmax(-1)[:, 1].sum()
    torch.testing.assert_close(sums[0], torch.autograd.grad(value, whole)[0], atol=1e-12, rtol=1e-9)
    assert leaves[0] is not None


def test_terms_by_hand():
    layer = nn.Linear(4, 1)
    layer.bias.data.fill_(7.0)
    layer.weight.data = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    weights = head_weights(layer, 4, 2)
    assert weights.squeeze(-1).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    change = torch.tensor([[[1.0, 1.0, 1.0, -1.0]]])  # one sample, one position
    terms = head_terms(weights, change)
    assert terms.flatten().tolist() == [3.0, -1.0]  # 1 + 2, 3 - 4; the bias does not move
    g = torch.tensor([[[2.0]]])
    assert edges_by_head(terms, g).tolist() == [[6.0, -2.0]]
    assert flows_by_head(weights, g).flatten().tolist() == [2.0, 4.0, 6.0, 8.0]


def test_what_does_not_know_heads_says_so(found):
    subject, batch, plan = found
    with pytest.raises(UsageError, match=r"path 'captum' does not know the terms of attention heads"):
        CaptumEdgeAttribution(subject, plan)
    with pytest.raises(UsageError, match=r"Exact ablation does not know .*granularity 'module'"):
        Ablation(EdgeAttribution(subject, plan), batch)


def test_hints_that_fit_no_module(found):
    model = found[0].model
    with pytest.raises(UsageError, match=r"component 'layer\.0', but the model has no such module"):
        ModuleSubject(model, metric, PlanHints(components=("layer.0",)))
    with pytest.raises(UsageError, match=r"'layers\.0\.mlp' heads, but it is none of the components"):
        ModuleSubject(model, metric, PlanHints(components=("norm",), heads={"layers.0.mlp": 2}))
    subject = ModuleSubject(model, metric, hints(heads=4))
    plan = discover(subject, found[1], granularity="head")
    with pytest.raises(UsageError, match="4 heads do not fit an input of size 6"):
        EdgeAttribution(subject, plan).attribute(found[1], n_steps=2)
