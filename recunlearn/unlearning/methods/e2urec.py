"""E2URec: low-rank adapters between a forgetting and a remembering teacher (arXiv 2403.03536)."""

import copy
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from recunlearn.foundation.errors import UsageError
from recunlearn.subjects.contract import Batch, IntArray, Subject
from recunlearn.unlearning.draws import Draws, Pair
from recunlearn.unlearning.loop import Run
from recunlearn.unlearning.lora import add_adapters, merge_adapters, other_rows
from recunlearn.unlearning.stepwise import LoopSettings, Stepwise


def forgetting_teacher(original: Tensor, augmented: Tensor, strength: float) -> Tensor:
    """z_F = z_O − a · ReLU(z_A − z_O): ``[B, C], [B, C] -> [B, C]``.

    What more training on the forgotten would raise is what the model learned from them.
    """
    return original - strength * F.relu(augmented - original)


def teach(teacher: Tensor, scores: Tensor) -> Tensor:
    """CE(softmax(teacher), softmax(scores)), mean over samples: ``[B, C], [B, C] -> []``."""
    return -(teacher.softmax(1) * scores.log_softmax(1)).sum(1).mean()


class E2URecSettings(LoopSettings):
    """The paper's adapters, strength and weights; a fixed number of steps, since its teacher bounds it."""

    learning_rate: float = Field(default=5e-3, gt=0)
    """Of the adapters."""
    steps: int = Field(default=60, ge=2)
    """Most optimiser steps."""
    until: Literal["stranger", "steps"] = "steps"
    rank: int = Field(default=16, ge=1)
    """Of every adapter, lowered to the width of its weight."""
    alpha: float = Field(default=32.0, gt=0)
    """An adapter's change is multiplied by alpha / rank."""
    strength: float = Field(default=2.0, gt=0)
    """a: how far the forgetting teacher goes below the original model."""
    weight: float = Field(default=0.6, gt=0, lt=1)
    """w of remembering; 1 − w of forgetting."""
    augment_epochs: int = Field(default=10, ge=1)
    """Passes over the forgotten samples that make the augmented model."""
    augment_learning_rate: float = Field(default=5e-3, gt=0)
    """Of the augmented model."""


class _Teachers(nn.Module):
    def __init__(self, original: nn.Module, augmented: nn.Module) -> None:
        super().__init__()
        self.original, self.augmented = original, augmented


class E2URec(Stepwise):
    """L_FGT alone in the first epoch, then w (L_PRED + L_REM) + (1 − w) L_FGT; only the adapters train.

    The adapters are merged: base weights with an adapter beside them would still hold what was forgotten.
    Deviations: scores of items, [0, s] or [s_j, s_i] stand for the vocabulary; adapters lie on all linear
    layers and embedding tables, without dropout; of an entity table only the rows of the forgotten change.
    """

    name = "E2URec"
    settings_type: ClassVar = E2URecSettings

    def losses(
        self, subject: Subject, model: nn.Module, reference: nn.Module, pair: Pair
    ) -> tuple[Tensor, Tensor | None]:
        """L_FGT, and L_PRED + L_REM."""
        kept = None if pair.retain is None else self._remember(subject, model, reference, pair.retain)
        return self._forget(subject, model, reference, pair.forget), kept

    def weights(self, step: int, epoch: int) -> tuple[float, float]:
        """Forget alone in the first epoch."""
        w = self.settings.weight
        return (1.0, 0.0) if step < epoch else (1 - w, w)

    def look_from(self, epoch: int) -> int:
        """Remembering gets as many steps as forgetting alone had."""
        if self.settings.steps < 2 * epoch:
            raise UsageError(
                f"E2URec forgets alone for {epoch} steps (one epoch of the forgotten) before it remembers as "
                f"long or longer, so steps must be {2 * epoch} or more, but got {self.settings.steps}. Raise "
                "steps or batch_size."
            )
        return 2 * epoch

    def adapt(self, subject: Subject, model: nn.Module, forget: IntArray, seed: int) -> nn.Module:
        """Freeze the model and add adapters."""
        s = self.settings
        frozen = other_rows(subject, forget)
        return add_adapters(model, rank=s.rank, alpha=s.alpha, seed=seed, frozen=frozen)

    def merge(self, model: nn.Module) -> nn.Module:
        """Merge the adapters."""
        return merge_adapters(model)

    def reference(self, subject: Subject, forget: IntArray, seed: int) -> nn.Module:
        """Original model, and the one trained further on the forgotten."""
        s = self.settings
        model, steps = copy.deepcopy(subject.model).eval(), self.teacher_steps(subject, forget)
        draws = Draws(subject, forget, None, s.batch_size, seed, negatives=True)

        def losses(model: nn.Module, pair: Pair, step: int) -> tuple[Tensor, Tensor | None, Tensor]:
            loss = -subject.log_likelihood(model, pair.forget).mean()
            return loss, None, loss

        augmented = Run(model, losses, draws, steps, s.augment_learning_rate)().model
        return _Teachers(subject.model, augmented.requires_grad_(False))

    def teacher_steps(self, subject: Subject, forget: IntArray) -> int:
        """Steps of the augmented model."""
        epoch = -(-int(subject.n_samples()[forget].sum()) // self.settings.batch_size)
        return self.settings.augment_epochs * epoch

    def stand_in(self, subject: Subject) -> nn.Module:
        """Two models to read."""
        return _Teachers(subject.model, subject.model)

    def _forget(self, subject: Subject, model: nn.Module, teachers: nn.Module, batch: Batch) -> Tensor:
        with torch.no_grad():
            original = subject.class_scores(teachers.get_submodule("original"), batch)
            augmented = subject.class_scores(teachers.get_submodule("augmented"), batch)
        teacher = forgetting_teacher(original, augmented, self.settings.strength)
        return teach(teacher, subject.class_scores(model, batch))

    def _remember(self, subject: Subject, model: nn.Module, teachers: nn.Module, batch: Batch) -> Tensor:
        with torch.no_grad():
            teacher = teachers.get_submodule("original")
            original = subject.class_scores(teacher, batch)
        column = subject.predictions(batch).column
        # The model is read once for both losses: log softmax of its scores is the log-likelihood.
        scores = subject.class_scores(model, batch)
        predicted = -scores.log_softmax(1).gather(1, column[:, None]).mean()
        return predicted + teach(original, scores)
