"""Every edge of several families in another way: transformers' forward pass, its stream added up by hand.

Before each norm that reads the residual stream, the stream is replaced by the sum of what earlier components
wrote, each with a zero of its own added; the gradient of a zero is the gradient along one edge.
"""

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import roots_jacobi

pytest.importorskip("transformers")

from tiny_language import FAMILIES, WINDOWED, settings_of, untrained

from recunlearn.circuits.attribution import EdgeAttribution
from recunlearn.circuits.baselines import counterfactual_rows
from recunlearn.circuits.discovery import discover

HEADS = 4
LLAMA_KIND = (
    "model.layers",
    "self_attn",
    "input_layernorm",
    "post_attention_layernorm",
    "o_proj",
    "model.norm",
)
PLACES = {
    "llama": LLAMA_KIND,
    "qwen2": LLAMA_KIND,
    "mistral": LLAMA_KIND,
    "gpt2": ("transformer.h", "attn", "ln_1", "ln_2", "c_proj", "transformer.ln_f"),
    "gpt_neox": (
        *("gpt_neox.layers", "attention", "input_layernorm", "post_attention_layernorm"),
        *("dense", "gpt_neox.final_layer_norm"),
    ),
    "phi": (
        "model.layers",
        "self_attn",
        "input_layernorm",
        "input_layernorm",
        "dense",
        "model.final_layernorm",
    ),
}
SIDE_BY_SIDE = ("gpt_neox", "phi")
"""The MLP reads what stands before the attention of its own layer."""


@dataclass
class Stream:
    """What was written so far, and the zeros along the edges."""

    written: dict[str, torch.Tensor] = field(default_factory=dict)
    constant: list[torch.Tensor] = field(default_factory=list)
    zeros: dict[tuple[str, str], torch.Tensor] = field(default_factory=dict)
    off: float = 0.0

    def read(self, sink, real, norm, before=None):
        """Sum of what is in ``before`` (None: all so far) after ``norm``; notes how far ``real`` is."""
        seen = self if before is None else before
        total = sum(seen.constant)
        for source, value in seen.written.items():
            self.zeros[source, sink] = torch.zeros_like(value, requires_grad=True)
            total = total + value + self.zeros[source, sink]
        found = norm(total)
        if real is not None:
            self.off = max(self.off, float((found - real).detach().abs().max()))
        return found


def run(subject, family, batch, embedded):
    """Log-likelihood of every row with the embedding replaced, and the stream."""
    model, stream, layer_inputs = subject.model, Stream(), {}
    layers, attend, first, second, out, last = PLACES[family]

    def hooked(n, layer):
        attention, projection = getattr(layer, attend), getattr(getattr(layer, attend), out)

        def into_attention(_module, args, kwargs):
            layer_inputs[n] = Stream(dict(stream.written), list(stream.constant))
            real = args[0] if args else kwargs["hidden_states"]
            found = stream.read(f"attention.{n}", real, getattr(layer, first))
            return ((found, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": found})

        def out_of_heads(_module, args):
            weight = projection.weight if family == "gpt2" else projection.weight.T
            size = weight.shape[0] // HEADS
            for h in range(HEADS):
                own = slice(h * size, (h + 1) * size)
                stream.written[f"attention.{n}.head.{h}"] = args[0][..., own] @ weight[own]
            if projection.bias is not None:
                stream.constant.append(projection.bias)

        def into_mlp(_module, args):
            before = layer_inputs[n] if family in SIDE_BY_SIDE else None
            return (stream.read(f"mlp.{n}", args[0], getattr(layer, second), before),)

        def out_of_mlp(_module, _args, output):
            stream.written[f"mlp.{n}"] = output

        yield attention.register_forward_pre_hook(into_attention, with_kwargs=True)
        yield projection.register_forward_pre_hook(out_of_heads)
        yield layer.mlp.register_forward_pre_hook(into_mlp)
        yield layer.mlp.register_forward_hook(out_of_mlp)

    def look_up(_module, _args, _output):
        stream.written["token"] = embedded
        return embedded

    with ExitStack() as hooks:
        hooks.callback(model.get_input_embeddings().register_forward_hook(look_up).remove)
        if family == "gpt2":
            keep = model.transformer.wpe.register_forward_hook(lambda *seen: stream.constant.append(seen[2]))
            hooks.callback(keep.remove)
        for n, layer in enumerate(model.get_submodule(layers)):
            for handle in hooked(n, layer):
                hooks.callback(handle.remove)
        end = model.get_submodule(last).register_forward_pre_hook(
            lambda _module, _args: (stream.read("output", None, lambda x: x),)
        )
        hooks.callback(end.remove)
        logits = model(input_ids=batch.columns["tokens"], use_cache=False).logits
    return answers(logits, batch), stream


def answers(logits, batch):
    found = []
    for n in range(len(batch)):
        start, end = int(batch.columns["prompt"][n]), int(batch.columns["length"][n])
        own = logits[n, start - 1 : end - 1]
        right = own.gather(1, batch.columns["tokens"][n, start:end, None])[:, 0]
        found.append((right - own.logsumexp(1)).mean())
    return torch.stack(found)


def radau(n):
    """Gauss-Radau on [0, 1] with a node at 1, by the roots of a Jacobi polynomial."""
    x, w = roots_jacobi(n - 1, 1, 0)
    return (np.append(x, 1.0) + 1) / 2, np.append(w / (1 - x), 2 / n**2) / 2


def by_hand(subject, family, batch, start, end, steps):
    with torch.no_grad():
        (high, top), (low, bottom) = (run(subject, family, batch, x) for x in (end, start))
    assert max(top.off, bottom.off) < 1e-4  # the sum by hand is the stream
    sums: dict[tuple[str, str], Any] = {}
    for alpha, weight in zip(*radau(steps), strict=True):
        value, stream = run(subject, family, batch, torch.lerp(start, end, float(alpha)).requires_grad_())
        for edge, g in zip(
            stream.zeros, torch.autograd.grad(value.sum(), list(stream.zeros.values())), strict=True
        ):
            sums[edge] = sums.get(edge, 0) + weight * g.double()
    moved = {u: (top.written[u] - bottom.written[u]).double() for u in top.written}
    return {f"{u} -> {v}": (moved[u] * g).flatten(1).sum(1) for (u, v), g in sums.items()}, (
        high - low
    ).double()


@pytest.mark.parametrize("family", sorted(PLACES))
def test_edges_from_other_tokens_are_those_of_the_whole_model(family, tmp_path):
    subject = untrained(tmp_path, settings_of({**WINDOWED, **FAMILIES}[family]), count=8)
    torch.manual_seed(0)
    with torch.no_grad():  # larger than as initialised, so that attention and curvature matter
        for p in subject.model.parameters():
            p.mul_(4.0) if p.dim() > 1 else p.add_(0.3 * torch.randn_like(p))
    subject.model.requires_grad_(False)
    batch = next(subject.batches(batch_size=6))
    plan = discover(subject, batch, granularity="head")
    engine = EdgeAttribution(subject, plan, baseline="counterfactual", seed=0)
    found = engine.explain(batch, n_steps=5)
    tokens, table = batch.columns["tokens"], subject.model.get_input_embeddings().weight
    name = plan.components[plan.sources[0]].table
    others = counterfactual_rows(tokens, name, table, subject.hints(), 0)
    assert (others != tokens).all()
    edges, change = by_hand(subject, family, batch, table[others], table[tokens], 5)
    assert set(edges) == set(plan.edges)
    both = torch.stack([edges[e] for e in plan.edges], 1)
    assert both.abs().max() > 0.01
    torch.testing.assert_close(found.edges.double(), both, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.change.double(), change, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        found.edges[:, list(plan.source_columns)].sum(1) - found.change, found.delta, atol=1e-5, rtol=1e-4
    )
    fine = engine.explain(batch, n_steps=96)
    assert (fine.delta.abs() < 5e-3 * fine.change.abs().max()).all()
