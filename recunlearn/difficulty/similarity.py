"""How alike two circuits are: cosine, Jaccard or Hamming, on raw or standardised edges."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.settings import SimilaritySettings

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
CHUNK = 8192
FLOOR = 1e-3
"""Share of the largest deviation that is added to every one, so that nearly constant edges stay small."""
SHRINKAGE = 0.9
"""Of the covariance of edges towards a multiple of the identity, before edges are decorrelated with it."""
SMALLEST = 1e-12
"""Share of the largest eigenvalue below which one is rounding error."""
PAPER = SimilaritySettings(
    preset="paper", reference="mean", edges="raw", cosine_range="clamped", ranking="absolute"
)
"""Settings of arXiv 2601.09624: clamped cosine of raw edges to the mean anchor circuit."""


def resolve(settings: SimilaritySettings) -> SimilaritySettings:
    """Expand the preset: ``paper`` overrides reference, edges, cosine_range and ranking, not the measure."""
    if settings.preset != "paper":
        return settings
    return PAPER.model_copy(
        update={"measure": settings.measure, "top_fraction": settings.top_fraction, "ties": settings.ties}
    )


@dataclass(frozen=True)
class Whitening:
    """(s v I + (1 − s) Σ)^(−½) · √(s v): plays down directions in which the reference users differ most.

    Σ is the covariance of standardised edges, v the mean of its diagonal, s = :data:`SHRINKAGE`: 1 − s of the
    way from Euclid's metric to Mahalanobis'. Symmetric, so that every column still belongs to its edge.
    docs/decisions/0011-similarity.md says why.

    Args:
        vectors: ``[E, r]`` eigenvectors of Σ with eigenvalues above 0.
        factors: ``[r]`` (1 + (1 − s) eigenvalue / (s v))^(−½) − 1.
    """

    vectors: Array
    factors: Array

    @staticmethod
    def of(values: Array, shrinkage: float = SHRINKAGE) -> "Whitening":
        """From standardised edges of reference users, ``[n, E]``; ``shrinkage``: s, above 0."""
        centred = values - values.mean(0)
        # The smaller of the two products of the matrix with itself has the same eigenvalues.
        small = centred.T @ centred if centred.shape[1] <= len(centred) else centred @ centred.T
        eigenvalues, vectors = np.linalg.eigh(small / len(centred))
        kept = eigenvalues > SMALLEST * max(float(eigenvalues[-1]), 0.0)
        eigenvalues, vectors = eigenvalues[kept], vectors[:, kept]
        if centred.shape[1] > len(centred):
            vectors = centred.T @ vectors / np.sqrt(eigenvalues * len(centred))
        mean = float(eigenvalues.sum()) / centred.shape[1]
        return Whitening(vectors, (1 + (1 / shrinkage - 1) * eigenvalues / mean) ** -0.5 - 1)

    def apply(self, values: Array) -> Array:
        """``[n, E] -> [n, E]``; rows with NaN stay NaN."""
        found: Array = values + (values @ self.vectors * self.factors) @ self.vectors.T
        return found


@dataclass(frozen=True)
class EdgeScale:
    """Centre and spread of every edge over reference users, and which edges are kept.

    Args:
        centre, spread: ``[E]`` mean and (std + 1e-3 · max std); 0 and 1 for raw edges.
        kept: ``[E]`` bool: standardised edges that are not constant, raw edges that are not all zero.
        whitening: of standardised edges, where asked for.
    """

    centre: Array
    spread: Array
    kept: Mask
    whitening: Whitening | None = None

    def apply(self, values: NDArray[np.floating[Any]]) -> Array:
        """``[n, E] -> [n, kept edges]`` float64; rows of untraced entities stay NaN."""
        kept = self.kept
        scaled: Array = (values[:, kept].astype(np.float64) - self.centre[kept]) / self.spread[kept]
        return scaled if self.whitening is None else self.whitening.apply(scaled)


def edge_scale(reference: NDArray[np.floating[Any]], edges: str = "standardised") -> EdgeScale:
    """Scale of edges over ``reference`` ``[n, E]``; rows with NaN or infinity are left out.

    Args:
        reference: circuits.
        edges: "raw", "standardised" or "whitened" (standardised, then :class:`Whitening`).

    Raises:
        RecunlearnError: no traced row, or no edge that differs between users.
    """
    lowest, highest, mean, spread, count = _moments(reference)
    if not count:
        raise RecunlearnError(
            "There is no circuit to compare with. Trace those of two or more that have training samples."
        )
    kept = highest > lowest
    if edges == "raw":
        kept = (highest != 0) | (lowest != 0)
        mean, spread = np.zeros_like(mean), np.ones_like(spread)
    else:
        spread = np.where(kept, spread + FLOOR * float(spread.max(initial=0.0)), 1.0)
    if not kept.any():
        raise RecunlearnError(
            f"All {len(kept)} edges are the same in all {count} circuits, which cannot be compared. Trace "
            "more, or set edges to 'raw' in [similarity]."
        )
    scale = EdgeScale(mean, spread, kept)
    if edges != "whitened":
        return scale
    return replace(
        scale, whitening=Whitening.of(np.concatenate([scale.apply(p) for p in _traced(reference)]))
    )


def _moments(values: NDArray[np.floating[Any]]) -> tuple[Array, Array, Array, Array, int]:
    """Minimum, maximum, mean and deviation of every edge, and the number of rows without NaN or infinity."""
    n_edges = values.shape[1]
    lowest, highest = np.full(n_edges, np.inf), np.full(n_edges, -np.inf)
    total, squares, count = np.zeros(n_edges), np.zeros(n_edges), 0
    for part in _traced(values):
        lowest, highest = np.minimum(lowest, part.min(0)), np.maximum(highest, part.max(0))
        total, count = total + part.sum(0), count + len(part)
    mean = total / max(count, 1)
    for part in _traced(values):
        squares += ((part - mean) ** 2).sum(0)
    return lowest, highest, mean, np.sqrt(squares / max(count, 1)), count


def _traced(values: NDArray[np.floating[Any]]) -> Iterator[Array]:
    for first in range(0, len(values), CHUNK):
        part = values[first : first + CHUNK].astype(np.float64)
        part = part[np.isfinite(part).all(1)]
        if len(part):
            yield part


def top_edges(values: Array, fraction: float, ranking: str) -> Mask:
    """``[n, E]`` bool: each row's strongest ``fraction`` of edges (at least one; zeros never belong).

    ``absolute`` ranks by size, ``signed`` from the most positive down. Ties go to the earlier edge.
    """
    count = max(1, round(fraction * values.shape[1]))
    strength = np.abs(values) if ranking == "absolute" else values
    order = np.argsort(-strength, axis=1, kind="stable")[:, :count]
    members = np.zeros(values.shape, dtype=bool)
    np.put_along_axis(members, order, True, axis=1)
    present: Mask = values != 0
    return members & present


def similarity(circuits: Array, anchors: Array, settings: SimilaritySettings) -> Array:
    """Similarity of every circuit to every anchor circuit, in [0, 1]: ``[n, E] x [k, E] -> [n, k]``.

    cosine: (1 + cos) / 2 (mapped) or max(0, cos) (clamped), cos of a zero circuit is 0;
    Jaccard: |A ∩ B| / |A ∪ B|, 0 where both are empty; Hamming: 1 − |A Δ B| / E.
    """
    if settings.measure == "cosine":
        cosine = np.clip(unit(circuits) @ unit(anchors).T, -1.0, 1.0)
        mapped: Array = (1 + cosine) / 2 if settings.cosine_range == "mapped" else np.maximum(cosine, 0.0)
        return mapped
    left, right = (
        top_edges(v, settings.top_fraction, settings.ranking).astype(np.float64) for v in (circuits, anchors)
    )
    common = left @ right.T
    union: Array = left.sum(1)[:, None] + right.sum(1)[None, :] - common
    if settings.measure == "jaccard":
        shared: Array = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
        return shared
    agreeing: Array = 1 - (union - common) / circuits.shape[1]
    return agreeing


def unit(values: Array) -> Array:
    """Rows divided by their length; rows of zeros stay: ``[n, E] -> [n, E]``."""
    # Dividing by the largest entry first keeps the squares of tiny and huge circuits in range.
    size = np.abs(values).max(1, keepdims=True, initial=0.0)
    scaled: Array = np.divide(values, size, out=np.zeros_like(values), where=size > 0)
    norm = np.linalg.norm(scaled, axis=1, keepdims=True)
    np.divide(scaled, norm, out=scaled, where=norm > 0)
    return scaled
