"""retrain: the reference. Train anew without the forgotten."""

import time
from pathlib import Path
from typing import ClassVar

from torch import nn

from recunlearn.foundation.settings import Settings
from recunlearn.subjects.contract import IntArray, Subject
from recunlearn.unlearning.contract import Cost, Progress, Unlearned
from recunlearn.unlearning.loop import peak_memory
from recunlearn.unlearning.request import check_family, checked


class RetrainSettings(Settings):
    """There is nothing to set: the model's own training settings hold."""


class Retrain:
    """Same settings and number of epochs, on everybody else's samples.

    A vector that nothing trains is noise, so a forgotten entity gets the mean of all other vectors.
    """

    name: ClassVar[str] = "retrain"
    settings_type: ClassVar[type[Settings]] = RetrainSettings
    plain: ClassVar[bool] = True

    def __init__(self, settings: RetrainSettings | None = None) -> None:
        """Take settings, of which there are none."""
        self.settings = settings or RetrainSettings()

    def original(
        self, subject: Subject, *, seed: int = 0, folder: Path | None = None, progress: Progress | None = None
    ) -> nn.Module:
        """Model that retraining replaces: the subject's own."""
        return subject.model

    def cost(self, subject: Subject, forget: IntArray) -> Cost:
        """As much as the first training."""
        forget = checked(subject, forget)
        parameters, left = _count(subject.model), _interactions(subject, forget)
        return Cost(
            f"retrain trains {parameters:,} parameters anew on the {left:,} {subject.words.samples} of the "
            "others, which takes as long as the first training did.",
            parameters,
        )

    def unlearn(
        self,
        subject: Subject,
        forget: IntArray,
        *,
        seed: int = 0,
        folder: Path | None = None,
        progress: Progress | None = None,
    ) -> Unlearned:
        """Train anew; ``progress`` shows the training's own bar. Nothing is kept in ``folder``."""
        began = time.perf_counter()
        check_family(self.name, subject)
        forget = checked(subject, forget)
        trained = subject.retrain(forget, seed=seed, progress=progress is not None)
        model = subject.population_rows(trained, forget).eval()
        return Unlearned(
            model,
            self.name,
            {},
            seed,
            len(forget),
            0,
            time.perf_counter() - began,
            peak_memory(next(model.parameters()).device),
            _count(model),
        )


def _count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def _interactions(subject: Subject, forget: IntArray) -> int:
    samples = subject.n_samples()
    return int(samples.sum() - samples[forget].sum())
