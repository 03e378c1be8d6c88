"""Where the nodes and edges of a circuit lie on paper: data, drawn by :mod:`.circuit_graph`.

A layered drawing after Sugiyama, Tagawa and Toda (1981): one column per depth, edges over several columns
pass through lanes of their own, the order within columns by barycentres, the heights by least squares.
Units: one character of a label across, one line of text down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from recunlearn.foundation.records import CircuitGraph

LONGEST = 20
"""Characters of a label's line."""
GAP = 7.0
"""Free space between two columns."""
NODE, LANE = 2.0, 1.2
"""Height that a node (with its margin) and a passing edge take in a column, for labels of one line."""
SWEEPS = 12
Item = tuple[int, int]
"""A node ``(node, -1)`` or the place ``(pair, column)`` where a long edge passes a column, pairs numbered."""


@dataclass(frozen=True)
class Box:
    """A node: centre, size and the lines of its label."""

    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """Boxes of the nodes, and the points that every pair's edge goes through.

    Args:
        boxes: one a node, in the order of ``graph.nodes``.
        routes: (source, sink) -> ``[2 m, 2]`` points: horizontal from each even point to the next, a curve
            from each odd point to the next.
        width, height: of the smallest sheet from (0, 0) that holds everything.
    """

    boxes: tuple[Box, ...]
    routes: dict[tuple[int, int], NDArray[np.float64]]
    width: float
    height: float


def layout(graph: CircuitGraph) -> Layout:
    """Place every node and every edge of a graph; the same graph gives the same layout."""
    labels = [label_lines(name) for name in graph.nodes]
    pairs = sorted(set(zip(graph.source, graph.sink, strict=True)))
    columns, links = _columns(graph, pairs)
    _order(columns, links)
    heights = {(node, -1): NODE + len(lines) - 1 for node, lines in enumerate(labels)}
    y = _heights(columns, links, heights)
    widths = [2.0 + max(map(len, lines)) for lines in labels]
    column_widths = [max((widths[i] for i, kind in c if kind == -1), default=2.0) for c in columns]
    left = np.cumsum([0.0, *(w + GAP for w in column_widths)])[:-1]
    low = min(y[item] - heights.get(item, LANE) / 2 for item in y)
    boxes = [
        Box(
            float(left[d] + column_widths[d] / 2),
            y[node, -1] - low,
            widths[node],
            heights[node, -1] - 0.6,
            labels[node],
        )
        for node, d in enumerate(graph.depths)
    ]
    spans = [(float(a), float(a + w)) for a, w in zip(left, column_widths, strict=True)]
    routes = {}
    for number, (u, v) in enumerate(pairs):
        start, end = boxes[u], boxes[v]
        points = [(start.x + start.width / 2, start.y), (spans[graph.depths[u]][1], start.y)]
        for d in range(graph.depths[u] + 1, graph.depths[v]):
            points += [(x, y[number, d] - low) for x in spans[d]]
        points += [(spans[graph.depths[v]][0], end.y), (end.x - end.width / 2, end.y)]
        routes[u, v] = np.array(points)
    height = max(y[item] + heights.get(item, LANE) / 2 for item in y) - low
    return Layout(tuple(boxes), routes, spans[-1][1], height)


def label_lines(name: str) -> tuple[str, ...]:
    """Break a long name behind a separator into lines of at most :data:`LONGEST` characters.

    >>> label_lines("gmf"), label_lines("trm_encoder.layer.0.feed_forward.dense_1")
    (('gmf',), ('trm_encoder.layer.0.', 'feed_forward.dense_1'))
    """
    lines, rest = [], name
    while len(rest) > LONGEST:
        cut = max(rest.rfind(mark, 0, LONGEST) for mark in "._ ,(:[") + 1 or LONGEST
        lines.append(rest[:cut])
        rest = rest[cut:].lstrip()
    return (*lines, rest)


def _columns(
    graph: CircuitGraph, pairs: Sequence[tuple[int, int]]
) -> tuple[list[list[Item]], list[tuple[Item, Item]]]:
    """Items of every column, and the links between items of neighbouring columns."""
    columns: list[list[Item]] = [[] for _ in range(max(graph.depths) + 1)]
    for node, d in enumerate(graph.depths):
        columns[d].append((node, -1))
    links: list[tuple[Item, Item]] = []
    for number, (u, v) in enumerate(pairs):
        between = [(number, d) for d in range(graph.depths[u] + 1, graph.depths[v])]
        for item in between:
            columns[item[1]].append(item)
        links += pairwise([(u, -1), *between, (v, -1)])
    return columns, links


def _neighbours(
    columns: Sequence[Sequence[Item]], links: Sequence[tuple[Item, Item]]
) -> dict[Item, tuple[list[Item], list[Item]]]:
    """Items before and after each item."""
    found: dict[Item, tuple[list[Item], list[Item]]] = {item: ([], []) for c in columns for item in c}
    for a, b in links:
        found[a][1].append(b)
        found[b][0].append(a)
    return found


def _order(columns: list[list[Item]], links: Sequence[tuple[Item, Item]]) -> None:
    """Order every column by the mean place of its neighbours, sweeping to and fro; the best order stays."""
    near = _neighbours(columns, links)
    best, fewest = [list(c) for c in columns], _crossings(columns, links)
    for sweep in range(SWEEPS):
        back = sweep % 2
        for column in reversed(columns) if back else columns:
            place = {item: i / max(len(c) - 1, 1) for c in columns for i, item in enumerate(c)}
            mean = {
                item: float(np.mean([place[n] for n in near[item][back]] or [place[item]])) for item in column
            }
            column.sort(key=mean.__getitem__)
        if (found := _crossings(columns, links)) < fewest:
            best, fewest = [list(c) for c in columns], found
    columns[:] = best


def _crossings(columns: Sequence[Sequence[Item]], links: Sequence[tuple[Item, Item]]) -> int:
    place = {item: (d, i) for d, c in enumerate(columns) for i, item in enumerate(c)}
    ends = np.array([(*place[a], place[b][1]) for a, b in links]).reshape(-1, 3)
    same = ends[:, None, 0] == ends[None, :, 0]
    left, right = (ends[:, None, k] - ends[None, :, k] for k in (1, 2))
    return int((same & (left * right < 0)).sum() // 2)


def _heights(
    columns: Sequence[Sequence[Item]], links: Sequence[tuple[Item, Item]], heights: dict[Item, float]
) -> dict[Item, float]:
    """Height of every item: near its neighbours, and far enough from the others of its column."""
    near = _neighbours(columns, links)
    y: dict[Item, float] = {}
    for column in columns:
        y |= dict(zip(column, _spread(np.zeros(len(column)), column, heights), strict=True))
    for sweep in range(SWEEPS):
        for column in columns if sweep % 2 else reversed(columns):
            wished = [float(np.mean([y[n] for side in near[item] for n in side] or [0.0])) for item in column]
            y |= dict(zip(column, _spread(np.array(wished), column, heights), strict=True))
    return y


def _spread(wished: NDArray[np.float64], column: Sequence[Item], heights: dict[Item, float]) -> list[float]:
    """Heights nearest to ``wished`` (least squares) that keep order and distance: isotonic regression."""
    size = np.array([heights.get(item, LANE) for item in column])
    needed = np.concatenate([[0.0], np.cumsum((size[:-1] + size[1:]) / 2)])
    blocks: list[tuple[float, int]] = []  # pooled adjacent violators: mean and length of each block
    for value in (wished - needed).tolist():
        mean, length = value, 1
        while blocks and blocks[-1][0] > mean:
            before, many = blocks.pop()
            mean, length = (before * many + mean * length) / (many + length), many + length
        blocks.append((mean, length))
    pooled = np.repeat([b[0] for b in blocks], [b[1] for b in blocks])
    return [float(v) for v in pooled + needed]
