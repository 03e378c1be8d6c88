"""How much of what was deleted is left, from losses under the original, unlearned and retrained models."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Rows = NDArray[np.integer[Any]]


def measurable(original: Floats, retrained: Floats, noise: float) -> NDArray[np.bool_]:
    """Users whose share left means something: L_R − L_O is above 0 and at least twice the noise: ``[n]``.

    Args:
        original: ``[n]`` loss under the original model.
        retrained: ``[R, n]`` losses under the retrained models.
        noise: standard deviation of ``retrained`` over the models, pooled over users.
    """
    gap = np.asarray(retrained, dtype=np.float64).mean(0) - original
    fine: NDArray[np.bool_] = np.isfinite(gap) & (gap > 0) & (gap >= 2 * noise)
    return fine


def share_left(original: Floats, unlearned: Floats, retrained: Floats, noise: float) -> Array:
    """(L_R − L_U) / (L_R − L_O) of each user, L_R the mean over models: ``[n]``; NaN where not measurable.

    1 nothing forgotten, 0 as forgotten as by retraining, below 0 over-forgotten. Minus infinity where L_U is
    infinite or no number: a wrecked model knows nobody.

    >>> share_left(np.array([1.0]), np.array([1.5]), np.array([[2.0], [4.0]]), 0.5).tolist()
    [0.75]
    """
    target = np.asarray(retrained, dtype=np.float64).mean(0)
    gap = np.where(measurable(original, retrained, noise), target - original, np.nan)
    after = np.asarray(unlearned, dtype=np.float64)
    share: Array = (target - np.where(np.isnan(after), np.inf, after)) / gap
    return share


def unlearning_effectiveness(share: Array) -> float:
    """UE = 100 · mean max(0, 1 − |share left|): 0 to 100; NaN without a measurable user.

    Over-forgetting counts as much as under-forgetting, so a wrecked model scores 0.

    >>> unlearning_effectiveness(np.array([0.2, -0.4, -3.0, np.nan]))  # (.8 + .6 + 0) / 3
    46.666666666666664
    """
    return 100 * _mean(np.maximum(0.0, 1 - np.abs(share)))


def ue_clipped(share: Array) -> float:
    """100 · mean clip(1 − share left, 0, 1): blind to over-forgetting; for comparison with the paper.

    >>> ue_clipped(np.array([0.2, -0.4, 1.5]))  # (.8 + 1 + 0) / 3
    60.0
    """
    return 100 * _mean(np.clip(1 - share, 0.0, 1.0))


def over_forgotten(share: Array) -> float:
    """Share of measurable users below 0; a retrained model has about half of them there by chance."""
    return _mean(np.where(np.isnan(share), np.nan, (share < 0).astype(np.float64)))


def set_share_left(original: Floats, unlearned: Floats, retrained: Floats) -> tuple[float, float]:
    """Share left of the set's mean losses, and by how much one retrained model strays from 0 there.

    Means are measurable where single users are not. The second is the standard deviation of the retrained
    models' means over the gap; NaN with one model. NaN, NaN where the gap is not above 0 or below twice that
    deviation.
    """
    means = np.asarray(retrained, dtype=np.float64).mean(1)
    noise = float(means.std(ddof=1)) if len(means) > 1 else float("nan")
    gap = float(means.mean() - np.mean(original))
    if not gap > 0 or gap < 2 * noise:
        return float("nan"), float("nan")
    return float((means.mean() - np.mean(unlearned)) / gap), noise / gap


def is_over_forgotten(unlearned: Floats, retrained: Floats) -> bool:
    """Whether the set's mean loss lies above every retrained model's by more than their spread.

    Spread: twice the standard deviation of the models' means. Needs two models or more.
    """
    means = np.asarray(retrained, dtype=np.float64).mean(1)
    if len(means) < 2:
        return False
    return bool(np.mean(unlearned) > means.max() + 2 * means.std(ddof=1))


def residual_ratio(unlearned: Floats, original: Floats) -> float:
    """ρ = mean d(θ_U, θ_R) / mean d(θ_O, θ_R) over users and models: 0 retrained, 1 untouched, above 1 harm.

    NaN where the original is no distance away from the retrained models.
    """
    away = float(np.mean(original)) if np.size(original) else float("nan")
    return float(np.mean(unlearned)) / away if away > 0 else float("nan")


def neighbours(user: Rows, item: Rows, shape: tuple[int, int], forget: Rows, count: int) -> Rows:
    """Users outside ``forget`` nearest to it: highest mean cosine of interaction rows: at most ``[count]``.

    The mean is over all forgotten users. Users that share no item with any of them are no neighbours; ties go
    to the smaller number.

    Args:
        user, item: ``[m]`` interactions.
        shape: numbers of users and items.
        forget: rows of the forgotten users.
        count: most neighbours.
    """
    ones = np.ones(len(user))
    table = sparse.csr_matrix((ones, (np.asarray(user), np.asarray(item))), shape=shape)
    table.data[:] = 1.0  # an item that a user has met twice counts once
    length = np.sqrt(np.asarray(table.multiply(table).sum(1)).ravel())
    unit = sparse.diags(np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)) @ table
    centre = np.asarray(unit[np.asarray(forget)].sum(0)).ravel() / max(len(forget), 1)
    cosine = np.asarray(unit @ centre).ravel()
    cosine[np.asarray(forget)] = -1.0
    order = np.lexsort((np.arange(len(cosine)), -cosine))
    near: Rows = order[cosine[order] > 0][:count]
    return near


def cold_items(user: Rows, item: Rows, forget: Rows, n_items: int) -> Rows:
    """Items whose every interaction is a forgotten user's: without them nothing is known about the item."""
    inside = np.isin(user, forget)
    before = np.bincount(item, minlength=n_items)
    gone = np.bincount(np.asarray(item)[inside], minlength=n_items)
    cold: Rows = np.flatnonzero((before > 0) & (before == gone))
    return cold


def activity_groups(counts: Rows, names: Sequence[str] = ("low", "middle", "high")) -> NDArray[np.str_]:
    """Groups of equal size by number of interactions, the least active first: ``[n] -> [n]`` names."""
    place = np.empty(len(counts), dtype=np.int64)
    place[np.argsort(counts, kind="stable")] = np.arange(len(counts))
    return np.asarray(names)[place * len(names) // max(len(counts), 1)]


def group_means(values: Array, groups: NDArray[np.str_]) -> dict[str, float]:
    """Mean of each group, NaN left out, and their ``gap``: the highest minus the lowest mean."""
    means = {str(name): _mean(values[groups == name]) for name in dict.fromkeys(groups.tolist())}
    known = [m for m in means.values() if not np.isnan(m)]
    return {**means, "gap": max(known) - min(known) if known else float("nan")}


def _mean(values: Array) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
