"""What a benchmark on a language model runs: one TOML file."""

from pathlib import Path
from typing import Any

from pydantic import Field

from recunlearn.studies.benchmark.settings import Block, Trials
from recunlearn.subjects.tofu.settings import LanguageMetricSettings, LanguageSettings

METHODS = ("GradAscent", "GradDiff", "NPO", "SimNPO", "UNDIAL")
SETS = ("easy", "hard", "random")


class TextBlock(Block):
    """One block of cells."""

    methods: tuple[str, ...] = Field(default=METHODS, min_length=1)
    """Unlearning methods."""
    sets: tuple[str, ...] = Field(default=SETS, min_length=1)
    """Strata of the forget sets."""


class LanguageBenchmarkSettings(Trials, LanguageSettings):
    """A run of ``tofu score``, and what is unlearned from its model."""

    seed: int = Field(default=0, ge=0, lt=2**30)
    """First seed; the k-th training has ``seed + k``."""
    references: int = Field(default=2, ge=2, le=100)
    """Models retrained without each forget set, shared by all methods."""
    unlearning: dict[str, Any] = Field(default_factory=lambda: {"batch_size": 16, "learning_rate": 1e-5})
    """Settings of all methods that take steps; those of a method go over them."""
    metrics: LanguageMetricSettings = LanguageMetricSettings()
    grid: tuple[TextBlock, ...] = Field(default=(TextBlock(),), min_length=1)
    """Blocks of cells; a cell that is in two of them is run once."""

    @property
    def membership(self) -> int:
        """No reference models: rows that no model saw stand in for them (``metrics.holdout``)."""
        return 0

    @property
    def name(self) -> str:
        """What tables call the model."""
        return str(self.architecture["model_type"]) if self.model is None else Path(self.model).name

    def scored(self) -> LanguageSettings:
        """Run of ``tofu score`` that gives the first trained model and the difficulty of its rows."""
        return LanguageSettings.model_validate(self.model_dump(include=set(LanguageSettings.model_fields)))
