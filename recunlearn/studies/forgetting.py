"""One request: forget the listed users of a trained recommender, measure what came of it, write the model."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from recunlearn.data.catalogue import load_interactions
from recunlearn.evaluation.forgetting import cold_items
from recunlearn.foundation import paths
from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.store import content_hash, read_json
from recunlearn.studies.keys import Keys
from recunlearn.studies.scoring import Listener
from recunlearn.studies.threads import threads
from recunlearn.subjects.contract import IntArray
from recunlearn.subjects.recbole.evaluation import evaluate, per_user
from recunlearn.subjects.recbole.store import load_subject, save_subject, train_subject
from recunlearn.subjects.recbole.subject import RecBoleSubject
from recunlearn.unlearning import Unlearned, Unlearner
from recunlearn.unlearning.goal import MeanLoss
from recunlearn.unlearning.request import rest_of

MEASURED_USERS, MEASURED_SAMPLES = 1000, 50
"""Users, and interactions of each, whose mean loss is told."""
LOG = "metrics.csv"


@dataclass(frozen=True)
class Forgotten:
    """What one request did.

    Args:
        facts: method, settings, cost, steps, seconds, cold items: plain values without a user's id.
        losses: "forgotten" and "others" -> mean loss "before" and "after".
        ranking: figure of the others on the test part -> "before" and "after".
        folder: of the new checkpoint.
    """

    facts: Mapping[str, Any]
    losses: Mapping[str, Mapping[str, float]]
    ranking: Mapping[str, Mapping[str, float]]
    folder: Path


def forget_users(
    keys: Keys,
    users: Sequence[str],
    method: Unlearner,
    *,
    out: Path | None = None,
    listener: Listener | None = None,
) -> Forgotten:
    """Forget ``users``, all of them known to the data set, and write the unlearned checkpoint.

    Args:
        keys: the run whose model is unlearned; it is trained where it is not there yet.
        users: external ids.
        method: with its settings.
        out: folder of the new checkpoint; None: among the models.
        listener: told the cost beforehand, and the steps.

    Raises:
        UsageError: a user is not in the model, or the method cannot forget them.
    """
    with threads(keys.settings.threads or 1):
        return _forget(keys, users, method, out, listener or Listener())


def _forget(
    keys: Keys, users: Sequence[str], method: Unlearner, out: Path | None, listener: Listener
) -> Forgotten:
    if not method.plain:
        raise UsageError(
            f"{method.name} forgets from several models at once, which one checkpoint cannot hold. Name "
            "another method."
        )
    subject = _trained(keys, listener)
    forget = _rows(subject, users)
    listener.say(method.cost(subject, forget).sentence)
    cold = len(cold_items(*subject.interactions(), forget, len(subject.items)))
    if cold:
        listener.say(
            f"Of {cold:,} item{'s' * (cold > 1)} the model knows these users' interactions only; cold items "
            "keep their numbers and can still be recommended."
        )
    folder = out or _default_folder(keys, subject, forget, method)
    # One folder for all requests: what a method needs beside the model (shards) is made once.
    work = paths.models() / f"{keys.model.name}-{method.name}.work"
    original = method.original(subject, seed=keys.settings.seed, folder=work, progress=_progress(listener))
    found = method.unlearn(
        subject, forget, seed=keys.settings.seed, folder=work, progress=_progress(listener)
    )
    _warn(found, method.name, listener)
    told = _measured(subject, forget, original, found)
    facts = {**found.facts(), "cold_items": cold}
    _save(subject, found, {**facts, **told}, folder, work)
    return Forgotten(facts, told["losses"], told["ranking"], folder)


def check_out(out: Path, checkpoint: Path | None) -> None:
    """Refuse a folder for the new checkpoint that holds something else, or the original model."""
    if checkpoint is not None and out.resolve() == Path(checkpoint).resolve():
        raise UsageError(
            f"--out {out} is the folder of the original model, which would be lost. Name another."
        )
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or _is_unlearned(out))):
        raise UsageError(f"{out} exists and holds no unlearned model. Name another folder with --out.")


def _is_unlearned(folder: Path) -> bool:
    manifest = folder / "manifest.json"
    return manifest.is_file() and "unlearning" in dict(read_json(manifest).get("history") or {})


def _trained(keys: Keys, listener: Listener) -> RecBoleSubject:
    interactions = load_interactions(keys.settings.dataset)
    if (keys.model / "manifest.json").is_file():
        return load_subject(keys.model, interactions, device=keys.settings.device)
    return train_subject(interactions, keys.settings, folder=keys.model, progress=listener.bars)


def _rows(subject: RecBoleSubject, users: Sequence[str]) -> IntArray:
    place = {user: row for row, user in enumerate(subject.entities.tolist())}
    absent = sum(user not in place for user in users)
    if absent:
        raise UsageError(
            f"{absent} of the {len(users)} users to forget are not in the model: the minimum rating leaves "
            "them without an interaction. Take them off the list."
        )
    return np.array([place[user] for user in users], dtype=np.int64)


def _default_folder(keys: Keys, subject: RecBoleSubject, forget: IntArray, method: Unlearner) -> Path:
    settings = method.settings.model_dump(mode="json")
    key = content_hash(dict(subject.describe()), subject.entities[forget], settings, keys.settings.seed)
    return paths.models() / f"{keys.settings.dataset}-{keys.settings.model}-{method.name}-{key[:12]}"


def _progress(listener: Listener) -> Callable[[str, int, int], None]:
    advance: list[Callable[[int], None]] = []
    before = [0]

    def progress(title: str, done: int, total: int) -> None:
        if not advance:
            advance.append(listener.stage(title, total))
        advance[0](done - before[0])
        before[0] = done

    return progress


def _warn(found: Unlearned, name: str, listener: Listener) -> None:
    if found.diverged:
        listener.say(
            f"Warning: the loss of {name} stopped being a number after {found.steps} steps, so the model is "
            "the last good state. Lower learning_rate, or set clip."
        )
    elif found.reached is False:
        listener.say(
            f"Warning: {name} did not bring the loss of the forgotten to its target within {found.steps} "
            f"steps: it went from {found.start:.2f} to {found.history['level'][-1]:.2f}, and the target is "
            f"{found.target:.2f}, as strangers have or as target says (the rule looks at some interactions, "
            "the table below at more). Raise steps or learning_rate, or name another method."
        )


def _measured(
    subject: RecBoleSubject, forget: IntArray, original: nn.Module, found: Unlearned
) -> dict[str, dict[str, dict[str, float]]]:
    others = rest_of(subject, forget)
    models = {"before": original, "after": found.model}
    losses, ranking = {}, {}
    for name, who in (("forgotten", forget), ("others", others)):
        loss = MeanLoss(subject, who, 0, users=MEASURED_USERS, samples=MEASURED_SAMPLES)
        losses[name] = {when: loss(model) for when, model in models.items()}
    figures = {when: per_user(subject.bundle, model) for when, model in models.items()}
    for name in figures["after"]:
        ranking[name] = {when: float(np.nanmean(f[name][others])) for when, f in figures.items()}
    return {"losses": losses, "ranking": ranking}


def _save(
    subject: RecBoleSubject, found: Unlearned, told: Mapping[str, Any], folder: Path, work: Path
) -> None:
    """Write the checkpoint with the log beside it; no id of a forgotten user stands in it."""
    bundle = subject.bundle
    unlearned = RecBoleSubject(
        bundle,
        found.model,
        epochs=subject.epochs,
        metrics={phase: evaluate(bundle, found.model, phase) for phase in ("valid", "test")},
        popularity_metrics=subject.popularity_metrics,
        weights_hash="",
    )
    save_subject(unlearned, folder, history={"unlearning": dict(told)})
    if (work / LOG).is_file():
        shutil.move(work / LOG, folder / LOG)
    if work.is_dir() and not any(work.iterdir()):
        work.rmdir()
