"""Circuits of transformers: against gradients of every edge computed in one whole, uncut forward pass."""

import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("transformers")

from tiny_language import FAMILIES, LLAMA, settings_of, untrained

from recunlearn.circuits.attribution import EdgeAttribution
from recunlearn.circuits.baselines import table_means
from recunlearn.circuits.discovery import discover
from recunlearn.circuits.path import Path
from recunlearn.foundation.errors import TraceError, UsageError


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    subject = untrained(tmp_path_factory.mktemp("rows"))
    torch.manual_seed(0)
    with torch.no_grad():  # larger than as initialised, so that attention and curvature matter
        for p in subject.model.parameters():
            p.mul_(3.0) if p.dim() > 1 else p.add_(0.3 * torch.randn_like(p))
    return subject


def rotated(x, positions, base=10_000.0):
    """Rotary position embedding, written out: ``[..., T, k]``."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * base ** (-torch.arange(half, dtype=x.dtype) / half)
    first, second = x[..., :half], x[..., half:]
    return torch.cat(
        [first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1
    )


class Written:
    """A Llama's forward pass written as sums of reads: each sink adds up the outputs of all earlier sources.

    Every read has a zero of its own added, whose gradient is the gradient along that edge.
    """

    def __init__(self, model, heads=4, groups=2):
        self.model, self.heads, self.groups = model, heads, groups

    def __call__(self, embedded, batch):
        self.out, self.reads = {"token": embedded}, {}
        for n, layer in enumerate(self.model.model.layers):
            x = self.read(f"attention.{n}")
            for h, term in enumerate(self.attention(layer.self_attn, layer.input_layernorm(x))):
                self.out[f"attention.{n}.head.{h}"] = term
            self.out[f"mlp.{n}"] = layer.mlp(layer.post_attention_layernorm(self.read(f"mlp.{n}")))
        logits = self.model.lm_head(self.model.model.norm(self.read("output")))
        return self.mean_log_likelihood(logits, batch)

    def read(self, sink):
        total = 0
        for source, value in self.out.items():
            zero = torch.zeros_like(value, requires_grad=True)
            self.reads[source, sink] = zero
            total = total + value + zero
        return total

    def attention(self, part, x):
        B, T, d = x.shape
        k = d // self.heads
        q, key, value = (
            p(x).view(B, T, -1, k).transpose(1, 2) for p in (part.q_proj, part.k_proj, part.v_proj)
        )
        at = torch.arange(T, dtype=x.dtype)
        q, key = rotated(q, at), rotated(key, at)
        shared = self.heads // self.groups
        for h in range(self.heads):
            scores = q[:, h] @ key[:, h // shared].transpose(1, 2) / k**0.5
            scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -torch.inf)
            mixed = scores.softmax(-1) @ value[:, h // shared]
            yield mixed @ part.o_proj.weight[:, h * k : (h + 1) * k].T

    def mean_log_likelihood(self, logits, batch):
        found = []
        for b in range(len(batch)):
            start, end = int(batch.columns["prompt"][b]), int(batch.columns["length"][b])
            own = F.log_softmax(logits[b, start - 1 : end - 1], -1)
            found.append(own.gather(1, batch.columns["tokens"][b, start:end, None]).mean())
        return torch.stack(found)


def by_hand(subject, batch, steps):
    """EAP-IG of every edge, from one whole backward pass a point and sample."""
    model, table = subject.model, subject.model.model.embed_tokens
    end = table(batch.columns["tokens"]).detach()
    start = table_means("", table.weight, subject.hints()).expand_as(end)
    written, path = Written(model), Path.of("eap-ig", steps, torch.float32, torch.device("cpu"))
    outs, sums = [], {}
    for x in (start, end):
        with torch.no_grad():
            change = written(x, batch)
            outs.append((dict(written.out), change))
    for alpha, weight in zip(path.alphas, path.weights, strict=True):
        value = written((start + alpha * (end - start)).requires_grad_(), batch)
        grads = torch.autograd.grad(value.sum(), list(written.reads.values()))
        for edge, g in zip(written.reads, grads, strict=True):
            sums[edge] = sums.get(edge, 0) + weight * g
    moved = {u: outs[1][0][u] - outs[0][0][u] for u in outs[0][0]}
    edges = {f"{u} -> {v}": (moved[u] * g).flatten(1).sum(1) for (u, v), g in sums.items()}
    return edges, outs[1][1] - outs[0][1]


def test_edges_are_those_of_the_uncut_model(llama):
    batch = next(llama.batches(batch_size=6))
    plan = discover(llama, batch, granularity="head")
    found = EdgeAttribution(llama, plan).explain(batch, n_steps=5, internal_batch_size=2)
    expected, change = by_hand(llama, batch, 5)
    # sources before each sink: 1 | 5 | 6 | 10 | 11 of 1 embedding, 2 x 4 heads, 2 MLPs
    assert len(plan.edges) == 1 + 5 + 6 + 10 + 11
    assert set(plan.edges) == set(expected)
    both = torch.stack([expected[name] for name in plan.edges], 1)
    assert both.abs().max() > 0.01
    torch.testing.assert_close(found.edges, both, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.change, change, atol=1e-5, rtol=1e-5)


def test_edges_out_of_the_embedding_are_the_difference(llama):
    batch = next(llama.batches(batch_size=6))
    plan = discover(llama, batch, granularity="head")
    found = EdgeAttribution(llama, plan).explain(batch, n_steps=64)
    leaving = found.edges[:, plan.columns_of(source="token")].sum(1)
    assert found.change.abs().max() > 0.1
    torch.testing.assert_close(leaving, found.change, atol=2e-4, rtol=2e-4)


def test_heads_add_up_to_their_attention(llama):
    batch = next(llama.batches(batch_size=4))
    apart = discover(llama, batch, granularity="head")
    whole = discover(llama, batch, granularity="module")
    for method in ("eap-ig", "conductance"):
        fine = EdgeAttribution(llama, apart).attribute(batch, n_steps=4, method=method)
        coarse = EdgeAttribution(llama, whole).attribute(batch, n_steps=4, method=method)
        for source in ("attention.0", "attention.1", "mlp.0"):
            for sink in ("mlp.1", "output"):
                together = fine[:, apart.columns_of(source, sink)].sum(1)
                alone = coarse[:, whole.columns_of(source, sink)].sum(1)
                torch.testing.assert_close(together, alone, atol=1e-6, rtol=1e-3)


def test_conductance_is_complete_on_every_cut(llama):
    batch = next(llama.batches(batch_size=4))
    plan = discover(llama, batch, granularity="head")
    found = EdgeAttribution(llama, plan).explain(
        batch, n_steps=200, method="conductance", internal_batch_size=1
    )
    into_output = found.edges[:, plan.columns_of(sink="output")].sum(1)
    torch.testing.assert_close(into_output, found.change, atol=2e-3, rtol=2e-3)


def test_rows_do_not_see_each_other_nor_their_filling(llama):
    batch = next(llama.batches(batch_size=6))
    plan = discover(llama, batch, granularity="head")
    engine = EdgeAttribution(llama, plan)
    together = engine.attribute(batch, n_steps=3)
    for n in range(3):
        alone = next(llama.batches(torch.tensor([n]).numpy(), batch_size=1))
        torch.testing.assert_close(engine.attribute(alone, n_steps=3)[0], together[n], atol=1e-6, rtol=1e-4)


def test_query_key_and_value_apart(llama):
    settings = settings_of(circuits={"attention": "apart"})
    subject = type(llama)(llama.rows, llama.model, llama.tokenizer, settings, llama.start)
    batch = next(subject.batches(batch_size=4))
    fine, whole = (discover(s, batch, granularity="head") for s in (subject, llama))
    edges, coarse = (
        EdgeAttribution(s, p).attribute(batch, n_steps=4) for s, p in ((subject, fine), (llama, whole))
    )
    parts = sum(edges[:, fine.columns_of("token", f"attention.1.{p}")] for p in ("query", "key", "value"))
    torch.testing.assert_close(
        parts, coarse[:, whole.columns_of("token", "attention.1")], atol=1e-6, rtol=1e-3
    )


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_families(family, tmp_path):
    subject = untrained(tmp_path, settings_of(FAMILIES[family]), count=8)
    batch = next(subject.batches(batch_size=4))
    plan = discover(subject, batch, granularity="head")
    found = EdgeAttribution(subject, plan).explain(batch, n_steps=24)
    side_by_side = family in ("phi", "gpt_neox")  # attention and MLP read the same stream
    assert ("attention.0.head.3 -> mlp.0" in plan.edges) is not side_by_side
    assert [c.name for c in plan.components] == ["token", "attention.0", "mlp.0", "attention.1", "mlp.1"]
    assert (found.delta.abs() < 1e-3 * found.change.abs() + 1e-5).all()
    pairs = 1 + 5 + 6 + 10 + 11 if not side_by_side else 1 + 1 + 6 + 6 + 11
    assert len(plan.edges) == pairs


def test_what_has_one_layer_for_query_key_and_value_cannot_be_taken_apart(tmp_path):
    settings = settings_of(FAMILIES["gpt2"], circuits={"attention": "apart"})
    with pytest.raises(TraceError, match=r"circuits\.attention = 'whole'"):
        untrained(tmp_path, settings, count=8).hints()


def test_heads_that_do_not_fit_are_refused():
    from recunlearn.circuits.heads import head_weights

    with pytest.raises(UsageError, match="3 heads do not fit an input of size 32"):
        head_weights(torch.nn.Linear(LLAMA["hidden_size"], 8), 32, 3)
