"""Is it forgotten, and what did it cost the others: figures of an unlearned model, and their limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import nn

from recunlearn.deletion.policy import LimitSettings, MeasureSettings
from recunlearn.evaluation.distances import jensen_shannon, log_probabilities
from recunlearn.foundation.seeds import uniform
from recunlearn.studies.losses import entity_losses
from recunlearn.subjects.contract import Batch, IntArray
from recunlearn.subjects.recbole.evaluation import per_user
from recunlearn.subjects.recbole.subject import RecBoleSubject
from recunlearn.unlearning.goal import MeanLoss
from recunlearn.unlearning.request import rest_of

SAMPLES = 50
"""Most interactions of a retained user whose loss is measured."""


@dataclass(frozen=True)
class Scales:
    """What a model is measured on: the erased interactions, and a fixed sample of the users who stay.

    Args:
        subject: the model before, on the data before.
        forget: rows of users of whom everything goes, ascending.
        erased: training samples that go, of these users and others.
        settings: how many of the others are measured.
    """

    subject: RecBoleSubject
    forget: IntArray
    erased: Sequence[Batch]
    settings: MeasureSettings

    @cached_property
    def owners(self) -> IntArray:
        """Rows of users who lose an interaction that the model was trained on."""
        found = [np.unique(b.entity.cpu().numpy()) for b in self.erased]
        return np.unique(np.concatenate([*found, np.zeros(0, dtype=np.int64)])).astype(np.int64)

    @cached_property
    def others(self) -> IntArray:
        """Retained users whose quality is measured, the same in every job while they stay."""
        return self._sample(self.settings.users)

    def _sample(self, count: int) -> IntArray:
        rest = rest_of(self.subject, self.forget)
        lot = uniform(rest.astype(np.uint64), 0)
        return np.sort(rest[np.argsort(lot, kind="stable")[:count]])

    @cached_property
    def loss_of_others(self) -> MeanLoss:
        """Mean loss of the sample."""
        return MeanLoss(self.subject, self.others, 0, users=len(self.others), samples=SAMPLES)

    def loss(self, model: nn.Module, users: IntArray) -> NDArray[np.float64]:
        """Mean loss of each user's erased interactions: ``[n]``."""
        return entity_losses(self.subject, model, self.erased, users)

    def quality(self, model: nn.Module) -> dict[str, float]:
        """Mean test metrics of the sample; none without a test part."""
        found = per_user(self.subject.bundle, model, self.others)
        values = {name: v[self.others] for name, v in found.items()}
        return {name: float(np.nanmean(v)) for name, v in values.items() if np.isfinite(v).any()}

    def drift(self, model: nn.Module) -> float:
        """Mean Jensen-Shannon distance (square root, at most 0.833) of the item scores from the model before.

        It is a metric: summed over jobs it bounds the distance from the first model from above.
        """
        rows = self._sample(self.settings.drift_users)
        old, new = (
            log_probabilities(self.subject.item_scores(m, rows).numpy()) for m in (self.subject.model, model)
        )
        return float(np.sqrt(jensen_shannon(old, new)).mean())

    @cached_property
    def before(self) -> dict[str, float]:
        """Figures of the model before."""
        model, found = self.subject.model, {"loss/others/before": self.loss_of_others(self.subject.model)}
        if len(self.owners):
            found["loss/erased/before"] = float(self.loss(model, self.owners).mean())
        if len(self.whole):
            stranger = self.subject.population_rows(model, self.forget)
            found["loss/forgotten/before"] = float(self.loss(model, self.whole).mean())
            found["loss/forgotten/bound"] = float(self.loss(stranger, self.whole).mean())
        return found | {f"{name}/others/before": v for name, v in self.quality(model).items()}

    @cached_property
    def whole(self) -> IntArray:
        """Forgotten users who have training samples."""
        return self.forget[self.subject.n_samples()[self.forget] > 0]

    @property
    def has_bound(self) -> bool:
        """Tell whether the population's rows know the forgotten worse than the model does."""
        figures = self.before
        return figures.get("loss/forgotten/bound", np.nan) > figures.get("loss/forgotten/before", np.nan)

    def figures(self, model: nn.Module) -> dict[str, float]:
        """All figures of an unlearned model, with those before; what is no number is left out."""
        figures = dict(self.before)
        figures["loss/others/after"] = self.loss_of_others(model)
        figures["loss_rise"] = figures["loss/others/after"] - figures["loss/others/before"]
        if len(self.owners):
            figures["loss/erased/after"] = float(self.loss(model, self.owners).mean())
        if len(self.whole):
            after = figures["loss/forgotten/after"] = float(self.loss(model, self.whole).mean())
            if self.has_bound:
                bound, start = figures["loss/forgotten/bound"], figures["loss/forgotten/before"]
                figures["share_left"] = (bound - after) / (bound - start)
        for name, value in self.quality(model).items():
            figures[f"{name}/others/after"] = value
        main = self.subject.main_metric
        if figures.get(f"{main}/others/before", 0.0) > 0:
            ratio = figures[f"{main}/others/after"] / figures[f"{main}/others/before"]
            figures["quality_drop"] = 1 - ratio
        figures["drift"] = self.drift(model)
        return {name: value for name, value in figures.items() if np.isfinite(value)}


def violations(figures: Mapping[str, float], limits: LimitSettings, *, exact: bool) -> list[str]:
    """Limits that a result does not keep to, a sentence each; none: accepted.

    Args:
        figures: of :meth:`Scales.figures`, or of an evaluation against retraining.
        limits: of the policy.
        exact: the model never saw what was erased, so that its loss there is what retraining gives; the
            others' figures are then those of another training and no damage.
    """
    if "loss/others/after" not in figures:
        return ["the loss of the others is no finite number"]
    if exact:
        return []
    found = []
    if "share_left" not in figures:
        found.append("no bound tells whether the users are forgotten")
    else:
        share = figures["share_left"]
        if share > limits.share_left:
            found.append(f"share left {share:.2f} above {limits.share_left:g}")
        if share < -limits.over_forgotten:
            found.append(f"over-forgotten: share left {share:.2f} below {-limits.over_forgotten:g}")
    for name, most in (("quality_drop", limits.quality_drop), ("loss_rise", limits.loss_rise)):
        if figures.get(name, 0.0) > most:
            found.append(f"{name} {figures[name]:.4f} above {most:g}")
    return found
