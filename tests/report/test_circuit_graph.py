import re
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from explained import ATTENTION, NEURAL, explained, graph
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imread

from recunlearn.difficulty.explanation import by_pair
from recunlearn.report.circuit_graph import LOWERS, RAISES, THICKEST, charts, draw, save_picture, strokes

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module", params=[NEURAL, ATTENTION], ids=["neural", "attention"])
def found(request):
    return explained(graph(*request.param))


@pytest.fixture(scope="module")
def svg(found, tmp_path_factory):
    return save_picture(found, tmp_path_factory.mktemp("svg") / "picture.svg")


def test_every_edge_is_drawn_in_every_circuit(found, svg):
    ids = [e.get("id") for e in ElementTree.parse(svg).iter() if " -> " in (e.get("id") or "")]
    pairs = set(zip(found.graph.source, found.graph.sink, strict=True))
    panels = ("This user", "Mean of 3 easy anchors", "Mean of 2 hard anchors")
    names = found.graph.nodes
    assert sorted(ids) == sorted(f"{p}: {names[u]} -> {names[v]}" for p in panels for u, v in pairs)


def test_texts_stay_text_and_name_every_node(found, svg):
    texts = [t.text for t in ElementTree.parse(svg).iter(f"{SVG}text")]
    assert all(texts.count(name) >= 3 for name in found.graph.nodes if len(name) <= 20)
    lines = "".join(texts)
    assert all(name in lines for name in found.graph.nodes)
    assert any("CUD" in t and f"rank {found.rank} of 20 users (1: hardest)" in t for t in texts)
    assert {"towards easy", "towards hard", "less likely", "input", "output"} <= set(texts)


def test_a_picture_does_not_show_the_id(found, svg):
    assert "4711" not in svg.read_text()
    assert "This user is hard to unlearn" in svg.read_text()


def test_two_pictures_of_the_same_are_the_same(found, svg, tmp_path):
    assert save_picture(found, tmp_path / "again.svg").read_bytes() == svg.read_bytes()


def test_png_is_a_picture_on_white(found, tmp_path):
    pixels = imread(save_picture(found, tmp_path / "picture.png"))
    assert pixels[0, 0, :3] == pytest.approx([1, 1, 1])
    assert pixels.shape[1] > 800
    assert [p.name for p in tmp_path.iterdir()] == ["picture.png"]


def test_no_text_leaves_its_box_or_the_sheet(found):
    with mpl.rc_context({"font.size": 8.0}):
        figure = draw(found)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
    page = figure.bbox
    for axes in figure.axes[:3]:
        boxes = [p for p in axes.patches if hasattr(p, "get_boxstyle")]
        labels = [t for t in axes.texts if t.get_zorder() == 4]
        assert len(boxes) == len(labels) == len(found.graph.nodes)
        for box, label in zip(boxes, labels, strict=True):
            outer, inner = box.get_window_extent(), label.get_window_extent()
            assert outer.x0 <= inner.x0 <= inner.x1 <= outer.x1
            assert outer.y0 <= inner.y0 <= inner.y1 <= outer.y1
    for text in [*figure.texts, *(t for axes in figure.axes for t in [*axes.texts, *axes.get_yticklabels()])]:
        extent = text.get_window_extent()
        assert page.x0 <= extent.x0 <= extent.x1 <= page.x1, text.get_text()
        assert page.y0 <= extent.y0 <= extent.y1 <= page.y1, text.get_text()


def test_width_is_strength_on_one_scale_and_colour_is_sign():
    of = graph([("a", "input"), ("b", "module")], [("a", "b")], ["a", "b"], groups=2)
    # columns: a[0] -> b, a[1] -> b, a[0] -> output, a[1] -> output, b[0] -> output, b[1] -> output
    strength = np.array([[1.0, 1, -3, 1, 4, 4], [0, 0, 0, 0, -1, 0]])
    first, second = strokes(of, strength)
    assert [(s.value, s.colour) for s in first.values()] == [(2, RAISES), (-2, LOWERS), (8, RAISES)]
    assert first[1, 2].width == pytest.approx(THICKEST)
    # one scale: 2 of 8 and 1 of 8 between the thinnest and the thickest
    thin = second[0, 1].width
    assert first[0, 1].width == first[0, 2].width == pytest.approx(thin + (THICKEST - thin) / 4)
    assert second[1, 2].width == pytest.approx(thin + (THICKEST - thin) / 8)
    assert all(s.width == thin for row in strokes(of, np.zeros((2, 6))) for s in row.values())


def test_bars_are_the_contributions(found):
    (first, edges, values), (second, pairs, sums) = charts(found)
    assert first.endswith("to CUD")
    assert second.endswith("to CUD")
    order = np.argsort(-np.abs(found.told.contribution), kind="stable")[:10]
    assert values == pytest.approx(found.told.contribution[order])
    assert all(
        re.sub(r".*\[", "[", a.split(" -> ")[0]) in found.edges[e] for a, e in zip(edges, order, strict=True)
    )
    expected = by_pair(found.graph, found.told.contribution)
    if len(expected) <= 10:
        assert sum(sums) == pytest.approx(found.told.cud - 0.5)
    assert len(pairs) == min(10, len(expected))
