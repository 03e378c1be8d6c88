"""Users of a recommender trained by RecBole's rules."""

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from recunlearn.circuits.tracing import tracer
from recunlearn.data.catalogue import load_interactions
from recunlearn.studies.columns import USERS, Columns
from recunlearn.studies.keys import Keys
from recunlearn.studies.pool import draw_pool
from recunlearn.studies.scoring import Listener
from recunlearn.subjects.contract import Subject
from recunlearn.subjects.recbole.store import load_subject, train_subject, untrained_subject
from recunlearn.subjects.recbole.subject import RecBoleSubject


def trained(keys: Keys, listener: Listener, *, anchors: bool = True) -> RecBoleSubject:
    """Load the model of a run, or train it; ``anchors``: the run will need some."""
    settings = keys.settings
    interactions = load_interactions(settings.dataset)
    if (keys.model / "manifest.json").is_file():
        return load_subject(keys.model, interactions, device=settings.device)
    # A model that cannot be attributed, or data without anchors, is refused before the training, not after.
    untrained = untrained_subject(interactions, settings)
    engine = tracer(untrained, settings.circuits, settings.seed)
    engine.attribute(next(untrained.batches(batch_size=32, seed=settings.seed)))
    if anchors:
        draw_pool(untrained, settings.anchors.pool, settings.anchors.count, settings.seed)
    return train_subject(interactions, settings, folder=keys.model, progress=listener.bars)


def columns(keys: Keys) -> Columns:
    """Names of the table's columns."""
    return USERS


def beside(subject: Subject) -> Mapping[str, NDArray[Any]]:
    """Activity, and popularity of the items."""
    popularity = subject.covariates()["mean_item_popularity"]
    return {"n_interactions": subject.n_samples(), "mean_item_popularity": popularity}


def warn(subject: RecBoleSubject, say: Callable[[str], None]) -> None:
    """Say where popularity does as well."""
    if not subject.beats_popularity():
        name = subject.main_metric
        ours, theirs = subject.metrics["test"][name], subject.popularity_metrics["test"][name]
        say(
            f"Warning: the model does not beat the popularity baseline ({name} {ours:.4f} against "
            f"{theirs:.4f}). Its circuits say little about users: train it longer or choose another model."
        )


def facts(subject: RecBoleSubject) -> Mapping[str, Any]:
    """Epochs and metrics."""
    return {
        "epochs": subject.epochs,
        "metrics": {k: dict(v) for k, v in subject.metrics.items()},
        "popularity_metrics": {k: dict(v) for k, v in subject.popularity_metrics.items()},
    }
