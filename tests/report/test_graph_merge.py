import numpy as np
from explained import explained, graph

from recunlearn.difficulty.explanation import by_pair
from recunlearn.report.circuit_graph import save_picture
from recunlearn.report.graph_merge import GROUPS, READABLE, merged


def transformer(layers, groups=2):
    """Every component reaches every later one, as in a residual stream."""
    names = ["token", *(f"{part}.{n}" for n in range(layers) for part in ("attention", "mlp"))]
    pairs = [(u, v) for i, u in enumerate(names) for v in names[i + 1 :]]
    return graph([(n, "input" if n == "token" else "module") for n in names], pairs, names, groups)


def test_few_edges_stay_as_they_are():
    of = transformer(3)
    drawn, kept = merged(of)
    assert drawn is of
    assert kept.tolist() == list(range(len(of.source)))


def test_layers_of_a_deep_model_stand_together():
    of = transformer(30)
    drawn, kept = merged(of)
    # 30 layers in 8 groups: six of four layers, two of three.
    assert drawn.nodes[:3] == ("token", "layers 0-3", "layers 4-7")
    assert drawn.nodes[-2:] == ("layers 27-29", "output")
    assert len(drawn.nodes) == GROUPS + 2
    assert drawn.depths == tuple(range(GROUPS + 2))
    assert drawn.kinds == ("source", *("module",) * GROUPS, "output")
    values = np.arange(len(of.source), dtype=np.float64)
    pairs = by_pair(drawn, values[kept])
    assert len(pairs) == (GROUPS + 2) * (GROUPS + 1) // 2 <= READABLE
    whole = by_pair(of, values)
    inside = {n for n, name in enumerate(of.nodes) if name.split(".")[-1] in {"0", "1", "2", "3"}}
    output = len(of.nodes) - 1
    assert pairs[1, GROUPS + 1] == sum(v for (u, w), v in whole.items() if u in inside and w == output)
    # Nothing is lost but what lies within a group.
    within = sum(
        v for (u, w), v in whole.items() if drawn_of(of.nodes[u], drawn) == drawn_of(of.nodes[w], drawn)
    )
    assert np.isclose(sum(pairs.values()) + within, values.sum())


def drawn_of(name, drawn):
    if "." not in name:
        return name
    layer = int(name.split(".")[1])
    spans = [n.removeprefix("layers ").split("-") for n in drawn.nodes if n.startswith("layer")]
    return next(k for k, (low, high) in enumerate(spans) if int(low) <= layer <= int(high))


def test_other_graphs_keep_their_nodes():
    names = [f"feed.{n}" for n in range(14)]
    pairs = [(u, v) for i, u in enumerate(names) for v in names[i + 1 :]]
    of = graph([(names[0], "input"), *((n, "module") for n in names[1:])], pairs, names)
    assert merged(of)[0] is of


def test_a_deep_picture_says_what_stands_together(tmp_path):
    file = save_picture(explained(transformer(12, groups=1)), tmp_path / "deep.svg")
    text = file.read_text(encoding="utf-8")
    assert "layers 0-1" in text
    assert "26 nodes as 10" in text
