"""Why a user has its CUD: the exact share of every edge, and the sentence that says so."""

from collections.abc import Mapping, Sequence
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
        compared: the same as CUD compares it (whitened by default), 0 for left-out edges, ``[3, E]``.
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
    standardised = chosen.edges != "raw"
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


def sentence(
    user: str,
    told: Explanation,
    graph: CircuitGraph,
    standing: Mapping[str, float | str],
    words: tuple[str, str] = ("user", "users"),
) -> str:
    """Say in plain words why a user has its score.

    Args:
        user: how the sentence calls the user, such as ``User 405``.
        standing: ``band``, ``below`` and ``above``: shares of the other users with a lower and a higher CUD.
        words: what one user and several of them are called.
    """
    who = f"{user}, itself an anchor on the {told.side} side," if told.side else user
    return f"{who} {_verdict(told, standing, words)}: {_reason(told, graph, standing, words)}."


def _verdict(told: Explanation, standing: Mapping[str, float | str], words: tuple[str, str]) -> str:
    level = {"easy": "is easy to unlearn", "hard": "is hard to unlearn"}
    easier = standing["band"] == "easy"
    share = float(standing["above" if easier else "below"])
    # Rounded down: never more users than there are.
    many = f"every other {words[0]}" if share == 1 else f"{int(100 * share + 1e-9)} % of the other {words[1]}"
    rank = f"{'easier' if easier else 'harder'} than {many}"
    verdict = level.get(str(standing["band"]), "is of medium difficulty")
    return f"{verdict} (CUD {told.cud:.{_digits(told)}f}, {rank})"


def _digits(told: Explanation) -> int:
    """Of a score and of similarities: two say nothing of a circuit between both sides."""
    return 3 if abs(told.s_hard - told.s_easy) < NEAR else 2


def _reason(
    told: Explanation, graph: CircuitGraph, standing: Mapping[str, float | str], words: tuple[str, str]
) -> str:
    if not told.compared[0].any():
        average = f"the average {words[0]}'s on" if told.standardised else "zero on"
        return f"its circuit is {average} every edge, so it resembles neither the easy nor the hard anchors"
    if not told.contribution.any():
        return "no edge draws its circuit nearer to one side's anchors than to the other's"
    towards_hard = told.s_hard > told.s_easy
    near, far = ("hard", "easy") if towards_hard else ("easy", "hard")
    likeness = {"easy": told.s_easy, "hard": told.s_hard}
    pull = told.contribution if towards_hard else -told.contribution
    few = f"{fewest(pull, 0.5)} of its {len(pull)} edges carry half of the pull towards {near}"
    if abs(told.s_hard - told.s_easy) < NEAR:
        both = (_names(graph, _largest(graph, side)) for side in (told.contribution, -told.contribution))
        drawn = "it is drawn to the hard ones most of all in {}, to the easy ones in {}".format(*both)
        return (
            f"its circuit is about as close to the hard anchors (similarity {told.s_hard:.3f}) as to the "
            f"easy ones ({told.s_easy:.3f}); {drawn}"
        )
    against = ", but less so than that of most " + words[1] if standing["band"] == far else ""
    return (
        f"its circuit is closer to the {near} anchors (similarity {likeness[near]:.2f}) than to the {far} "
        f"ones ({likeness[far]:.2f}){against}, most of all in "
        f"{_deciding(told, graph, _largest(graph, pull), near, far)}; {few}"
    )


def _largest(graph: CircuitGraph, pull: Array) -> tuple[int, int]:
    pairs = by_pair(graph, pull)
    return max(pairs, key=pairs.__getitem__)


def _names(graph: CircuitGraph, pair: tuple[int, int]) -> str:
    return f"{graph.nodes[pair[0]]} -> {graph.nodes[pair[1]]}"


def _deciding(told: Explanation, graph: CircuitGraph, pair: tuple[int, int], near: str, far: str) -> str:
    """Name the pair, and its strengths where user and near anchors differ alike from the far ones."""
    user, easy, hard = (by_pair(graph, row)[pair] for row in told.strength)
    own, like, unlike = figures([user, *((hard, easy) if near == "hard" else (easy, hard))])
    sizes = [abs(float(v)) for v in (own, like, unlike)]
    weaker = sizes[0] < sizes[2]
    apart = sizes[2] not in sizes[:2] and weaker == (sizes[1] < sizes[2])
    if not apart or min(user, easy, hard) < 0 < max(user, easy, hard):
        return _names(graph, pair)
    return (
        f"{_names(graph, pair)}, {'weaker' if weaker else 'stronger'} here ({own}) and in the {near} anchors "
        f"({like}) than in the {far} ones ({unlike})"
    )


def figures(values: Sequence[float]) -> list[str]:
    """Write values with as many decimals as give the largest two digits.

    >>> figures([2.0, 1.24, -0.031])
    ['2.0', '1.2', '-0.0']
    """
    largest = max(map(abs, values), default=0.0)
    decimals = max(0, 1 - int(np.floor(np.log10(largest)))) if largest > 0 else 1
    return [f"{v:.{decimals}f}" for v in values]


def fewest(pull: Array, share: float) -> int:
    """Smallest number of edges that make up ``share`` of all positive ``pull``.

    >>> fewest(np.array([5.0, 3.0, 2.0, -4.0]), 0.5)
    1
    """
    positive = np.sort(pull[pull > 0])[::-1].cumsum()
    return int(np.searchsorted(positive, share * positive[-1] * (1 - 1e-12)) + 1) if len(positive) else 0
