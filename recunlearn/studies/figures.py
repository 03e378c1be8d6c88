"""Figures of models on a forget set: distances, ranks, quality, vector lengths, membership; flat names."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recunlearn.evaluation import forgetting as f
from recunlearn.evaluation.membership import References, attack
from recunlearn.evaluation.ranking import auc
from recunlearn.studies.measuring import Measured, Setting, distances

Array = NDArray[np.float64]
Models = Mapping[str, Sequence[Measured]]
"""Measured models by what they are: "unlearned", "original", "retrained"."""


def distance_figures(
    setting: Setting,
    after: Measured,
    retrained: list[Measured],
    originals: Mapping[str, float],
    floors: Mapping[str, float],
) -> dict[str, float]:
    """Distances to the retrained models and residual ratios.

    Args:
        setting, after, retrained: what is compared.
        originals, floors: ``distance/group`` -> mean distance of the original, and of the retrained models
            from each other.
    """
    figures: dict[str, float] = {}
    for group in setting.groups:
        for name, values in distances(setting, after, retrained, group).items():
            key = f"{name}/{group}"
            before, floor = np.array([originals[key]]), np.array([floors[key]])
            figures |= {
                f"distance/{key}/unlearned": mean(values),
                f"distance/{key}/original": originals[key],
                f"distance/{key}/floor": floors[key],
                f"residual/{key}": f.residual_ratio(values.ravel(), before),
                f"residual/{key}/floor": f.residual_ratio(floor, before),
            }
    return figures


def deleted_items(models: Models) -> dict[str, float]:
    """Where deleted items would be ranked with no item left out."""
    figures = {}
    for which, those in models.items():
        figures[f"rank/{which}"] = mean([median(m.rank) for m in those])
        for name in those[0].deleted:
            figures[f"deleted_{name}/{which}"] = mean(np.stack([m.deleted[name] for m in those]))
    return figures


def quality(setting: Setting, models: Models) -> dict[str, float]:
    """Test metrics of those who stay: all, neighbours, and by activity."""
    figures = {}
    for which, those in models.items():
        for name in those[0].quality:
            values = np.stack([m.quality[name] for m in those]).mean(0)
            figures[f"{name}/retain/{which}"] = mean(values[setting.retain])
            figures[f"{name}/near/{which}"] = mean(values[setting.near])
            for group, value in f.group_means(values[setting.retain], setting.activity).items():
                figures[f"{name}/activity_{group}/{which}"] = value
    return figures


def norms(setting: Setting, models: Models) -> dict[str, float]:
    """Length of user vectors, and how well it alone tells forgotten from retained users; empty without."""
    figures = {}
    groups = {**setting.groups, "retain": setting.retain}
    kept = np.concatenate([setting.forget, setting.retain])
    labels = np.isin(kept, setting.forget).astype(np.float64)
    for which, those in models.items():
        lengths = [m.norm for m in those if m.norm is not None]
        if not lengths:
            continue
        for group, rows in groups.items():
            figures[f"norm/{group}/{which}"] = mean(np.stack(lengths)[:, rows])
        figures[f"norm_auc/{which}"] = mean([auc(-row[kept], labels) for row in lengths])
    return figures


def membership(setting: Setting, models: Models, references: References | None) -> dict[str, float]:
    """Membership inference on every model; empty without references."""
    figures: dict[str, float] = {}
    if references is None:
        return figures
    for which, those in models.items():
        attacks = [attack(m.loss, references, setting.forget) for m in those]
        for name in vars(attacks[0]):
            figures[f"membership_{name}/{which}"] = mean([getattr(a, name) for a in attacks])
    return figures


def below_retrained(figures: Mapping[str, float]) -> bool:
    """Whether the forgotten stand out by being known worse than by retrained models."""
    high, target = (figures.get(f"membership_auc{k}") for k in ("_high/unlearned", "/retrained"))
    return high is not None and target is not None and high < target


def cold(setting: Setting) -> float:
    """How many items only forgotten users had."""
    user, item = setting.subject.interactions()
    return float(len(f.cold_items(user, item, setting.forget, len(setting.subject.items))))


def median(values: Array) -> float:
    """Median without NaN; NaN where nothing is left."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")


def mean(values: Any) -> float:
    """Mean without NaN; NaN where nothing is left."""
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    return float(known.mean()) if len(known) else float("nan")
