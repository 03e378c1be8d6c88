"""Seeds that do not depend on order: every entity or pair gets its own stream."""

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(values: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """SplitMix64 of every value under ``seed``: [n] uint64 -> [n] uint64, a bijection for each seed.

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    with np.errstate(over="ignore"):
        z = values.astype(np.uint64) + _GOLDEN * np.uint64(2 * seed + 1)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(values: NDArray[np.uint64], seed: int) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) that depend on ``values`` and ``seed`` alone: [n] -> [n]."""
    return (mix(values, seed) >> np.uint64(11)).astype(np.float64) / float(1 << 53)
