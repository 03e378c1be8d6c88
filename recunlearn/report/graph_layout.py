"""Where the nodes and edges of a circuit lie on paper: data, drawn by :mod:`.circuit_graph`.

A layered drawing after Sugiyama, Tagawa and Toda (1981): one column per depth, edges over several columns
pass through lanes of their own, the order within columns by barycentres, the heights by least squares.
Units: one character of a label across, one line of text down.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from recunlearn.foundation.records import CircuitGraph

LONGEST = 20
"""Characters of a label's line."""
GAP = 7.0
"""Free space between two columns."""
NODE, LANE, MARGIN = 2.2, 1.2, 0.6
"""Height that a node with a label of one line and a passing edge take in a column, and the node's margin."""
PORT = 0.6
"""Distance of two edges that meet at a node."""
SWEEPS = 12
Item = tuple[int, int]
"""A node ``(node, -1)`` or the lane ``(pair, column)`` where a long edge passes a column, pairs numbered."""
Sides = tuple[list[Item], list[Item]]
"""Neighbours in the columns before and after."""


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
    chains = [_chain(graph, number, pair) for number, pair in enumerate(pairs)]
    columns: list[list[Item]] = [[] for _ in range(max(graph.depths) + 1)]
    for node, d in enumerate(graph.depths):
        columns[d].append((node, -1))
    for item in (item for chain in chains for item in chain[1:-1]):
        columns[item[1]].append(item)
    near = _neighbours(columns, chains)
    _order(columns, near)
    sizes = {item: LANE for column in columns for item in column}
    sizes |= {(node, -1): NODE + len(lines) - 1 for node, lines in enumerate(labels)}
    y = _heights(columns, near, sizes)
    widths = [2.0 + max(map(len, lines)) for lines in labels]
    spans = _spans(graph, widths)
    boxes = tuple(
        Box(sum(spans[d]) / 2, y[node, -1], widths[node], sizes[node, -1] - MARGIN, labels[node])
        for node, d in enumerate(graph.depths)
    )
    routes = {pair: _route(chain, boxes, spans, y, near) for pair, chain in zip(pairs, chains, strict=True)}
    return Layout(boxes, routes, spans[-1][1], max(y[item] + sizes[item] / 2 for item in y))


def _chain(graph: CircuitGraph, number: int, pair: tuple[int, int]) -> list[Item]:
    """Source, lanes in the columns between, sink."""
    u, v = pair
    lanes = [(number, d) for d in range(graph.depths[u] + 1, graph.depths[v])]
    return [(u, -1), *lanes, (v, -1)]


def _spans(graph: CircuitGraph, widths: Sequence[float]) -> list[tuple[float, float]]:
    """Left and right end of every column."""
    found, left = [], 0.0
    for d in range(max(graph.depths) + 1):
        width = max((w for w, depth in zip(widths, graph.depths, strict=True) if depth == d), default=0.0)
        found.append((left, left + width))
        left += width + GAP
    return found


def _route(
    chain: Sequence[Item],
    boxes: Sequence[Box],
    spans: Sequence[tuple[float, float]],
    y: Mapping[Item, float],
    near: Mapping[Item, Sides],
) -> NDArray[np.float64]:
    """Points of one edge; edges that meet at a node have a port each, in the order of their other ends."""
    (start, _), (end, _) = chain[0], chain[-1]
    source, sink = boxes[start], boxes[end]
    leaves = source.y + _port(near[chain[0]][1], chain[1], y, source.height)
    enters = sink.y + _port(near[chain[-1]][0], chain[-2], y, sink.height)
    first = next(right for left, right in spans if left <= source.x <= right)
    last = next(left for left, right in spans if left <= sink.x <= right)
    points = [(source.x + source.width / 2, leaves), (first, leaves)]
    points += [(x, y[lane]) for lane in chain[1:-1] for x in spans[lane[1]]]
    return np.array([*points, (last, enters), (sink.x - sink.width / 2, enters)])


def _port(others: Sequence[Item], other: Item, y: Mapping[Item, float], height: float) -> float:
    """How far from a node's centre the edge from or to ``other`` meets it."""
    place = sorted(others, key=y.__getitem__).index(other)
    return (place - (len(others) - 1) / 2) * min(PORT, 0.8 * height / len(others))


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


def _neighbours(columns: Sequence[Sequence[Item]], chains: Sequence[Sequence[Item]]) -> dict[Item, Sides]:
    """Items before and after each item."""
    found: dict[Item, Sides] = {item: ([], []) for column in columns for item in column}
    for a, b in (link for chain in chains for link in pairwise(chain)):
        found[a][1].append(b)
        found[b][0].append(a)
    return found


def _order(columns: list[list[Item]], near: Mapping[Item, Sides]) -> None:
    """Order every column by the mean place of its neighbours, sweeping to and fro; the best order stays."""
    best, fewest = [list(c) for c in columns], _crossings(columns, near)
    for sweep in range(SWEEPS):
        back = sweep % 2
        for column in reversed(columns) if back else columns:
            place = {item: i / max(len(c) - 1, 1) for c in columns for i, item in enumerate(c)}
            mean = {
                item: float(np.mean([place[n] for n in near[item][back]] or [place[item]])) for item in column
            }
            column.sort(key=mean.__getitem__)
        if (found := _crossings(columns, near)) < fewest:
            best, fewest = [list(c) for c in columns], found
    columns[:] = best


def _crossings(columns: Sequence[Sequence[Item]], near: Mapping[Item, Sides]) -> int:
    place = {item: i for column in columns for i, item in enumerate(column)}
    total = 0
    for column in columns:
        ends = np.array([(place[a], place[b]) for a in column for b in near[a][1]]).reshape(-1, 2)
        left, right = (ends[:, None, k] - ends[None, :, k] for k in (0, 1))
        total += int((left * right < 0).sum() // 2)
    return total


def _heights(
    columns: Sequence[Sequence[Item]], near: Mapping[Item, Sides], sizes: Mapping[Item, float]
) -> dict[Item, float]:
    """Centre of every item: near its neighbours, far enough from the others of its column, from 0 down."""
    y: dict[Item, float] = {}
    for column in columns:
        y |= dict(zip(column, _spread(np.zeros(len(column)), column, sizes), strict=True))
    for sweep in range(SWEEPS):
        for column in columns if sweep % 2 else reversed(columns):
            wished = [float(np.mean([y[n] for side in near[item] for n in side] or [0.0])) for item in column]
            y |= dict(zip(column, _spread(np.array(wished), column, sizes), strict=True))
    top = min(y[item] - sizes[item] / 2 for item in y)
    return {item: at - top for item, at in y.items()}


def _spread(wished: NDArray[np.float64], column: Sequence[Item], sizes: Mapping[Item, float]) -> list[float]:
    """Centres nearest to ``wished`` (least squares) that keep order and distance: isotonic regression."""
    size = np.array([sizes[item] for item in column])
    needed = np.concatenate([[0.0], np.cumsum((size[:-1] + size[1:]) / 2)])[: len(column)]
    blocks: list[tuple[float, int]] = []  # pooled adjacent violators: mean and length of each block
    for value in (wished - needed).tolist():
        mean, length = value, 1
        while blocks and blocks[-1][0] > mean:
            before, many = blocks.pop()
            mean, length = (before * many + mean * length) / (many + length), many + length
        blocks.append((mean, length))
    pooled = np.repeat([b[0] for b in blocks], [b[1] for b in blocks])
    return [float(v) for v in pooled + needed]
