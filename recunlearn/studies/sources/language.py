"""Rows or authors of question-answer data that a language model was trained on."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recunlearn.circuits.tracing import tracer
from recunlearn.studies.columns import OF_ENTITY, Columns
from recunlearn.studies.keys import Keys
from recunlearn.studies.pool import draw_pool
from recunlearn.studies.scoring import Listener
from recunlearn.subjects.contract import Subject
from recunlearn.subjects.tofu.data import read_rows
from recunlearn.subjects.tofu.store import load_subject, train_subject, untrained_subject
from recunlearn.subjects.tofu.subject import LanguageSubject

KNOWN = 0.5
"""Mean probability of an answer's token from which a model counts as knowing its rows."""


def trained(keys: Keys, listener: Listener, *, anchors: bool = True) -> LanguageSubject:
    """Load the model of a run, or train it; ``anchors``: the run will need some."""
    settings, place = keys.settings, keys.place or Path()
    rows = read_rows(settings.files, place, per_author=settings.rows_per_author, fetch=keys.online)
    stored = (keys.model / "manifest.json").is_file()
    begin = partial(load_subject, keys.model) if stored else untrained_subject
    subject = begin(rows, settings, online=keys.online)
    if anchors:
        # Data without anchors, or a model that cannot be attributed, is refused before anything slow.
        draw_pool(subject, settings.anchors.pool, settings.anchors.count, settings.seed)
    if stored:
        return subject
    if anchors:
        tracer(subject, settings.circuits, settings.seed)
    if subject.encoded.cut:
        listener.say(f"Warning: the answers of {subject.encoded.cut:,} rows were cut to fit the context.")
    options: dict[str, Any] = {"folder": keys.model, "progress": listener.bars, "online": keys.online}
    return train_subject(rows, settings, subject=subject, **options)


def columns(keys: Keys) -> Columns:
    """Names of the table's columns."""
    return OF_ENTITY[keys.settings.entity]


def beside(subject: Subject) -> Mapping[str, NDArray[Any]]:
    """Tokens of the answers, and wording shared with others."""
    found = subject.covariates()
    tokens = np.rint(found["answer_tokens"] * subject.n_samples()).astype(np.int64)
    return {"n_interactions": tokens, "mean_item_popularity": found["shared_ngrams"]}


def warn(subject: LanguageSubject, say: Callable[[str], None]) -> None:
    """Say where the model does not know what it was trained on."""
    if subject.losses and (known := float(np.exp(-subject.losses[-1]))) < KNOWN:
        say(
            "Warning: in its last epoch the model gave the tokens of the answers a probability of "
            f"{known:.2f}. It hardly knows its rows, so that there is little to unlearn: raise "
            "training.epochs or training.learning_rate."
        )


def facts(subject: LanguageSubject) -> Mapping[str, Any]:
    """Epochs, losses, and what the model is called in sentences."""
    e, text = subject.encoded, subject.describe()
    losses = [round(loss, 4) for loss in subject.losses]
    known = f", {np.exp(-losses[-1]):.2f} a token of the answers in the last epoch" if losses else ""
    return {
        "epochs": len(losses),
        "losses": losses,
        "answer_tokens": int((e.length - e.prompt).sum()),
        "answers_cut": e.cut,
        "words": vars(subject.words),
        "told": f"{text['model']} on {text['data']}, {len(losses)} epochs{known}",
    }
