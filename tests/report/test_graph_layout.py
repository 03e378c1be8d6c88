from itertools import combinations

import numpy as np
import pytest
from explained import ATTENTION, NEURAL, graph
from hypothesis import given
from hypothesis import strategies as st

from recunlearn.foundation.records import CircuitGraph
from recunlearn.report.graph_layout import LONGEST, label_lines, layout


@st.composite
def graphs(draw):
    """Directed acyclic graphs of up to 12 nodes, each with an edge to a later one; names of any length."""
    n = draw(st.integers(1, 11))
    pairs = {(u, draw(st.integers(u + 1, n))) for u in range(n)}
    pairs |= set(draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(1, n)), max_size=12)))
    pairs = sorted(p for p in pairs if p[0] < p[1])
    depths = [0] * (n + 1)
    for u, v in sorted(pairs, key=lambda p: p[1]):
        depths[v] = max(depths[v], depths[u] + 1)
    names = draw(st.lists(st.text("ab._(, ", min_size=1, max_size=50), min_size=n, max_size=n))
    source, sink = (tuple(p[k] for p in pairs) for k in (0, 1))
    blank = ("",) * len(pairs)
    return CircuitGraph(
        (*names, "output"),
        ("module",) * (n + 1),
        (False,) * (n + 1),
        tuple(depths),
        source,
        sink,
        blank,
        blank,
    )


def drawn_points(route):
    """Points along a route: straight from even to odd ones, an S (control points in the middle) between."""
    parts = []
    for k in range(len(route) - 1):
        t = np.linspace(0, 1, 25)[:, None]
        a, b = route[k], route[k + 1]
        c, d = np.array([(a[0] + b[0]) / 2, a[1]]), np.array([(a[0] + b[0]) / 2, b[1]])
        curve = (1 - t) ** 3 * a + 3 * t * (1 - t) ** 2 * c + 3 * t**2 * (1 - t) * d + t**3 * b
        parts.append(a + t * (b - a) if k % 2 == 0 else curve)
    return np.concatenate(parts)


def inside(box, points, margin=0.0):
    return (np.abs(points[:, 0] - box.x) < box.width / 2 - 1e-9 - margin) & (
        np.abs(points[:, 1] - box.y) < box.height / 2 - 1e-9 - margin
    )


def check(of):
    plan = layout(of)
    for a, b in combinations(plan.boxes, 2):
        apart = abs(a.x - b.x) >= (a.width + b.width) / 2 or abs(a.y - b.y) >= (a.height + b.height) / 2 + 0.3
        assert apart, (a, b)
    for box in plan.boxes:
        assert box.x - box.width / 2 >= 0
        assert box.x + box.width / 2 <= plan.width + 1e-9
        assert box.y - box.height / 2 >= 0
        assert box.y + box.height / 2 <= plan.height + 1e-9
        assert box.width >= max(map(len, box.lines)) + 1
    assert set(plan.routes) == set(zip(of.source, of.sink, strict=True))
    for (u, v), route in plan.routes.items():
        start, end = plan.boxes[u], plan.boxes[v]
        assert route[0][0] == pytest.approx(start.x + start.width / 2)
        assert route[-1][0] == pytest.approx(end.x - end.width / 2)
        assert abs(route[0][1] - start.y) < start.height / 2
        assert abs(route[-1][1] - end.y) < end.height / 2
        assert (np.diff(route[:, 0]) >= -1e-9).all()  # never back
        points = drawn_points(route)
        assert not any(inside(box, points).any() for box in plan.boxes)


@given(graphs())
def test_nodes_do_not_overlap_and_edges_pass_no_node(of):
    check(of)


@pytest.mark.parametrize("parts", [NEURAL, ATTENTION], ids=["neural", "attention"])
def test_real_shapes(parts):
    check(graph(*parts))


def test_columns_go_by_depth():
    of = graph(*ATTENTION)
    plan = layout(of)
    for a, b in combinations(range(len(of.nodes)), 2):
        if of.depths[a] < of.depths[b]:
            assert plan.boxes[a].x + plan.boxes[a].width / 2 < plan.boxes[b].x - plan.boxes[b].width / 2
        elif of.depths[a] == of.depths[b]:
            assert plan.boxes[a].x == pytest.approx(plan.boxes[b].x)


def test_crossings_that_can_be_avoided_are():
    # a -> y, b -> x in this order cross; two straight lines do not
    nodes = [("a", "input"), ("b", "input"), ("x", "module"), ("y", "module")]
    plan = layout(graph(nodes, [("a", "y"), ("b", "x")], ["x", "y"], 1))
    a, b, x, y = (plan.boxes[i].y for i in range(4))
    assert (a - b) * (y - x) > 0


def test_the_same_graph_gives_the_same_layout():
    first, second = layout(graph(*ATTENTION)), layout(graph(*ATTENTION))
    assert first.boxes == second.boxes
    assert all((first.routes[p] == second.routes[p]).all() for p in first.routes)


@given(st.text("ab._(, ", min_size=1, max_size=80))
def test_labels_lose_nothing_but_blanks(name):
    lines = label_lines(name)
    assert max(map(len, lines)) <= LONGEST
    assert "".join(lines).replace(" ", "") == name.replace(" ", "")
