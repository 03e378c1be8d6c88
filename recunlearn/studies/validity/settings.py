"""What a validity study runs: one TOML file."""

from pydantic import Field, field_validator

from recunlearn.foundation.settings import (
    AnchorSettings,
    CircuitSettings,
    ScoreSettings,
    Settings,
    SimilaritySettings,
    TrainingSettings,
)


class ValiditySettings(Settings):
    """One study."""

    dataset: str = "ml-100k"
    models: tuple[str, ...] = Field(default=("NeuMF",), min_length=1)
    """RecBole models, each studied by itself."""
    min_rating: float | None = None
    """Ratings below are no positives; None: every rating is one."""
    seed: int = Field(default=0, ge=0, lt=2**30)
    """First seed; the k-th training has ``seed + k``."""
    seeds: int = Field(default=3, ge=1, le=100)
    """Trainings, each with circuits and unlearning runs of its own."""
    folds: int = Field(default=5, ge=2, le=50)
    """Parts of the users; each is unlearned once and scored from the outcomes of the others."""
    distances: bool = True
    """Whether distributions and fold-in losses are measured too, beside losses."""
    competitors: tuple[str, ...] | None = None
    """Competing scores; None: every known one."""
    variants: tuple[str, ...] | None = None
    """Axes along which the score is computed in other ways too (robustness); None: every one."""
    draws: int = Field(default=500, ge=0, le=100_000)
    """Bootstrap draws of users."""
    training: TrainingSettings = TrainingSettings()
    circuits: CircuitSettings = CircuitSettings()
    anchors: AnchorSettings = AnchorSettings()
    similarity: SimilaritySettings = SimilaritySettings()

    @field_validator("models", "competitors", "variants")
    @classmethod
    def _each_once(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names is not None and len(set(names)) < len(names):
            raise ValueError("Name each once")
        return names

    @field_validator("anchors")
    @classmethod
    def _probed(cls, anchors: AnchorSettings) -> AnchorSettings:
        if anchors.source != "probe":
            raise ValueError(
                "Here the source of anchors must be 'probe', as they are chosen from the other folds; "
                "those of a bilevel search are compared along the axis 'anchors' of variants"
            )
        return anchors

    def scored(self, model: str, number: int) -> ScoreSettings:
        """Run of ``score-users`` whose model and circuits the k-th training of a model shares."""
        return ScoreSettings(
            dataset=self.dataset,
            model=model,
            seed=self.seed + number,
            min_rating=self.min_rating,
            device="cpu",
            training=self.training,
            circuits=self.circuits,
            anchors=self.anchors,
            similarity=self.similarity,
        )
