"""What identifies each stage's result: pure, so that a stored score table is found without torch."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from recunlearn.data.catalogue import data_hash
from recunlearn.foundation import paths
from recunlearn.foundation.errors import CheckpointError
from recunlearn.foundation.settings import ScoreSettings
from recunlearn.foundation.store import content_hash, read_json
from recunlearn.subjects.recbole.names import family_of
from recunlearn.subjects.recbole.parameters import model_key
from recunlearn.subjects.recbole.same_data import check_same_data, check_weights

FORMAT = 2
"""Raised when the same settings would no longer make the same circuits and outcomes."""
TABLE = 4
"""Raised when the same circuits and outcomes would no longer make the same score table."""
SEQUENTIAL_BATCH = 512
"""Interactions of an unlearning step of sequential models, where no number is asked for."""
SEQUENTIAL_CAP = 20
"""Traced interactions of a user for sequential models, where no number is asked for."""


@dataclass(frozen=True)
class Keys:
    """Folders of a run's stages; every name is a content hash of what made the stage.

    Args:
        settings: with the data set and model of the checkpoint, and ``per_user`` resolved.
        model: folder of the trained model.
        circuits, probe, scores: folders below the cache.
        source: where the subject comes from: module of :mod:`recunlearn.studies.sources`.
        place: folder of the data, where it has one of its own.
        online: whether missing data and models may be fetched.
    """

    settings: Any
    model: Path
    circuits: Path
    probe: Path
    scores: Path
    source: Literal["recommender", "language"] = "recommender"
    place: Path | None = None
    online: bool = False


def keys_for(settings: ScoreSettings, checkpoint: Path | None = None) -> Keys:
    """Find the folders of a run; reads one manifest and its weights' bytes at most and imports no torch.

    Raises:
        UsageError: unknown data set, model or parameter.
        CheckpointError: ``checkpoint`` is no trained model, or its weights were altered.
    """
    if checkpoint is not None:
        manifest = read_checkpoint(checkpoint)
        check_same_data(checkpoint, manifest, settings.dataset, data_hash(settings.dataset))
        check_weights(Path(checkpoint), manifest)
        settings = settings.model_copy(update={k: manifest[k] for k in ("model", "min_rating")})
        identity: Any = [manifest["weights_hash"], manifest["data_hash"]]
        folder = Path(checkpoint)
    else:
        identity = model_key(data_hash(settings.dataset), settings)
        folder = paths.models() / f"{settings.dataset}-{settings.model}-{identity[:12]}"
    settings = _for_family(settings)
    return Keys(settings, folder, *stage_folders(settings, identity))


def stage_folders(settings: Any, identity: Any) -> tuple[Path, Path, Path]:
    """Folders of circuits, probe and scores of a model that ``identity`` identifies."""
    traced = settings.circuits.model_dump(exclude={"internal_batch"})
    common = [FORMAT, identity, settings.seed, {p: version(p) for p in ("recunlearn", "torch", "captum")}]
    hashes = {
        "circuits": content_hash(common, traced),
        "probe": content_hash(common, settings.anchors.model_dump()),
        "scores": content_hash(
            common,
            TABLE,
            traced,
            settings.anchors.model_dump(),
            settings.similarity.model_dump(),
        ),
    }
    circuits, probe, scores = (paths.cache() / name / key for name, key in hashes.items())
    return circuits, probe, scores


def _for_family(settings: ScoreSettings) -> ScoreSettings:
    """Fill in what depends on the model: sequences cost more an interaction."""
    if family_of(settings.model) != "sequential":
        return settings
    circuits, anchors = settings.circuits, settings.anchors
    if circuits.per_user is None:
        circuits = circuits.model_copy(update={"per_user": SEQUENTIAL_CAP})
    if anchors.batch_size is None:
        anchors = anchors.model_copy(update={"batch_size": SEQUENTIAL_BATCH})
    return settings.model_copy(update={"circuits": circuits, "anchors": anchors})


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """Read the manifest of a trained model's folder.

    Raises:
        CheckpointError: the folder is missing or holds no trained model.
    """
    folder = Path(folder)
    if folder.suffix == ".pth" and folder.is_file():
        raise CheckpointError(
            f"{folder} is a checkpoint of RecBole's own trainer. Import it first: import-checkpoint {folder}"
        )
    if not (folder / "manifest.json").is_file():
        raise CheckpointError(
            f"{folder} is no trained model: a folder with manifest.json, weights.safetensors and "
            f"idmap.json is expected. Models that were trained here lie in {paths.models()}."
        )
    manifest = read_json(folder / "manifest.json")
    texts = ("model", "weights_hash", "data_hash", "data")
    if (
        not isinstance(manifest, dict)
        or any(type(manifest.get(k)) is not str for k in texts)
        or type(manifest.get("min_rating", "missing")) not in (int, float, type(None))
    ):
        raise CheckpointError(
            f"{folder / 'manifest.json'} does not describe a trained recommender. Train or import it again."
        )
    return manifest
