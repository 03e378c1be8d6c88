"""Signatures: what the shape of a user's circuit is, each as one number that does not depend on its scale.

With e the signed edges of one user, |e| their mass, d a node's depth (longest path from a source) and D the
depth of the output. Source of the signatures and of the claims about them: arXiv 2601.09624 (easy circuits:
short, early, compact, shared; hard circuits: deep, late, with direct edges to the output, through attention,
diffuse); the paper gives no formulas, those below are this project's.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.records import CircuitGraph, Circuits

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Signature:
    """What a signature is called, and what the paper claims: ``hard`` +1 higher or −1 lower in hard users."""

    key: str
    title: str
    hard: int


SIGNATURES = (
    Signature("path_length", "path length", +1),
    Signature("late_share", "late edges", +1),
    Signature("direct_share", "direct edges", +1),
    Signature("attention_share", "attention edges", +1),
    Signature("gini", "concentration", -1),
    Signature("overlap_jaccard", "overlap, Jaccard", -1),
    Signature("overlap_cosine", "overlap, cosine", -1),
)
"""In the order of the tables; the overlaps depend on a group, the others on the user alone."""


def shapes(circuits: Circuits) -> dict[str, Array]:
    """Signatures of every user by key: ``[n]`` each.

    NaN for untraced users, circuits of zeros, and where the whole that a share is taken of is empty.
    ``attention_share`` is left out where no node belongs to an attention.

    Raises:
        RecunlearnError: the circuits hold no graph.
    """
    graph = graph_of(circuits)
    mass = np.abs(circuits.values.astype(np.float64))
    mass[~(np.isfinite(mass).all(1) & (mass > 0).any(1))] = np.nan
    found = {
        "path_length": path_length(mass, graph),
        "late_share": late_share(mass, graph),
        "direct_share": direct_share(mass, graph),
        "gini": gini(mass),
    }
    if any(graph.attention):
        found["attention_share"] = attention_share(mass, graph)
    return found


def graph_of(circuits: Circuits) -> CircuitGraph:
    """Graph of the circuits.

    Raises:
        RecunlearnError: they hold none.
    """
    if circuits.graph is None:
        raise RecunlearnError(
            f"The circuits of {len(circuits.entities)} users hold no graph, so nobody knows which way their "
            f"{len(circuits.edges)} edges lead. Trace them again."
        )
    return circuits.graph


def path_length(mass: Array, graph: CircuitGraph) -> Array:
    """Mean number of edges from a source to the output, over D: ``[n, E] -> [n]``, in (0, 1].

    A walk starts at the sources in proportion to their outgoing mass and goes on from node u to v with
    probability (mass of u -> v) / (mass that leaves u); to each sink alike where no mass leaves u. Every
    visit to a node is one step, so the mean length is the sum of visits, Σ_u P(u), by one pass in order.
    """
    source, sink = np.array(graph.source), np.array(graph.sink)
    visits = np.zeros((len(mass), len(graph.nodes)))
    starts = [u for u, kind in enumerate(graph.kinds) if kind == "source"]
    for u in starts:
        visits[:, u] = mass[:, source == u].sum(1)
    begun = visits.sum(1, keepdims=True)
    visits = np.divide(visits, begun, out=np.full_like(visits, np.nan), where=begun > 0)
    for u in range(len(graph.nodes) - 1):
        out = source == u
        leaving, sinks = mass[:, out].sum(1), np.unique(sink[out])
        for v in sinks:
            onward = mass[:, out & (sink == v)].sum(1)
            alike = np.full(len(mass), 1 / len(sinks))
            visits[:, v] += visits[:, u] * np.divide(onward, leaving, out=alike, where=leaving > 0)
    length: Array = visits[:, :-1].sum(1) / max(graph.depths[-1], 1)
    return length


def late_share(mass: Array, graph: CircuitGraph) -> Array:
    """Share of the mass on edges whose source has a depth d ≥ D / 2: ``[n, E] -> [n]``."""
    depths = np.array(graph.depths)
    return _share(mass, 2 * depths[list(graph.source)] >= depths[-1])


def direct_share(mass: Array, graph: CircuitGraph) -> Array:
    """Share of the mass into the output on edges that pass over a level, d(sink) − d(source) > 1: ``[n]``.

    Where a single node feeds the output (a last layer of one unit), edges into that node are taken instead,
    and so on until several nodes meet: every path leads through it, so it is the output by another name.
    """
    source, sink, depths = (np.array(part) for part in (graph.source, graph.sink, graph.depths))
    into = sink == len(graph.nodes) - 1
    while len(feeding := np.unique(source[into])) == 1 and (sink == feeding[0]).any():
        into = sink == feeding[0]
    return _share(mass[:, into], depths[sink[into]] - depths[source[into]] > 1)


def attention_share(mass: Array, graph: CircuitGraph) -> Array:
    """Share of the mass on edges that enter or leave an attention's nodes: ``[n, E] -> [n]``."""
    flags = np.array(graph.attention)
    return _share(mass, flags[list(graph.source)] | flags[list(graph.sink)])


def gini(mass: Array) -> Array:
    """Gini coefficient of the mass over the E edges: ``[n, E] -> [n]``; 0 all alike, 1 − 1/E one edge alone.

    G = 2 Σ_i i |e|_(i) / (E Σ |e|) − (E + 1) / E with |e|_(1) ≤ ... ≤ |e|_(E).

    >>> gini(np.array([[1.0, 1, 1, 1], [0.0, 0, 0, 5]])).tolist()
    [0.0, 0.75]
    """
    count = mass.shape[1]
    ranks = np.arange(1, count + 1)
    with np.errstate(invalid="ignore"):
        ordered = (np.sort(mass, 1) @ ranks) / mass.sum(1)
    value: Array = 2 * ordered / count - (count + 1) / count
    return value


def _share(mass: Array, part: NDArray[np.bool_]) -> Array:
    whole = mass.sum(1)
    share: Array = np.divide(mass[:, part].sum(1), whole, out=np.full(len(mass), np.nan), where=whole > 0)
    return share
