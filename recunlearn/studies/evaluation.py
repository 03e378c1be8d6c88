"""Evaluation of an unlearned model against models retrained without the forget set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from recunlearn.evaluation import forgetting as f
from recunlearn.evaluation.membership import References
from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.records import Evaluation
from recunlearn.studies.figures import (
    Models,
    below_retrained,
    cold,
    deleted_items,
    distance_figures,
    mean,
    median,
    membership,
    norms,
    quality,
)
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
                originals[f"{name}/{group}"] = mean(values)
                floors[f"{name}/{group}"] = mean(np.concatenate([d[name].ravel() for d in apart]))
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
            found.append(effectiveness(share, ""))
        return {name: mean(np.array([figures[name] for figures in found])) for name in found[0]}

    def _evaluation(self, after: Measured) -> Evaluation:
        figures: dict[str, float] = {"forget_users": float(len(self.setting.forget))}
        reasons: dict[str, str] = {}
        shares = {}
        for kind in ("loss", "reset", "fold_in"):
            shares[kind] = self._forgotten(after, kind, figures, reasons)
        self._without_history(after, figures, reasons)
        models = self._models(after)
        figures |= distance_figures(self.setting, after, list(self.retrained), self.originals, self.floors)
        figures |= deleted_items(models) | quality(self.setting, models) | norms(self.setting, models)
        figures |= membership(self.setting, models, self.references)
        figures |= {f"retrained/{name}": value for name, value in self.ceiling().items()}
        figures["cold_items"] = cold(self.setting)
        if after.norm is None:
            reasons["norm"] = NO_VECTORS
        if self.references is None:
            reasons["membership"] = "no reference models were given"
        if len(self.retrained) < FEW:
            reasons["noise"] = f"{len(self.retrained)} retrained models; {FEW} or more give a noise floor"
        losses = np.stack([m.loss for m in self.retrained])
        wrong = {
            "diverged": not np.isfinite(after.loss).all(),
            "over-forgetting (loss)": f.is_over_forgotten(after.loss, losses),
            "over-forgetting (membership)": below_retrained(figures),
        }
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
            tuple(name for name, is_so in wrong.items() if is_so),
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
        figures |= effectiveness(share, suffix)
        losses = np.stack([getattr(m, kind) for m in self.retrained])
        before, now = getattr(self.original, kind), getattr(after, kind)
        figures |= loss_figures(before, now, losses, suffix)
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

    def _models(self, after: Measured) -> Models:
        return {"unlearned": [after], "original": [self.original], "retrained": list(self.retrained)}


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


def loss_figures(before: Array, now: Array, losses: Array, suffix: str = "") -> dict[str, float]:
    """Share left of the set, mean losses and their noise: ``[n], [n], [R, n]``."""
    left, error = f.set_share_left(before, now, losses)
    return {
        f"set_share_left{suffix}": left,
        f"set_share_left_error{suffix}": error,
        f"loss/original{suffix}": mean(before),
        f"loss/unlearned{suffix}": mean(now),
        f"loss/retrained{suffix}": mean(losses),
        f"noise{suffix}": retraining_noise(losses),
    }


def effectiveness(share: Array, suffix: str) -> dict[str, float]:
    """Figures of the share left by user."""
    return {
        f"ue{suffix}": f.unlearning_effectiveness(share),
        f"ue_clipped{suffix}": f.ue_clipped(share),
        f"over_forgotten{suffix}": f.over_forgotten(share),
        f"share_left_median{suffix}": median(share),
        f"not_measurable{suffix}": float(np.isnan(share).sum()),
    }
