"""Evaluation of an unlearned model against models retrained without the forget set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from recunlearn.evaluation import forgetting as f
from recunlearn.evaluation.membership import References, attack
from recunlearn.evaluation.ranking import auc
from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.records import Evaluation
from recunlearn.studies.fold_in import FoldIn
from recunlearn.studies.measuring import Measured, Setting, distances, measure
from recunlearn.studies.probe import retraining_noise
from recunlearn.subjects.contract import IntArray, Recommender

Array = NDArray[np.float64]
FEW = 3
"""Fewer retrained models make a poor noise floor: said in ``reasons``."""
NO_VECTORS = "the model has no user vectors"
NO_GAP = "the retrained models know the set no worse than the original by twice their own noise"


@dataclass(frozen=True)
class Yardstick:
    """Original and retrained models measured on one forget set, once for every method that is tried on it.

    Args:
        setting: the set and the users around it.
        original, retrained: their measurements.
        references: for membership inference; None: not attacked.
        floors: distance of retrained models from each other, ``distance/group`` -> mean.
        originals: distance of the original from the retrained models, the same.
    """

    setting: Setting
    original: Measured
    retrained: Sequence[Measured]
    references: References | None
    floors: Mapping[str, float]
    originals: Mapping[str, float]

    @staticmethod
    def of(
        subject: Recommender,
        original: nn.Module,
        retrained: Sequence[nn.Module],
        forget: IntArray,
        *,
        references: References | None = None,
        fold_in: FoldIn | None = None,
        seed: int = 0,
    ) -> "Yardstick":
        """Measure the original and the retrained models: see :func:`evaluate`."""
        forget = _checked(subject, forget, retrained)
        setting = Setting.of(subject, forget, fold_in or FoldIn(), seed)
        before = measure(setting, original)
        after = [measure(setting, model, absent=True) for model in retrained]
        floors, originals = {}, {}
        for group in setting.groups:
            apart = [distances(setting, m, after[i + 1 :], group) for i, m in enumerate(after[:-1])]
            for name, values in distances(setting, before, after, group).items():
                originals[f"{name}/{group}"] = _mean(values)
                floors[f"{name}/{group}"] = _mean(np.concatenate([d[name].ravel() for d in apart]))
        return Yardstick(setting, before, after, references, floors, originals)

    def evaluate(self, unlearned: nn.Module, *, absent: bool = False) -> Evaluation:
        """Measure an unlearned model on the set: see :func:`evaluate`."""
        return self._evaluation(measure(self.setting, unlearned, absent=absent))

    def ceiling(self) -> dict[str, float]:
        """Figures of the retrained models themselves, each measured against the others, averaged.

        What a perfect method can reach with this many models: chance keeps it from 100 and 0.
        """
        found = []
        for number, one in enumerate(self.retrained):
            others = [m for i, m in enumerate(self.retrained) if i != number]
            share = _share(self.original, one, others, "loss")
            found.append(_effectiveness(share, ""))
        return {name: _mean(np.array([figures[name] for figures in found])) for name in found[0]}

    def _evaluation(self, after: Measured) -> Evaluation:
        figures: dict[str, float] = {"forget_users": float(len(self.setting.forget))}
        reasons: dict[str, str] = {}
        shares = {}
        for kind in ("loss", "reset", "fold_in"):
            shares[kind] = self._forgotten(after, kind, figures, reasons)
        self._without_history(after, figures, reasons)
        self._distances(after, figures)
        self._deleted_items(after, figures)
        self._quality(after, figures)
        self._norms(after, figures, reasons)
        flags = self._membership(after, figures, reasons)
        figures |= {f"retrained/{name}": value for name, value in self.ceiling().items()}
        figures["cold_items"] = float(len(self._cold()))
        if len(self.retrained) < FEW:
            reasons["noise"] = f"{len(self.retrained)} retrained models; {FEW} or more give a noise floor"
        losses = np.stack([m.loss for m in self.retrained])
        if f.is_over_forgotten(after.loss, losses):
            flags = ("over-forgetting (loss)", *flags)
        if not np.isfinite(after.loss).all():
            flags = ("diverged", *flags)
        return Evaluation(
            self.setting.subject.entities[self.setting.forget],
            self.original.loss,
            after.loss,
            losses,
            shares["loss"],
            shares["reset"],
            shares["fold_in"],
            {name: value for name, value in figures.items() if not np.isnan(value)},
            reasons,
            flags,
            {**vars(self.setting.fold_in), "seed": self.setting.seed, "retrained": len(self.retrained)},
        )

    def _forgotten(
        self, after: Measured, kind: str, figures: dict[str, float], reasons: dict[str, str]
    ) -> Array:
        """Share left by user under one choice of rows, and its figures."""
        suffix = "" if kind == "loss" else f"/{kind}"
        if getattr(after, kind) is None or getattr(self.original, kind) is None:
            reasons[f"ue{suffix}"] = NO_VECTORS
            return np.full(len(self.setting.forget), np.nan)
        share = _share(self.original, after, self.retrained, kind)
        figures |= _effectiveness(share, suffix)
        losses = np.stack([getattr(m, kind) for m in self.retrained])
        before, now = getattr(self.original, kind), getattr(after, kind)
        left, error = f.set_share_left(before, now, losses)
        figures |= {
            f"set_share_left{suffix}": left,
            f"set_share_left_error{suffix}": error,
            f"loss/original{suffix}": _mean(before),
            f"loss/unlearned{suffix}": _mean(now),
            f"loss/retrained{suffix}": _mean(losses),
            f"noise{suffix}": retraining_noise(losses),
        }
        if np.isnan(share).all():
            reasons[f"ue{suffix}"] = NO_GAP
        return share

    def _without_history(self, after: Measured, figures: dict[str, float], reasons: dict[str, str]) -> None:
        """The set's share left when the deleted history is no longer given."""
        if after.empty is None or self.original.empty is None:
            reasons["set_share_left/empty_history"] = "the model reads no history"
            return
        losses = np.stack([m.empty for m in self.retrained if m.empty is not None])
        left, error = f.set_share_left(self.original.empty, after.empty, losses)
        figures |= {"set_share_left/empty_history": left, "set_share_left_error/empty_history": error}
        if np.isnan(left):
            reasons["set_share_left/empty_history"] = NO_GAP

    def _distances(self, after: Measured, figures: dict[str, float]) -> None:
        for group in self.setting.groups:
            for name, values in distances(self.setting, after, list(self.retrained), group).items():
                key = f"{name}/{group}"
                before = self.originals[key]
                figures |= {
                    f"distance/{key}/unlearned": _mean(values),
                    f"distance/{key}/original": before,
                    f"distance/{key}/floor": self.floors[key],
                    f"residual/{key}": f.residual_ratio(values.ravel(), np.array([before])),
                    f"residual/{key}/floor": f.residual_ratio(
                        np.array([self.floors[key]]), np.array([before])
                    ),
                }

    def _deleted_items(self, after: Measured, figures: dict[str, float]) -> None:
        """Where deleted items would be ranked with no item left out."""
        for which, models in self._models(after).items():
            figures[f"rank/{which}"] = _mean(np.array([_median(m.rank) for m in models]))
            for name in after.deleted:
                figures[f"deleted_{name}/{which}"] = _mean(np.stack([m.deleted[name] for m in models]))

    def _quality(self, after: Measured, figures: dict[str, float]) -> None:
        """Test metrics of those who stay: all, neighbours, and by activity."""
        setting = self.setting
        for which, models in self._models(after).items():
            for name in after.quality:
                values = np.stack([m.quality[name] for m in models]).mean(0)
                figures[f"{name}/retain/{which}"] = _mean(values[setting.retain])
                figures[f"{name}/near/{which}"] = _mean(values[setting.near])
                for group, mean in f.group_means(values[setting.retain], setting.activity).items():
                    figures[f"{name}/activity_{group}/{which}"] = mean

    def _norms(self, after: Measured, figures: dict[str, float], reasons: dict[str, str]) -> None:
        """Length of user vectors, and how well it alone tells forgotten from retained users."""
        if after.norm is None or self.original.norm is None:
            reasons["norm"] = NO_VECTORS
            return
        setting = self.setting
        groups = {**setting.groups, "retain": setting.retain}
        for which, models in self._models(after).items():
            norms = np.stack([m.norm for m in models if m.norm is not None])
            for group, rows in groups.items():
                figures[f"norm/{group}/{which}"] = _mean(norms[:, rows])
            labels = np.isin(np.arange(norms.shape[1]), setting.forget)
            kept = np.concatenate([setting.forget, setting.retain])
            areas = [auc(-row[kept], labels[kept].astype(np.float64)) for row in norms]
            figures[f"norm_auc/{which}"] = _mean(np.array(areas))

    def _membership(
        self, after: Measured, figures: dict[str, float], reasons: dict[str, str]
    ) -> tuple[str, ...]:
        if self.references is None:
            reasons["membership"] = "no reference models were given"
            return ()
        found = {}
        for which, models in self._models(after).items():
            attacks = [attack(m.loss, self.references, self.setting.forget) for m in models]
            found[which] = _mean(np.array([a.auc for a in attacks]))
            for name in vars(attacks[0]):
                figures[f"membership_{name}/{which}"] = _mean(np.array([getattr(a, name) for a in attacks]))
        below = figures["membership_auc_high/unlearned"] < found["retrained"]
        return ("over-forgetting (membership)",) if below else ()

    def _models(self, after: Measured) -> dict[str, list[Measured]]:
        return {"unlearned": [after], "original": [self.original], "retrained": list(self.retrained)}

    def _cold(self) -> NDArray[np.integer[Any]]:
        user, item = self.setting.subject.interactions()
        return f.cold_items(user, item, self.setting.forget, len(self.setting.subject.items))


def evaluate(
    subject: Recommender,
    original: nn.Module,
    unlearned: nn.Module,
    retrained: Sequence[nn.Module],
    forget: IntArray,
    *,
    absent: bool = False,
    references: References | None = None,
    fold_in: FoldIn | None = None,
    seed: int = 0,
) -> Evaluation:
    """How far ``unlearned`` has forgotten a set, and what that cost the others: docs/metrics/forgetting.md.

    For several methods on one set make a :class:`Yardstick` once.

    Args:
        subject: with the data of all models.
        original: before deletion, usually ``subject.model``.
        unlearned: after it.
        retrained: two or more models trained without the set by ``subject.retrain``, three or more for a
            noise floor.
        forget: rows of the forgotten users.
        absent: ``unlearned`` was trained without the set (retraining, shards), so that its rows of the users
            are noise and the population mean takes their place.
        references: of :func:`~recunlearn.studies.references.membership_references`.
        fold_in: how vectors are fitted anew.
        seed: of the negatives, the random users and the fold-in.

    Raises:
        UsageError: nobody or everybody is forgotten, somebody has no training interaction, or fewer than
            two retrained models.
    """
    options: dict[str, Any] = {"references": references, "fold_in": fold_in, "seed": seed}
    return Yardstick.of(subject, original, retrained, forget, **options).evaluate(unlearned, absent=absent)


def _checked(subject: Recommender, forget: IntArray, retrained: Sequence[nn.Module]) -> IntArray:
    forget = np.unique(np.asarray(forget, dtype=np.int64))
    counts = subject.n_samples()
    if not len(forget):
        raise UsageError("The forget set is empty, so there is nothing to evaluate. Name at least one user.")
    if idle := int((counts[forget] == 0).sum()):
        raise UsageError(
            f"{idle} of the {len(forget)} forgotten users have no training interaction. Leave them out."
        )
    if len(forget) == int((counts > 0).sum()):
        raise UsageError("All users are forgotten, so nobody is left to measure. Name fewer users.")
    if len(retrained) < 2:
        raise UsageError(
            f"Evaluation needs 2 retrained models or more to know their noise, but got {len(retrained)}."
        )
    return forget


def _share(before: Measured, after: Measured, retrained: Sequence[Measured], kind: str) -> Array:
    losses = np.stack([getattr(m, kind) for m in retrained])
    return f.share_left(getattr(before, kind), getattr(after, kind), losses, retraining_noise(losses))


def _effectiveness(share: Array, suffix: str) -> dict[str, float]:
    return {
        f"ue{suffix}": f.unlearning_effectiveness(share),
        f"ue_clipped{suffix}": f.ue_clipped(share),
        f"over_forgotten{suffix}": f.over_forgotten(share),
        f"share_left_median{suffix}": _median(share),
        f"not_measurable{suffix}": float(np.isnan(share).sum()),
    }


def _median(values: Array) -> float:
    """Median without NaN; NaN where nothing is left."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")


def _mean(values: Any) -> float:
    """Mean without NaN; NaN where nothing is left."""
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    return float(known.mean()) if len(known) else float("nan")
