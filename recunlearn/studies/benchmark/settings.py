"""What a benchmark runs: one TOML file."""

from typing import Any

from pydantic import Field, field_validator

from recunlearn.foundation.settings import (
    AnchorSettings,
    CircuitSettings,
    ScoreSettings,
    Settings,
    SimilaritySettings,
    TrainingSettings,
)

SETS = ("easy", "hard", "random", "core", "edge")


class Block(Settings):
    """Cells of one model: everything named here with everything else named here."""

    methods: tuple[str, ...] = ()
    """Unlearning methods; none named: every known one."""
    sets: tuple[str, ...] = Field(default=SETS, min_length=1)
    """Strata of the forget sets."""
    draws: int = Field(default=1, ge=1, le=100)
    """Sets of each stratum."""
    seeds: int = Field(default=1, ge=1, le=100)
    """Trainings of the original model, each with unlearning runs of its own."""

    @field_validator("models", "methods", "sets", check_fields=False)
    @classmethod
    def _each_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) < len(names):
            raise ValueError("Name each once")
        return names


class Grid(Block):
    """One block of cells of several models."""

    models: tuple[str, ...] = Field(default=("NeuMF",), min_length=1)
    """RecBole models."""


class Trials(Settings):
    """What every benchmark needs to know, whatever is unlearned."""

    fraction: float = Field(default=0.05, gt=0, lt=1)
    """Share of the users (rows of a language model) in every forget set."""
    matched: bool = True
    """Whether sets have equal interaction counts (tokens of answers)."""
    references: int = Field(default=3, ge=2, le=100)
    """Models retrained without each forget set, shared by all methods."""
    trials: int = Field(default=5, ge=1, le=50)
    """Settings tried for every method that takes steps: weights of the forget loss, learning rates."""
    most_steps: int = Field(default=300, ge=1)
    """Most steps of a trial, and so of a budget."""
    methods: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of single methods that differ from their defaults."""


class BenchmarkSettings(Trials):
    """One benchmark on recommenders."""

    dataset: str = "ml-100k"
    min_rating: float | None = None
    """Ratings below are no positives; None: every rating is one."""
    seed: int = Field(default=0, ge=0, lt=2**30)
    """First seed; the k-th training has ``seed + k``."""
    membership: int = Field(default=8, ge=0, le=256)
    """Reference models of membership inference, an even number; 0: none."""
    fold_in_steps: int = Field(default=80, ge=1)
    """Steps that fit the vectors of forgotten users anew (docs/metrics/forgetting.md)."""
    training: TrainingSettings = TrainingSettings()
    """Training of every model."""
    models: dict[str, TrainingSettings] = Field(default_factory=dict)
    """Training of single models instead."""
    circuits: CircuitSettings = CircuitSettings()
    anchors: AnchorSettings = AnchorSettings()
    similarity: SimilaritySettings = SimilaritySettings()
    grid: tuple[Grid, ...] = Field(default=(Grid(),), min_length=1)
    """Blocks of cells; a cell that is in two of them is run once."""

    @field_validator("membership")
    @classmethod
    def _even(cls, count: int) -> int:
        if count and (count < 8 or count % 2):
            raise ValueError("Membership inference needs 0, or an even number of 8 or more")
        return count

    def scored(self, model: str) -> ScoreSettings:
        """Run of ``score-users`` that gives the first trained model and the difficulty of its users."""
        return ScoreSettings(
            dataset=self.dataset,
            model=model,
            seed=self.seed,
            min_rating=self.min_rating,
            device="cpu",
            training=self.models.get(model, self.training),
            circuits=self.circuits,
            anchors=self.anchors,
            similarity=self.similarity,
        )
