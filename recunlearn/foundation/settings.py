"""Typed settings of every stage, from TOML files and options; unknown keys are refused with a near miss."""

import re
import tomllib
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from recunlearn.foundation.errors import UsageError, near_miss

METHODS: tuple[str, ...] = ("GradAscent", "GradDiff", "NPO", "SimNPO", "UNDIAL")


class Settings(BaseModel):
    """Base of all settings: frozen, no unknown keys, no infinite numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TrainingSettings(Settings):
    """How a recommender is trained."""

    params: dict[str, Any] = Field(default_factory=dict)
    """RecBole parameters by name (``embedding_size``, ``learning_rate``, ...)."""
    epochs: int | None = Field(None, ge=1, le=10_000)
    """Most epochs; None: the default of the model's family (see docs/guide)."""
    patience: int = Field(5, ge=1)
    """Evaluations without a better validation score before training stops."""


class CircuitSettings(Settings):
    """How circuits are attributed."""

    score: Literal["eap-ig", "conductance"] = "eap-ig"
    """Edge score."""
    steps: int = Field(16, ge=2, le=512)
    """Points on the path from baseline to actual."""
    path: Literal["chunked", "captum"] = "chunked"
    """``chunked``: own loop; ``captum``: Captum's IntegratedGradients drives the same integrand."""
    baseline: Literal["mean", "zero", "counterfactual"] = "mean"
    """Where the path starts: population mean per table, zeros, or another entity's vectors."""
    granularity: Literal["module", "group", "head", "unit"] = "group"
    """What is apart in a source of edges: nothing, ``groups`` parts, fields and heads, every dimension."""
    sinks: Literal["module", "group", "head", "unit"] = "module"
    """What is apart in a sink of edges; every part costs a backward segment of its own."""
    groups: int | None = Field(None, ge=1)
    """Groups each source's dimensions are split into; None: 32, or more until a circuit has 100 edges."""
    per_user: int | None = Field(None, ge=1)
    """Most traced interactions of a user; None: all (sequential models: 20)."""
    internal_batch: int | None = Field(None, ge=1)
    """Samples whose whole path is computed at once; None: what fits. Bounds the memory, changes no figure."""


class AnchorSettings(Settings):
    """How the easy and hard anchors are found."""

    source: Literal["probe", "bilevel"] = "probe"
    """``probe``: unlearn a pool, keep its stable ends; ``bilevel``: worst-case weights (arXiv 2403.07362)."""
    outcome: Literal["increase", "share-left", "level"] = "increase"
    """What counts as forgotten: docs/metrics/outcomes.md."""
    pool: int = Field(default=300, ge=10)
    """Probed users (at most half of all users)."""
    count: int = Field(default=20, ge=1)
    """Anchors on each side (at most half of the pool)."""
    methods: tuple[str, ...] = Field(default=METHODS, min_length=1)
    """Unlearning methods that vote, each once."""
    seeds: int = Field(default=2, ge=1)
    """Unlearning runs of each method."""
    retrain_seeds: int = Field(default=2, ge=2)
    """Retrained models: the reference of the budgets and the noise."""
    stability: float = Field(default=0.5, ge=0, le=1)
    """Share of each half of the ranking, the most stable over methods and seeds, that anchors come from."""
    learning_rate: float = Field(default=3e-4, gt=0)
    """Adam's learning rate when unlearning the pool; raised where ``most_steps`` do not suffice."""
    most_steps: int = Field(default=160, ge=20)
    """Most unlearning steps of a method."""
    batch_size: int | None = Field(default=None, ge=1)
    """Interactions of the pool (and as many of the others) in a step; None: 2,048, sequential models 512."""

    @field_validator("methods")
    @classmethod
    def _each_once(cls, methods: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(methods)) < len(methods):
            raise ValueError("Each method votes once")
        return methods


class SimilaritySettings(Settings):
    """How circuits are compared."""

    preset: Literal["default", "paper"] = "default"
    """``paper``: clamped cosine of raw edges to the mean anchor circuit, as in arXiv 2601.09624."""
    measure: Literal["cosine", "jaccard", "hamming"] = "cosine"
    """Similarity of two circuits."""
    reference: Literal["single", "mean"] = "single"
    """``single``: mean similarity to single anchors; ``mean``: similarity to the mean anchor circuit."""
    edges: Literal["whitened", "standardised", "raw"] = "whitened"
    """Edge values: standardised over users and decorrelated, standardised only, or raw."""
    cosine_range: Literal["mapped", "clamped"] = "mapped"
    """Cosine into [0, 1]: (1 + cos) / 2, or max(0, cos)."""
    top_fraction: float = Field(default=0.25, gt=0, le=1)
    """Edges of a binary circuit (Jaccard, Hamming)."""
    ranking: Literal["signed", "absolute"] = "absolute"
    """Order in which the top edges are taken (Jaccard, Hamming)."""
    ties: float = Field(default=0.5, ge=0, le=1)
    """CUD where both distances vanish or a circuit is zero."""


class ScoreSettings(Settings):
    """One run of ``score-users``."""

    dataset: str = "ml-100k"
    model: str = "NeuMF"
    seed: int = Field(0, ge=0, lt=2**31)
    min_rating: float | None = None
    """Ratings below are no positives; None: every rating is one."""
    device: str = "auto"
    threads: int | None = Field(None, ge=1, le=256)
    """Threads of torch in training and probe; None: one, so that figures repeat. Tracing uses every core."""
    training: TrainingSettings = TrainingSettings()
    circuits: CircuitSettings = CircuitSettings()
    anchors: AnchorSettings = AnchorSettings()
    similarity: SimilaritySettings = SimilaritySettings()

    @field_validator("device")
    @classmethod
    def _known_device(cls, device: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,4})?", device):
            raise ValueError("Allowed are auto, cpu, cuda, cuda:0, cuda:1, ...")
        return device


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; mistakes name the file and the place."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UsageError(
            f"The settings file {path} does not exist. Check the path given to --config."
        ) from None
    except OSError as error:
        raise UsageError(f"The settings file {path} cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"The settings file {path} is not valid TOML: {error}.") from None


S = TypeVar("S", bound=Settings)


def make_settings(kind: type[S], values: dict[str, Any], where: str) -> S:
    """Validate ``values``; the first mistake becomes one sentence that names ``where``."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise UsageError(_sentence(kind, error.errors()[0], where)) from None


def _sentence(kind: type[Settings], problem: Any, where: str) -> str:
    place = ".".join(str(p) for p in problem["loc"])
    if problem["type"] == "extra_forbidden":
        allowed = _fields(kind, problem["loc"][:-1])
        hint = near_miss(str(problem["loc"][-1]), allowed)
        names = ", ".join(sorted(allowed)) or "none"
        return f"Unknown setting '{place}' in {where}.{hint} Allowed here: {names}."
    # TOML has lists, which become tuples.
    says = problem["msg"].removeprefix("Value error, ").replace("tuple", "list").replace("Tuple", "List")
    if not place:
        return f"The settings in {where} cannot be used: {says}."
    hint = ""
    if problem["type"] == "literal_error":
        hint = near_miss(str(problem["input"]), re.findall(r"'([^']*)'", problem["ctx"]["expected"]))
    return f"Setting '{place}' in {where}: {says}, but got {problem['input']!r}.{hint}"


def _fields(kind: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    """Names of the settings at a place, also inside tuples and tables of settings (``grid.0``)."""
    at: Any = kind
    for part in path:
        if isinstance(at, type) and issubclass(at, BaseModel):
            at = at.model_fields[part].annotation
        else:
            inner = [a for a in get_args(at) if isinstance(a, type) and issubclass(a, BaseModel)]
            at = inner[0] if inner else None
    return list(at.model_fields) if isinstance(at, type) and issubclass(at, BaseModel) else []
