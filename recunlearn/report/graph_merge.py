"""Graphs of deep transformers made readable: successive layers stand together as one node."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recunlearn.foundation.records import CircuitGraph

READABLE = 60
"""Edges between whole nodes up to which a graph is drawn as it is."""
GROUPS = 8
"""Most groups of layers: with input and output they are joined by 45 edges."""
LAYER = re.compile(r"(?:attention|mlp)\.(\d+)(?:\.|$)")


def merged(graph: CircuitGraph) -> tuple[CircuitGraph, NDArray[np.intp]]:
    """Graph to draw, and the columns that it still has.

    A graph with few edges, or with nodes that belong to no numbered layer (inputs and output aside), stays as
    it is. In others attention and MLP of successive layers become one node; edges inside are left out, for
    attention and MLP reach each other in both directions there.
    """
    every = np.arange(len(graph.source))
    pairs = set(zip(graph.source, graph.sink, strict=True))
    layers = [_layer(name) for name in graph.nodes]
    inner = [k for k, kind in enumerate(graph.kinds) if kind not in ("source", "output")]
    if len(pairs) <= READABLE or any(layers[k] is None for k in inner):
        return graph, every
    groups = _groups(sorted({n for n in layers if n is not None}))
    names = [n if layer is None else groups[layer] for n, layer in zip(graph.nodes, layers, strict=True)]
    nodes = list(dict.fromkeys(names))
    number = [nodes.index(name) for name in names]
    first = [names.index(name) for name in nodes]
    source, sink = (np.array([number[k] for k in end]) for end in (graph.source, graph.sink))
    kept = np.flatnonzero(source != sink)
    ends = [tuple(end[kept].tolist()) for end in (source, sink)]
    groups_of = [tuple(g[k] for k in kept) for g in (graph.source_group, graph.sink_group)]
    kinds = tuple(graph.kinds[k] for k in first)
    return CircuitGraph(
        tuple(nodes), kinds, (False,) * len(nodes), _depths(len(nodes), *ends), *ends, *groups_of
    ), kept


def _layer(name: str) -> int | None:
    found = LAYER.match(name)
    return None if found is None else int(found[1])


def _groups(layers: Sequence[int]) -> dict[int, str]:
    """Layer -> name of its group; groups are successive and of nearly equal size.

    >>> _groups(range(10))[0], _groups(range(10))[9]
    ('layers 0-1', 'layer 9')
    """
    found: dict[int, str] = {}
    for part in np.array_split(np.array(layers), min(GROUPS, len(layers))):
        low, high = int(part[0]), int(part[-1])
        found |= dict.fromkeys(part.tolist(), f"layer {low}" if low == high else f"layers {low}-{high}")
    return found


def _depths(count: int, source: Sequence[int], sink: Sequence[int]) -> tuple[int, ...]:
    """Longest path from a source, in edges; nodes are in order of execution."""
    depths = [0] * count
    for u, v in sorted(set(zip(source, sink, strict=True))):
        depths[v] = max(depths[v], depths[u] + 1)
    return tuple(depths)
