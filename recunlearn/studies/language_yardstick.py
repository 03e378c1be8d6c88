"""Evaluation of an unlearned language model against models retrained without the forget set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from recunlearn.evaluation import forgetting as f
from recunlearn.evaluation.distances import half_jeffreys, jensen_shannon, l2, log_probabilities
from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.records import Evaluation
from recunlearn.foundation.seeds import uniform
from recunlearn.studies.evaluation import NO_GAP, NO_VECTORS, effectiveness, loss_figures
from recunlearn.studies.figures import mean
from recunlearn.studies.language_metrics import Questions, Told, forget_qualities
from recunlearn.studies.losses import device_of, entity_losses, samples
from recunlearn.studies.probe import retraining_noise
from recunlearn.subjects.contract import Batch, IntArray
from recunlearn.subjects.tofu.subject import LanguageSubject
from recunlearn.unlearning.request import rest_of

Array = NDArray[np.float64]
DISTANCES = {"jsd": jensen_shannon, "half_jeffreys": half_jeffreys, "l2": l2}
COMPARED = 32
"""Most entities of a group whose distributions are compared token by token."""
TOGETHER = 4
"""Answers compared at a time: a distribution has as many numbers as the vocabulary."""
FEW = 3


@dataclass(frozen=True)
class LanguageYardstick:
    """Original and retrained models measured on one forget set, once for every method that is tried on it.

    Args:
        subject: with the original model.
        forget: forgotten entities.
        retrained: models trained without them.
        questions: what every model is asked.
        losses: of the forgotten under the original ``[n]``, and under the retrained models ``[R, n]``.
        told: what the original and the retrained models say.
        groups: batches of the forgotten and of as many others, whose distributions are compared.
        originals, floors: ``distance/group`` -> mean distance of the original from the retrained models, and
            of these from each other.
    """

    subject: LanguageSubject
    forget: IntArray
    retrained: Sequence[nn.Module]
    questions: Questions
    losses: tuple[Array, Array]
    told: tuple[Told, Sequence[Told]]
    groups: Mapping[str, Sequence[Batch]]
    originals: Mapping[str, float]
    floors: Mapping[str, float]

    @staticmethod
    def of(
        subject: LanguageSubject,
        retrained: Sequence[nn.Module],
        forget: IntArray,
        questions: Questions,
        *,
        seed: int = 0,
    ) -> "LanguageYardstick":
        """Measure the original and the retrained models.

        Args:
            subject: with the original model.
            retrained: two or more models of ``subject.retrain``; three or more for a noise floor.
            forget: forgotten entities.
            questions: of :meth:`Questions.of` for the same set.
            seed: of the choice of the others.

        Raises:
            UsageError: fewer than two retrained models.
        """
        if len(retrained) < 2:
            raise UsageError(
                f"Evaluation needs 2 retrained models or more to know their noise, but got {len(retrained)}."
            )
        before = _losses(subject, subject.model, forget)
        after = np.stack([_losses(subject, model, forget) for model in retrained])
        told = questions.ask(subject.model), [questions.ask(model) for model in retrained]
        rest = rest_of(subject, forget)
        lot = uniform(rest.astype(np.uint64), seed)
        chosen = {"forget": forget, "random": rest[np.argsort(lot, kind="stable")[: len(forget)]]}
        groups = {name: _batches(subject, np.sort(who[:COMPARED]), seed) for name, who in chosen.items()}
        originals: dict[str, float] = {}
        floors: dict[str, float] = {}
        for name, batches in groups.items():
            originals |= _distances(subject, subject.model, retrained, batches, name)
            apart = [
                _distances(subject, model, retrained[i + 1 :], batches, name)
                for i, model in enumerate(retrained[:-1])
            ]
            floors |= {key: float(np.mean([d[key] for d in apart])) for key in apart[0]}
        return LanguageYardstick(
            subject, forget, retrained, questions, (before, after), told, groups, originals, floors
        )

    @staticmethod
    def answers(subject: LanguageSubject, forget: IntArray, retrained: int) -> int:
        """Answers that one model's losses and distances read, beside the questions."""
        return int(subject.n_samples()[forget].sum()) + 2 * min(COMPARED, len(forget)) * (1 + retrained)

    def evaluate(self, unlearned: nn.Module) -> Evaluation:
        """Measure an unlearned model: docs/metrics/forgetting.md and docs/metrics/language.md."""
        now = _losses(self.subject, unlearned, self.forget)
        before, after = self.losses
        share = f.share_left(before, now, after, retraining_noise(after))
        figures = {"forget_users": float(len(self.forget))}
        figures |= effectiveness(share, "") | loss_figures(before, now, after)
        figures |= {f"retrained/{name}": value for name, value in self._ceiling().items()}
        figures |= self._compared(unlearned)
        reasons = {"ue/reset": NO_VECTORS, "ue/fold_in": NO_VECTORS}
        if np.isnan(share).all():
            reasons["ue"] = NO_GAP
        if len(self.retrained) < FEW:
            reasons["noise"] = f"{len(self.retrained)} retrained models; {FEW} or more give a noise floor"
        self._answered(unlearned, figures, reasons)
        wrong = {
            "diverged": not np.isfinite(now).all(),
            "over-forgetting (loss)": f.is_over_forgotten(now, after),
        }
        nothing = np.full(len(self.forget), np.nan)
        return Evaluation(
            self.subject.entities[self.forget],
            before,
            now,
            after,
            share,
            nothing,
            nothing,
            {name: value for name, value in figures.items() if np.isfinite(value)},
            reasons,
            tuple(name for name, is_so in wrong.items() if is_so),
            {"metrics": self.questions.settings.model_dump(), "retrained": len(self.retrained)},
        )

    def _ceiling(self) -> dict[str, float]:
        """Figures of the retrained models, each measured against the others."""
        before, after = self.losses
        found = []
        for number in range(len(after)):
            others = np.delete(after, number, axis=0)
            share = f.share_left(before, after[number], others, retraining_noise(others))
            found.append(effectiveness(share, ""))
        return {name: mean([figures[name] for figures in found]) for name in found[0]}

    def _compared(self, unlearned: nn.Module) -> dict[str, float]:
        """Distances to the retrained models and residual ratios."""
        figures: dict[str, float] = {}
        for name, batches in self.groups.items():
            for key, value in _distances(self.subject, unlearned, self.retrained, batches, name).items():
                before, floor = np.array([self.originals[key]]), np.array([self.floors[key]])
                figures |= {
                    f"distance/{key}/unlearned": value,
                    f"distance/{key}/original": self.originals[key],
                    f"distance/{key}/floor": self.floors[key],
                    f"residual/{key}": f.residual_ratio(np.array([value]), before),
                    f"residual/{key}/floor": f.residual_ratio(floor, before),
                }
        return figures

    def _answered(self, unlearned: nn.Module, figures: dict[str, float], reasons: dict[str, str]) -> None:
        """Metrics of language models, of the unlearned, the original and the retrained models."""
        now, (before, after) = self.questions.ask(unlearned), self.told
        whose: dict[str, list[Told]] = {"unlearned": [now], "original": [before], "retrained": [*after]}
        for which, those in whose.items():
            for name in those[0].figures:
                figures[f"{name}/{which}"] = mean([t.figures.get(name, np.nan) for t in those])
        for which, quality in (
            ("unlearned", forget_qualities(now, after)),
            ("original", forget_qualities(before, after)),
            ("retrained", _pairwise(after)),
        ):
            if isinstance(quality, str):
                reasons[f"forget_quality/{which}"] = quality
            else:
                figures[f"forget_quality/{which}"] = quality
        reasons |= now.reasons


def _pairwise(told: Sequence[Told]) -> float | str:
    """Forget quality of each retrained model against the others, averaged."""
    found = [forget_qualities(one, [*told[:i], *told[i + 1 :]]) for i, one in enumerate(told)]
    return next((q for q in found if isinstance(q, str)), mean([q for q in found if not isinstance(q, str)]))


def _losses(subject: LanguageSubject, model: nn.Module, forget: IntArray) -> Array:
    """Mean loss of every forgotten entity: ``[n]``."""
    return entity_losses(subject, model, samples(subject, forget, 0), forget)


def _batches(subject: LanguageSubject, who: IntArray, seed: int) -> list[Batch]:
    found = subject.batches(who, batch_size=TOGETHER, per_entity=1, seed=seed)
    return [b.to(device_of(subject.model)) for b in found]


@torch.no_grad()
def _distances(
    subject: LanguageSubject,
    model: nn.Module,
    others: Sequence[nn.Module],
    batches: Sequence[Batch],
    group: str,
) -> dict[str, float]:
    """``distance/group`` -> mean over answer tokens and the other models."""
    found: dict[str, list[Any]] = {name: [] for name in DISTANCES}
    for batch in batches:
        own = log_probabilities(subject.class_scores(model, batch).float().cpu().numpy())
        for other in others:
            theirs = log_probabilities(subject.class_scores(other, batch).float().cpu().numpy())
            for name, distance in DISTANCES.items():
                found[name].append(distance(own, theirs))
    return {f"{name}/{group}": mean(np.concatenate(values)) for name, values in found.items()}


__all__ = ["LanguageYardstick"]
