"""Why a user has its CUD: the exact share of every edge, and the sentence that says so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from recunlearn.difficulty.cud import VANISHING, anchor_rows
from recunlearn.difficulty.similarity import Array, edge_scale, resolve, top_edges, unit
from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.records import Anchors, CircuitGraph, Circuits
from recunlearn.foundation.settings import SimilaritySettings

KINDS = {"source": "input", "module": "layer", "product": "interaction", "output": "output"}
"""What a person calls the kinds of :class:`~recunlearn.foundation.records.CircuitGraph`."""
NEAR = 0.02
"""Difference of the two similarities below which a circuit is about as close to either side."""


@dataclass(frozen=True)
class Explanation:
    """One user's circuit beside the anchors', and what every edge adds to CUD.

    Args:
        strength: mean signed strength of every edge: rows user, easy anchors, hard anchors, ``[3, E]``.
        compared: the same as CUD compares it (standardised unless raw), 0 for left-out edges, ``[3, E]``.
        contribution: ``[E]``, positive towards hard: ``cud = start + contribution.sum()``.
        start: CUD of a circuit that resembles both sides alike: 0.5; ``ties`` where that setting decides.
        s_easy, s_hard: similarity to either side, in [0, 1].
        side: "easy" or "hard" for an anchor, which is left out of its own side; else "".
        counts: easy and hard anchors that it was compared with.
        standardised: whether ``compared`` counts standard deviations from the mean over users.
    """

    strength: Array
    compared: Array
    contribution: Array
    start: float
    s_easy: float
    s_hard: float
    side: Literal["", "easy", "hard"]
    counts: tuple[int, int]
    standardised: bool

    @property
    def cud(self) -> float:
        """The score that the contributions add up to."""
        return float(self.start + self.contribution.sum())

    def strongest(self, count: int) -> NDArray[np.intp]:
        """Columns of the largest contributions, by size."""
        return np.argsort(-np.abs(self.contribution), kind="stable")[:count]


def explain(
    circuits: Circuits, anchors: Anchors, entity: str, settings: SimilaritySettings | None = None
) -> Explanation:
    """Split CUD exactly into what every edge adds to it.

        CUD = 1/2 + (s_H − s_E) / (2 (2 − s_E − s_H))

    and both similarities are sums over edges (:func:`edge_shares`), so with both norms and both distances
    given the split has no remainder, for every measure.

    Raises:
        RecunlearnError: the entity has no circuit, or nothing to be compared with on a side.
    """
    chosen = resolve(settings or SimilaritySettings())
    row = _row(circuits, entity)
    scale = edge_scale(circuits.values, chosen.edges)
    rows = anchor_rows(anchors, circuits)
    side: Literal["", "easy", "hard"] = (
        "easy" if row in rows["easy"] else "hard" if row in rows["hard"] else ""
    )
    others = {name: found[found != row] for name, found in rows.items()}
    for name, found in others.items():
        if not len(found):
            raise RecunlearnError(
                f"User '{entity}' is the only {name} anchor, so there is nothing to compare it with and no "
                "score. Raise count of [anchors]."
            )
    prepared = scale.apply(circuits.values[[row]])
    sides = {name: scale.apply(circuits.values[found]) for name, found in others.items()}
    shares = {name: edge_shares(prepared[0], values, chosen) for name, values in sides.items()}
    base = 0.5 if chosen.measure == "cosine" and chosen.cosine_range == "mapped" else 0.0
    s_easy, s_hard = (base + float(shares[name].sum()) for name in ("easy", "hard"))
    apart = (1 - s_easy) + (1 - s_hard)
    undecided = apart <= VANISHING or not prepared.any()
    compared, contribution = np.zeros((3, len(circuits.edges))), np.zeros(len(circuits.edges))
    compared[:, scale.kept] = [prepared[0], sides["easy"].mean(0), sides["hard"].mean(0)]
    if not undecided:
        contribution[scale.kept] = (shares["hard"] - shares["easy"]) / (2 * apart)
    values = circuits.values.astype(np.float64)
    strength = np.stack([values[row], values[others["easy"]].mean(0), values[others["hard"]].mean(0)])
    start = chosen.ties if undecided else 0.5
    standardised = chosen.edges == "standardised"
    counts = len(others["easy"]), len(others["hard"])
    return Explanation(strength, compared, contribution, start, s_easy, s_hard, side, counts, standardised)


def _row(circuits: Circuits, entity: str) -> int:
    found = np.flatnonzero(circuits.entities == entity)
    if not len(found) or not np.isfinite(circuits.values[found[0]]).all():
        raise RecunlearnError(
            f"User '{entity}' has no circuit: it has no traced interaction. Name a user with training "
            "interactions."
        )
    return int(found[0])


def edge_shares(circuit: Array, anchors: Array, settings: SimilaritySettings) -> Array:
    """What every edge adds to the mean similarity to the anchors: ``[E], [k, E] -> [E]``.

    The sum is the similarity (mapped cosine: minus 1/2). Cosine: product of the normalised strengths (half
    of it where mapped; 0 for anchors whose cosine is clamped); Jaccard: 1 / |A ∪ B| for a common edge;
    Hamming: 1 / E for an edge that both or neither have.
    """
    if settings.reference == "mean":
        anchors = anchors.mean(0, keepdims=True)
    if settings.measure == "cosine":
        products = unit(circuit[None]) * unit(anchors)
        if settings.cosine_range == "mapped":
            return np.asarray(products.mean(0) / 2)
        return np.asarray((products * (products.sum(1, keepdims=True) > 0)).mean(0))
    left, right = (top_edges(v, settings.top_fraction, settings.ranking) for v in (circuit[None], anchors))
    if settings.measure == "hamming":
        return np.asarray((left == right).mean(0) / len(circuit))
    union = (left | right).sum(1, keepdims=True)
    return np.asarray(((left & right) / np.maximum(union, 1)).mean(0))


def by_pair(graph: CircuitGraph, values: Array) -> dict[tuple[int, int], float]:
    """Sum over the groups of nodes: ``[E]`` -> (source, sink) -> value, in the order of the columns."""
    found: dict[tuple[int, int], float] = {}
    for pair, value in zip(zip(graph.source, graph.sink, strict=True), values.tolist(), strict=True):
        found[pair] = found.get(pair, 0.0) + value
    return found


def by_layer(graph: CircuitGraph, values: Array) -> dict[str, float]:
    """Sum over kinds of nodes: ``[E]`` -> "input -> interaction" -> value, earliest sources first."""
    found: dict[str, float] = {}
    pairs = by_pair(graph, values)
    for u, v in sorted(pairs, key=lambda pair: (graph.depths[pair[0]], graph.depths[pair[1]])):
        name = f"{KINDS[graph.kinds[u]]} -> {KINDS[graph.kinds[v]]}"
        found[name] = found.get(name, 0.0) + pairs[u, v]
    return found


def sentence(user: str, told: Explanation, graph: CircuitGraph, standing: Mapping[str, float | str]) -> str:
    """Say in plain words why a user has its score.

    Args:
        user: how the sentence calls the user, such as ``User 405``.
        standing: ``band``, ``below`` and ``above``: shares of the other users with a lower and a higher CUD.
    """
    who = f"{user}, itself an anchor on the {told.side} side," if told.side else user
    return f"{who} {_verdict(told.cud, standing)}: {_reason(told, graph)}."


def _verdict(cud: float, standing: Mapping[str, float | str]) -> str:
    level = {"easy": "is easy to unlearn", "hard": "is hard to unlearn"}
    easier = standing["band"] == "easy"
    share = float(standing["above" if easier else "below"])
    # Rounded down, so that "harder than 100 %" means everybody.
    rank = f"{'easier' if easier else 'harder'} than {int(100 * share + 1e-9)} % of the other users"
    return f"{level.get(str(standing['band']), 'is of medium difficulty')} (CUD {cud:.2f}, {rank})"


def _reason(told: Explanation, graph: CircuitGraph) -> str:
    if not told.compared[0].any():
        average = "the average user's in" if told.standardised else "zero on"
        return f"its circuit is {average} every edge, so it resembles neither the easy nor the hard anchors"
    if not told.contribution.any():
        return "its circuit resembles the easy and the hard anchors alike on every edge"
    towards_hard = told.s_hard > told.s_easy
    near, far = ("hard", "easy") if towards_hard else ("easy", "hard")
    figures = {"easy": told.s_easy, "hard": told.s_hard}
    alike = abs(told.s_hard - told.s_easy) < NEAR
    closeness = "is about as close to" if alike else "is closer to"
    than = "as to" if alike else "than to"
    pull = told.contribution if towards_hard else -told.contribution
    pairs = by_pair(graph, pull)
    u, v = max(pairs, key=lambda pair: pairs[pair])
    few = fewest(pull, 0.5)
    some = "1 edge carries" if few == 1 else f"{few} edges carry"
    return (
        f"its circuit {closeness} the {near} anchors (similarity {figures[near]:.2f}) {than} the {far} ones "
        f"({figures[far]:.2f}), most of all from {graph.nodes[u]} to {graph.nodes[v]}, and {some} half of "
        f"the pull towards {near}, of {len(pull)}"
    )


def fewest(pull: Array, share: float) -> int:
    """Smallest number of edges that make up ``share`` of all positive ``pull``.

    >>> fewest(np.array([5.0, 3.0, 2.0, -4.0]), 0.5)
    1
    """
    positive = np.sort(pull[pull > 0])[::-1].cumsum()
    return int(np.searchsorted(positive, share * positive[-1] * (1 - 1e-12)) + 1) if len(positive) else 0
