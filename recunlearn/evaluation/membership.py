"""User-level membership inference: could somebody tell that a user's data were in the training set?"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recunlearn.foundation.seeds import uniform

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
FPR = 0.01
DRAWS = 1000
LEAST_REFERENCES = 8


@dataclass(frozen=True)
class References:
    """Losses of every user under models trained on random halves of the users.

    Args:
        loss: ``[k, n]``; of an absent user under the population's vector.
        inside: ``[k, n]`` whether the user was in the training data.
    """

    loss: Floats
    inside: Mask


@dataclass(frozen=True)
class Attack:
    """What an attack reaches; ``low`` and ``high`` are 95 % over resampled users."""

    auc: float
    auc_low: float
    auc_high: float
    tpr: float
    tpr_low: float
    tpr_high: float


def halves(n: int, k: int, seed: int) -> Mask:
    """Which users each of ``k`` reference models is trained on: ``[k, n]``; every user is in k/2 of them."""
    lot = uniform(np.arange(k * n, dtype=np.uint64), seed).reshape(k, n)
    inside: Mask = lot.argsort(0).argsort(0) < k // 2
    return inside


def signal(loss: Floats) -> Array:
    """log(p / (1 − p)) with p = exp(−loss): near normal where the loss is skewed: ``[...] -> [...]``.

    Source: Carlini et al., 2022, "Membership inference attacks from first principles", for the geometric
    mean probability of a user's interactions.
    """
    value = np.clip(np.asarray(loss, dtype=np.float64), 1e-12, 700.0)
    scaled: Array = -np.log(np.expm1(value))
    return scaled


def likelihood_ratio(loss: Floats, references: References, users: NDArray[np.integer[Any]]) -> Array:
    """log N(φ; in) − log N(φ; out) of each user: ``[n] -> [n]``, φ the :func:`signal` of its loss.

    Source: Carlini et al., 2022. Deviation: means are the user's own, but there is one deviation, pooled over
    users, inside and outside: k is small, and with two of them a user whose loss has exploded would look like
    a member, since the wider normal is likelier far out.

    Args:
        loss: ``[n]`` of ``users`` under the attacked model.
        references: of all users.
        users: rows of the references, ``[n]``.
    """
    values, inside = signal(references.loss[:, users]), references.inside[:, users]
    return _ratio(signal(loss), values, inside)


def attack(loss: Floats, references: References, users: NDArray[np.integer[Any]], *, seed: int = 0) -> Attack:
    """Likelihood-ratio attack on a model: are these users told from users that were never in?

    Positives are the users under the attacked model. Negatives are the same users under each reference model
    that was trained without them, each judged by the other references. .5: as if never in. A model retrained
    without exactly these users need not be at .5, since the references lack half of all: compare with its
    value, not with .5.
    """
    values, inside = signal(references.loss[:, users]), references.inside[:, users]
    positive = _ratio(signal(loss), values, inside)
    negative = _left_out(values, inside)
    known = ~np.isnan(positive) & ~np.isnan(negative).all(0)
    positive, negative = positive[known], negative[:, known]
    n = len(positive)
    if n == 0:
        return Attack(*[float("nan")] * 6)
    draws = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), DRAWS)
    weights = np.concatenate([np.ones((1, n)), draws])
    areas, rates = _areas(positive, negative, weights), _rates(positive, negative, weights)
    ends = [np.quantile(x, q) for x in (areas, rates) for q in (0.025, 0.975)]
    return Attack(*map(float, (areas[0], ends[0], ends[1], rates[0], ends[2], ends[3])))


def true_positive_rate(positive: Floats, negative: Floats, fpr: float = FPR) -> float:
    """Share of positives above the threshold that at most ``fpr`` of the negatives exceed.

    >>> true_positive_rate(np.array([0.5, 1.5, 2.5]), np.array([0.0, 1.0, 2.0, 3.0]), fpr=0.25)  # above 2
    0.3333333333333333
    """
    ordered = np.sort(np.asarray(negative, dtype=np.float64))[::-1]
    if not len(ordered) or not len(positive):
        return float("nan")
    threshold = ordered[min(int(np.floor(fpr * len(ordered))), len(ordered) - 1)]
    return float((np.asarray(positive) > threshold).mean())


def _areas(positive: Array, negative: Array, weights: Array) -> Array:
    """Area under the curve when users count ``weights`` times: ``[n], [k, n], [D, n] -> [D]``; ties half."""
    wins = (np.sign(positive[:, None, None] - negative[None]) + 1) / 2
    count = (~np.isnan(negative)).sum(0)
    total = (weights @ np.nansum(wins, axis=1) * weights).sum(1)
    area: Array = total / (weights.sum(1) * (weights @ count))
    return area


def _rates(positive: Array, negative: Array, weights: Array) -> Array:
    """:func:`true_positive_rate` when users count ``weights`` times: ``[n], [k, n], [D, n] -> [D]``."""
    owner = np.nonzero(~np.isnan(negative))[1]
    values = negative[~np.isnan(negative)]
    order = np.argsort(-values, kind="stable")
    above = np.cumsum(weights[:, owner[order]], axis=1)
    threshold = values[order][(above > FPR * above[:, -1:]).argmax(1)]
    rate: Array = (weights * (positive > threshold[:, None])).sum(1) / weights.sum(1)
    return rate


def _left_out(values: Array, inside: Mask) -> Array:
    """Ratio of every observation without the user, that observation left out: ``[k, n]``, NaN elsewhere."""
    found = np.full(values.shape, np.nan)
    for k in range(len(values)):
        others = np.arange(len(values)) != k
        found[k] = np.where(inside[k], np.nan, _ratio(values[k], values[others], inside[others]))
    return found


def _ratio(phi: Array, values: Array, inside: Mask) -> Array:
    """log N(φ; in) − log N(φ; out) with one deviation for both: ``[n] -> [n]``; NaN without either."""
    within, without = _mean(values, inside), _mean(values, ~inside)
    residuals = np.where(inside, values - within, values - without)
    freedom = inside.size - (inside.any(0).sum() + (~inside).any(0).sum())
    variance = max(float(np.nansum(residuals**2)) / freedom, 1e-12) if freedom > 0 else np.nan
    ratio: Array = ((phi - without) ** 2 - (phi - within) ** 2) / (2 * variance)
    return ratio


def _mean(values: Array, chosen: Mask) -> Array:
    """Mean of each user's chosen values: ``[k, n] -> [n]``; NaN without one."""
    count, total = chosen.sum(0), np.where(chosen, values, 0.0).sum(0)
    mean: Array = np.divide(total, count, out=np.full(values.shape[1], np.nan), where=count > 0)
    return mean
