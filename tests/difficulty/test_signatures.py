from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recunlearn.difficulty.signatures import gini, path_length, shapes
from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.records import CircuitGraph, Circuits

FIVE = CircuitGraph(
    nodes=("a", "b", "h", "k", "output"),
    kinds=("source", "source", "module", "product", "output"),
    attention=(False, False, False, True, False),
    depths=(0, 0, 1, 2, 3),
    source=(3, 2, 2, 0, 1),
    sink=(4, 4, 3, 2, 3),
    source_group=("",) * 5,
    sink_group=("",) * 5,
)
"""k -> output, h -> output, h -> k, a -> h, b -> k."""


def circuits(values, graph=FIVE):
    values = np.atleast_2d(np.asarray(values, dtype=np.float64))
    n, width = values.shape
    names = tuple(str(e) for e in range(width))
    ids = np.array([f"u{i}" for i in range(n)])
    return Circuits(ids, names, values, np.zeros(n), np.ones(n, dtype=int), graph=graph)


def test_five_edges_by_hand():
    found = shapes(circuits([3, -1, 1, 4, -2]))  # |e| sums to 11
    # Walk: a with 4/6, b with 2/6; a -> h; from h half to the output, half to k; b -> k.
    # Visits a 2/3, b 1/3, h 2/3, k 1/3 + 1/3: 7/3 edges on average; D = 3.
    assert found["path_length"] == pytest.approx([7 / 9])
    assert found["late_share"] == pytest.approx([3 / 11])  # sources of depth >= 1.5: k alone
    assert found["direct_share"] == pytest.approx([1 / 4])  # of 3 + 1 into the output, h passes over k
    assert found["attention_share"] == pytest.approx([6 / 11])  # k -> output 3, h -> k 1, b -> k 2
    # sorted 1 1 2 3 4: 2 (1 + 2 + 6 + 12 + 20) / (5 * 11) - 6 / 5 = 82/55 - 66/55
    assert found["gini"] == pytest.approx([16 / 55])


def test_where_no_mass_leaves_a_node_the_walk_goes_on_to_each_sink_alike():
    # All starts at a (4 of 4); nothing leaves h: half to the output, half to k. 1 + 1 + 1/2 edges of 3.
    assert shapes(circuits([0, 0, 0, 4, 0]))["path_length"] == pytest.approx([2.5 / 3])


def test_a_single_last_unit_is_read_as_the_output():
    # The same graph with a further layer "p" before the output: only p feeds it.
    longer = replace(
        FIVE,
        nodes=("a", "b", "h", "k", "p", "output"),
        kinds=("source", "source", "module", "product", "module", "output"),
        attention=(False,) * 6,
        depths=(0, 0, 1, 2, 3, 4),
        source=(4, *FIVE.source),
        sink=(5, *FIVE.sink),
        source_group=("",) * 6,
        sink_group=("",) * 6,
    )
    found = shapes(circuits([9, 3, -1, 1, 4, -2], longer))
    assert found["direct_share"] == pytest.approx([1 / 4])
    assert found["path_length"] == pytest.approx([(7 / 3 + 1) / 4])
    assert found["late_share"] == pytest.approx([12 / 20])  # p and k, whose depth 2 is half of 4
    assert "attention_share" not in found


def test_a_chain_is_as_long_as_can_be_and_passes_over_nothing():
    chain = replace(
        FIVE,
        nodes=("a", "output"),
        kinds=("source", "output"),
        attention=(False, False),
        depths=(0, 1),
        source=(0, 0),
        sink=(1, 1),
        source_group=("",) * 2,
        sink_group=("",) * 2,
    )
    found = shapes(circuits([1, -3], chain))
    assert {k: float(v[0]) for k, v in found.items()} == {
        "path_length": 1.0,
        "late_share": 0.0,
        "direct_share": 0.0,
        "gini": 0.25,
    }


def test_untraced_users_and_zero_circuits_have_no_signature():
    found = shapes(circuits([[3, -1, 1, 4, -2], [np.nan] * 5, [0] * 5, [np.inf, 1, 1, 1, 1]]))
    for value in found.values():
        assert np.isfinite(value[0])
        assert np.isnan(value[1:]).all()


def test_circuits_without_graph_are_refused():
    with pytest.raises(RecunlearnError, match=r"hold no graph.*Trace them again"):
        shapes(circuits([1, 2, 3, 4, 5], graph=None))


rows = st.lists(st.floats(-1, 1).filter(lambda x: x == 0 or abs(x) > 1e-6), min_size=5, max_size=5).filter(
    any
)


@given(st.lists(rows, min_size=2, max_size=5), st.floats(1e-3, 1e3), st.randoms(use_true_random=False))
def test_scale_sign_and_order_of_users_do_not_matter(values, scale, random):
    plain = shapes(circuits(values))
    order = random.sample(range(len(values)), len(values))
    other = shapes(circuits(-scale * np.array(values)[order]))
    for key, value in plain.items():
        assert other[key] == pytest.approx(value[order], abs=1e-9, nan_ok=True)
        known = value[~np.isnan(value)]
        assert ((known >= -1e-12) & (known <= 1 + 1e-12)).all()


@given(st.lists(rows, min_size=1, max_size=3), st.data())
def test_splitting_an_edge_into_groups_changes_only_the_concentration(values, data):
    values = np.array(values)
    part = data.draw(st.floats(0, 1))
    split = replace(
        FIVE, source=(*FIVE.source, 3), sink=(*FIVE.sink, 4), source_group=("",) * 6, sink_group=("",) * 6
    )
    wide = np.column_stack([values[:, 0] * part, values[:, 1:], values[:, 0] * (1 - part)])
    whole, parts = shapes(circuits(values)), shapes(circuits(wide, split))
    for key in set(whole) - {"gini"}:
        assert parts[key] == pytest.approx(whole[key], abs=1e-9, nan_ok=True)


def dag(draw):
    """A random graph: every node but the sources reads one or more earlier nodes, every node is read."""
    n = draw(st.integers(3, 6))
    pairs = {(draw(st.integers(0, v - 1)), v) for v in range(1, n) if v == n - 1 or draw(st.booleans())}
    pairs |= {(u, draw(st.integers(u + 1, n - 1))) for u in range(n - 1)}
    pairs = sorted(pairs)
    parents = [[u for u, sink in pairs if sink == v] for v in range(n)]
    depths = []
    for v in range(n):
        depths.append(1 + max((depths[u] for u in parents[v]), default=-1))
    kinds = tuple("output" if v == n - 1 else "module" if parents[v] else "source" for v in range(n))
    return CircuitGraph(
        nodes=tuple(map(str, range(n))),
        kinds=kinds,
        attention=(False,) * n,
        depths=tuple(depths),
        source=tuple(u for u, _ in pairs),
        sink=tuple(v for _, v in pairs),
        source_group=("",) * len(pairs),
        sink_group=("",) * len(pairs),
    )


def every_path(graph, mass, node, weight, length):
    """(probability, length) of every walk from ``node`` to the output."""
    if node == len(graph.nodes) - 1:
        return [(weight, length)]
    out = [e for e, u in enumerate(graph.source) if u == node]
    total = sum(mass[e] for e in out)
    steps = [(graph.sink[e], mass[e] / total) for e in out]
    return [p for v, share in steps for p in every_path(graph, mass, v, weight * share, length + 1)]


@given(st.data())
def test_path_length_is_the_mean_over_all_paths(data):
    graph = dag(data.draw)
    mass = np.array(
        data.draw(st.lists(st.integers(1, 9), min_size=len(graph.source), max_size=len(graph.source))), float
    )
    starts = [v for v, kind in enumerate(graph.kinds) if kind == "source"]
    begin = {u: sum(mass[e] for e, s in enumerate(graph.source) if s == u) for u in starts}
    paths = [p for u in starts for p in every_path(graph, mass, u, begin[u] / sum(begin.values()), 0)]
    assert sum(p for p, _ in paths) == pytest.approx(1)
    mean = sum(p * length for p, length in paths)
    assert path_length(mass[None], graph) == pytest.approx([mean / graph.depths[-1]])


def test_gini_of_a_textbook():
    # 1..5: mean absolute difference of pairs (with repetition) 1.6, over twice the mean: 1.6 / 6
    assert gini(np.array([[3.0, 1, 5, 2, 4]])) == pytest.approx([4 / 15])


@given(st.lists(st.integers(0, 100), min_size=1, max_size=8).filter(any))
def test_gini_is_the_relative_mean_difference(values):
    x = np.array(values, float)
    expected = np.abs(x[:, None] - x[None]).mean() / (2 * x.mean())
    assert gini(x[None]) == pytest.approx([expected], abs=1e-12)
