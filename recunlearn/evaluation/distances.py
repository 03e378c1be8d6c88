"""Distances between two models' scores of the same user, from softmax distributions or top-k lists."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
K = 10


def jensen_shannon(a: Floats, b: Floats) -> Array:
    """Jensen-Shannon divergence of two rows of log-probabilities, in nats: ``[U, I], [U, I] -> [U]``.

    ½ KL(p ‖ m) + ½ KL(q ‖ m), m = (p + q) / 2: 0 to ln 2. Source: Lin, 1991, "Divergence measures based on
    the Shannon entropy".
    """
    p, q = np.exp(a), np.exp(b)
    with np.errstate(invalid="ignore"):  # scores that are no numbers stay so
        middle = np.logaddexp(a, b) - np.log(2)
    return np.maximum(0.5 * (_weighted(p, a, middle) + _weighted(q, b, middle)), 0.0)


def half_jeffreys(a: Floats, b: Floats) -> Array:
    """½ KL(p ‖ q) + ½ KL(q ‖ p) of log-probabilities, in nats: ``[U, I], [U, I] -> [U]``; unbounded.

    What E2URec's code calls JSD (arXiv 2403.03536). Infinite where one side rules out what the other allows.
    """
    p, q = np.exp(a), np.exp(b)
    return 0.5 * (_weighted(p, a, b) + _weighted(q, b, a))


def l2(a: Floats, b: Floats) -> Array:
    """Euclidean distance of the probabilities: ``[U, I], [U, I] -> [U]``, 0 to √2."""
    return np.asarray(np.linalg.norm(np.exp(a) - np.exp(b), axis=1), dtype=np.float64)


def top_k_distance(a: Floats, b: Floats, k: int = K) -> Array:
    """1 − |top k of a ∩ top k of b| / k: ``[U, I], [U, I] -> [U]``; ties: the smaller item number first."""
    k = min(k, a.shape[1])
    first, second = (np.argsort(-x, axis=1, kind="stable")[:, :k] for x in (a, b))
    both = (first[:, :, None] == second[:, None, :]).any(2).sum(1)
    return np.asarray(1 - both / k, dtype=np.float64)


DISTANCES: dict[str, Callable[[Floats, Floats], Array]] = {
    "jsd": jensen_shannon,
    "half_jeffreys": half_jeffreys,
    "l2": l2,
    "top10": top_k_distance,
}


def log_probabilities(scores: Floats) -> Array:
    """Log-softmax over items: ``[U, I] -> [U, I]`` float64; minus infinity stays (an item left out)."""
    return np.asarray(log_softmax(np.asarray(scores, dtype=np.float64), axis=1))


def _weighted(weight: Array, a: Floats, b: Floats) -> Array:
    """Σ weight · (a − b), items of weight 0 left out."""
    apart = np.zeros_like(weight)
    np.subtract(a, b, out=apart, where=weight > 0)
    total: Array = (weight * apart).sum(1)
    return total
