"""Random networks with concatenation, products, skips and norms: every edge against a plain loop."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from recunlearn.circuits.attribution import EdgeAttribution
from recunlearn.circuits.discovery import discover
from recunlearn.circuits.path import gauss_radau
from recunlearn.circuits.subject import ModuleSubject
from recunlearn.subjects.contract import Batch

WIDTH = 3
OPERATIONS = ("linear", "product", "concatenation", "skip", "norm")


class RandomGraph(nn.Module):
    """Each node reads one or two earlier ones; the score reads the last node and both look-ups."""

    def __init__(self, nodes: list[tuple[str, int, int]], seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.nodes = nodes
        self.first, self.second = nn.Embedding(5, WIDTH), nn.Embedding(5, WIDTH)
        self.layers = nn.ModuleDict()
        for i, (operation, _, _) in enumerate(nodes):
            if operation in ("linear", "skip"):
                self.layers[str(i)] = nn.Linear(WIDTH, WIDTH)
            elif operation == "concatenation":
                self.layers[str(i)] = nn.Linear(2 * WIDTH, WIDTH)
            elif operation == "norm":
                self.layers[str(i)] = nn.LayerNorm(WIDTH, eps=0.1)
        self.double()

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        known = [self.first(a), self.second(b)]
        for i, (operation, first, second) in enumerate(self.nodes):
            x, y = known[first % len(known)], known[second % len(known)]
            layer = self.layers[str(i)] if operation != "product" else None
            if operation == "linear":
                known.append(layer(torch.tanh(x)))
            elif operation == "product":
                known.append(x * y)
            elif operation == "concatenation":
                known.append(layer(torch.cat([x, y], -1)))
            elif operation == "skip":
                known.append(x + layer(y))
            else:
                known.append(layer(x + y))
        return (known[-1] * torch.arange(1, WIDTH + 1)).sum(-1) + sum(k.sum(-1) for k in known[:2])


nodes = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=6
)


def score(model: nn.Module, batch: Batch) -> Tensor:
    return torch.nn.functional.logsigmoid(model(*batch.columns.values()))


def engine_of(graph: list[tuple[str, int, int]], seed: int) -> tuple[EdgeAttribution, Batch]:
    batch = Batch({"a": torch.tensor([0, 1, 2, 4]), "b": torch.tensor([3, 1, 4, 0])}, torch.arange(4))
    subject = ModuleSubject(RandomGraph(graph, seed).eval(), score)
    return EdgeAttribution(subject, discover(subject, batch, groups=1), baseline="zero"), batch


@settings(max_examples=25, deadline=None)
@given(nodes, st.integers(0, 99))
def test_both_scores_are_complete_at_the_sources(graph, seed):
    engine, batch = engine_of(graph, seed)
    for method, n_steps, apart in (("eap-ig", 48, 1e-6), ("conductance", 257, 2e-3)):
        found = engine.explain(batch, n_steps=n_steps, method=method)
        torch.testing.assert_close(found.delta, torch.zeros(4).double(), rtol=0, atol=apart)


@settings(max_examples=25, deadline=None)
@given(nodes, st.integers(0, 99))
def test_every_edge_is_the_gradient_through_its_sink_alone(graph, seed):
    """The plain loop: at every path point one autograd pass per edge, in which v alone reads u."""
    engine, batch = engine_of(graph, seed)
    ends = engine.ends(batch)
    expected = torch.zeros(4, len(engine.plan.edges), dtype=torch.float64)
    for a, c in zip(*gauss_radau(5), strict=True):
        sources = {i: ends.starts[i] + a * ends.changes[i] for i in engine.plan.sources}
        for e, (u, v, _) in enumerate(engine.plan.reads):
            through = _gradient_through(engine, batch, sources, u, v)
            expected[:, e] += c * (through * ends.changes[u]).sum(-1)
    torch.testing.assert_close(engine.attribute(batch, n_steps=5), expected, rtol=1e-9, atol=1e-11)


def _gradient_through(engine, batch, sources, u, v):
    """d metric / d u along the edge u -> v: cut the whole pass, then chain two gradients."""
    run = engine.replay(batch, sources, cut=True)
    end = len(engine.plan.components)
    if v == end:
        return _grad(run.value.sum(), run.leaves[u])
    # Gradient with respect to v's output, over all ways: by the chain rule from the output down to v.
    flow = {end: None}
    for sink in range(end, v, -1):
        parents = engine.plan.outputs if sink == end else engine.plan.components[sink].parents
        if sink != end and sink not in flow:
            continue
        segment = run.value.sum() if sink == end else (run.before[sink] * flow[sink]).sum()
        for parent in parents:
            g = _grad(segment, run.leaves[parent])
            flow[parent] = flow[parent] + g if parent in flow else g
    if v not in flow:
        return torch.zeros_like(run.leaves[u])
    return _grad((run.before[v] * flow[v]).sum(), run.leaves[u])


def _grad(value, leaf):
    return torch.autograd.grad(value, leaf, retain_graph=True)[0]
