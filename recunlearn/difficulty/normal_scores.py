"""Normal scores: values replaced by the normal quantiles of their ranks, and back."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import rankdata

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NormalScores:
    """A monotone map between values and normal quantiles, for each column of a table.

    Args:
        z: ``[n, T]`` normal scores of the fitted values.
        values: ``[n, T]`` those values, each column ascending.
    """

    z: Array
    values: Array

    def outcomes(self, z: NDArray[np.floating[Any]]) -> Array:
        """Map normal scores ``[m, T]`` back: linear between fitted values, never beyond the last ones."""
        places = _quantiles(np.arange(1, len(self.values) + 1))
        columns = [np.interp(column, places, known) for column, known in zip(z.T, self.values.T, strict=True)]
        return np.stack(columns, axis=1)


def normal_scores(values: Array) -> NormalScores:
    """z = Φ⁻¹((rank − ½) / n) in every column of ``[n, T]``, ties averaged (Hazen's plotting position)."""
    z = _quantiles(np.asarray(rankdata(values, axis=0)))
    return NormalScores(z, np.sort(values, axis=0))


def _quantiles(ranks: NDArray[Any]) -> Array:
    quantiles: Array = ndtri((ranks - 0.5) / len(ranks))
    return quantiles
