"""Settings of a run on a language model; imports no torch."""

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from recunlearn.foundation.settings import AnchorSettings, CircuitSettings, Settings, SimilaritySettings
from recunlearn.foundation.words import Words


class TextSettings(Settings):
    """How a row becomes tokens."""

    prompt: str = "Question: {question}\nAnswer:"
    """What stands before the answer; ``{question}`` is replaced."""
    chat: bool = False
    """Use the tokenizer's chat template instead of ``prompt``."""
    max_length: int | None = Field(None, ge=4)
    """Most tokens of a row; None: what the model's context holds."""
    too_long: Literal["refuse", "truncate"] = "refuse"
    """What to do with longer rows: refuse them all (with their number), or cut the end of the answer."""

    @field_validator("prompt")
    @classmethod
    def _asks(cls, prompt: str) -> str:
        if "{question}" not in prompt:
            raise ValueError("The prompt must contain {question}")
        return prompt


class LanguageTrainingSettings(Settings):
    """How a language model is fine-tuned, or trained from the start."""

    epochs: int = Field(5, ge=1, le=10_000)
    """Passes over the rows."""
    learning_rate: float = Field(1e-5, gt=0)
    """AdamW's."""
    weight_decay: float = Field(0.01, ge=0)
    """AdamW's."""
    batch_size: int = Field(8, ge=1)
    """Rows computed at once: lower it when memory is short."""
    accumulate: int = Field(4, ge=1)
    """Batches of a step; their rows count alike, also where the last step of an epoch has fewer."""
    clip: float | None = Field(1.0, gt=0)
    """Largest norm of the gradient; None: any."""
    precision: Literal["auto", "float32", "bf16"] = "auto"
    """``auto``: bf16 on a GPU that has it; on a processor that has it where asked. Weights stay float32."""
    lora: int | None = Field(None, ge=1)
    """Rank of adapters on all linear layers, merged after training; None: all weights train."""
    lora_alpha: float = Field(32.0, gt=0)
    """An adapter's change is multiplied by alpha / rank."""


class LanguageCircuitSettings(CircuitSettings):
    """Circuits of a transformer: embedding, heads and MLPs."""

    steps: int = Field(5, ge=2, le=512)
    baseline: Literal["mean", "zero", "counterfactual"] = "counterfactual"
    granularity: Literal["module", "group", "head", "unit"] = "head"
    attention: Literal["whole", "apart"] = "whole"
    """Whether a layer's attention reads the residual stream as one sink, or query, key and value apart."""


class LanguageAnchorSettings(AnchorSettings):
    """A step unlearns rows, not thousands of interactions."""

    pool: int = Field(default=100, ge=10)
    learning_rate: float = Field(default=1e-5, gt=0)
    batch_size: int | None = Field(default=16, ge=1)


class LanguageMetricSettings(Settings):
    """What a model is asked beside its own rows; a name is TOFU's, or a file, with or without ``[:200]``."""

    perturbed: tuple[str, ...] = ()
    """Files with a paraphrased and several wrong answers to questions of the rows, for the truth ratio."""
    real_authors: str | None = None
    """File of questions that have nothing to do with the rows, with wrong answers."""
    world_facts: str | None = None
    """The same, of another kind."""
    holdout: str | None = None
    """File of rows like the forgotten ones that no model was trained on, for membership inference."""
    retain: int = Field(400, ge=1)
    """Most of the kept rows that are asked."""
    written: int = Field(100, ge=0)
    """Most rows of a kind whose answers the model writes, for ROUGE-L; 0: none."""
    new_tokens: int = Field(200, ge=1)
    """Most tokens of a written answer."""


class LanguageSettings(Settings):
    """One run of ``tofu score``."""

    files: tuple[str, ...] = Field(("forget10",), min_length=1)
    """Files of rows: TOFU's names, or files; ``NAME[:200]`` takes the first 200 rows."""
    entity: Literal["row", "author"] = "row"
    """Whom scores are given to."""
    rows_per_author: int = Field(20, ge=1)
    """Rows of an author, where rows do not name theirs."""
    model: str | None = Field(None, min_length=1)
    """Folder, GGUF file or name on the hub of the model to fine-tune; None: a new one of ``architecture``."""
    architecture: dict[str, Any] = Field(default_factory=dict)
    """Configuration of a new model by transformers' names, with ``model_type`` (``llama``, ``gpt2``, ...)."""
    tokenizer: str | None = Field(None, min_length=1)
    """Folder or name of a tokenizer; None: the model's own, or (new models) one trained on the rows."""
    vocabulary: int = Field(1000, ge=300, le=1_000_000)
    """Most tokens of a tokenizer trained on the rows."""
    seed: int = Field(0, ge=0, lt=2**31)
    device: str = "auto"
    threads: int | None = Field(None, ge=1, le=256)
    """Threads of torch in training and probe; None: one, so that figures repeat. Tracing uses every core."""
    text: TextSettings = TextSettings()
    training: LanguageTrainingSettings = LanguageTrainingSettings()
    circuits: LanguageCircuitSettings = LanguageCircuitSettings()
    anchors: LanguageAnchorSettings = LanguageAnchorSettings()
    similarity: SimilaritySettings = SimilaritySettings()

    @property
    def words(self) -> Words:
        """Rows or authors, and their answers."""
        who = (self.entity, f"{self.entity}s")
        return Words(*who, "answers", "answer tokens", "answer length and shared wording")

    @property
    def dataset(self) -> str:
        """Name that results are stored under."""
        return ", ".join(self.files)

    @field_validator("device")
    @classmethod
    def _known_device(cls, device: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,4})?", device):
            raise ValueError("Allowed are auto, cpu, cuda, cuda:0, cuda:1, ...")
        return device

    @model_validator(mode="after")
    def _one_model(self) -> "LanguageSettings":
        if (self.model is None) == (not self.architecture):
            raise ValueError("Give either a model (--model) or an [architecture] of a new one")
        if self.architecture and "model_type" not in self.architecture:
            raise ValueError("The [architecture] needs a model_type, such as 'llama'")
        return self
