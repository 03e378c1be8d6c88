"""Import of a checkpoint that RecBole's own trainer wrote, if it scores on our data as it did there."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recunlearn.data.interactions import Interactions
from recunlearn.evaluation.ranking import RANKING_METRICS
from recunlearn.foundation.errors import CheckpointError
from recunlearn.foundation.store import file_hash
from recunlearn.subjects.recbole.as_written import FEATURE_ORDERS, ORDER_KEY, bundle_as_written
from recunlearn.subjects.recbole.bundle import Bundle
from recunlearn.subjects.recbole.compat import build_model, importing, init_seed
from recunlearn.subjects.recbole.evaluation import evaluate, popularity
from recunlearn.subjects.recbole.ranking import RankingTask, labelled_metrics
from recunlearn.subjects.recbole.store import save_subject
from recunlearn.subjects.recbole.subject import RecBoleSubject
from recunlearn.subjects.recbole.unpickler import Inert, read_checkpoint_file

LABEL_METRICS = ("auc", "logloss")
_MAX_EPOCHS = 1_000_000
_NO_MODEL = (
    "{file} holds no trained model of RecBole: config, epoch, state_dict and best_valid_score are expected, "
    "as its trainer saves them."
)
_FINEST = 1e-5
"""Scores are compared no closer than this: the last digits depend on threads and processor."""


def import_checkpoint(
    file: Path,
    interactions: Interactions,
    *,
    folder: Path,
    trust_pickle: bool = False,
    device: str = "cpu",
) -> RecBoleSubject:
    """Read ``file``, check it against ``interactions`` and save it into ``folder`` as our own checkpoint.

    Args:
        file: what ``torch.save`` in RecBole's trainer wrote.
        interactions: the data set that the model was trained on, rows in the order of the original file.
        folder: where the model is saved.
        trust_pickle: unpickle without restriction; only for files you wrote yourself.
        device: "cpu" or "cuda[:n]".

    Raises:
        CheckpointError: a broken or refused file, other data, or another validation score than stored.
        UsageError: a model that this program does not know.
    """
    content = _content(file, _trusted(file) if trust_pickle else read_checkpoint_file(file))
    bundle, model, checked = _accepted(content, interactions, file, device)
    facts = {**bundle.facts, "imported": {"file": file.name, "file_hash": file_hash(file), **checked}}
    bundle = replace(bundle, facts=facts)
    phases = ("valid", "test")
    subject = RecBoleSubject(
        bundle,
        model,
        epochs=content["epoch"] + 1,
        metrics={p: evaluate(bundle, model, p) for p in phases},
        popularity_metrics={p: popularity(bundle, p) for p in phases},
        weights_hash="",
    )
    save_subject(subject, folder)
    return subject


def _accepted(
    content: Mapping[str, Any], interactions: Interactions, file: Path, device: str
) -> tuple[Bundle, nn.Module, dict[str, Any]]:
    """Data, model and score in the order of feature rows under which the stored score comes out again.

    Raises:
        CheckpointError: it comes out under none.
    """
    refusals = []
    for order in FEATURE_ORDERS:
        settings = {**content["settings"], ORDER_KEY: order}
        bundle = bundle_as_written(interactions, settings, device=device)
        init_seed(bundle.config["seed"], reproducibility=True)
        model = build_model(bundle.config, bundle.train).eval()
        try:
            _load_weights(model, content["state_dict"], file, interactions.name)
            return bundle, model, _check_score(bundle, model, content, file)
        except CheckpointError as refusal:
            refusals.append(refusal)
        if bundle.train.user_feat is None and bundle.train.item_feat is None:
            break
    raise refusals[0]


def _trusted(file: Path) -> Any:
    """Unpickle by torch itself: the file may run any code."""
    try:
        with importing():
            return torch.load(file, map_location="cpu", weights_only=False)
    except FileNotFoundError:
        raise CheckpointError(
            f"{file} does not exist. Name the .pth file that RecBole's trainer wrote."
        ) from None
    except Exception as error:
        first = (str(error).splitlines() or ["no further text"])[0]
        raise CheckpointError(
            f"{file} cannot be read by torch.load ({type(error).__name__}: {first}). "
            "If a class is missing, make its module importable, or leave out --trust-pickle."
        ) from None


def _content(file: Path, loaded: Any) -> dict[str, Any]:
    """Settings, weights, epoch and score of a loaded checkpoint."""
    found = loaded if isinstance(loaded, dict) else {}
    config = found.get("config")
    settings = (
        config.get("final_config_dict")
        if isinstance(config, Inert)
        else getattr(config, "final_config_dict", None)
    )
    state, epoch, score = (found.get(k) for k in ("state_dict", "epoch", "best_valid_score"))
    if not isinstance(settings, dict) or not isinstance(state, dict):
        raise CheckpointError(_NO_MODEL.format(file=file))
    if type(epoch) is not int or not -1 <= epoch < _MAX_EPOCHS:
        raise CheckpointError(_NO_MODEL.format(file=file))
    if not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in state.items()):
        raise CheckpointError(_NO_MODEL.format(file=file))
    return {
        "settings": settings,
        "state_dict": state,
        "epoch": epoch,
        "score": score.item() if isinstance(score, np.number) else score,
    }


def _load_weights(model: nn.Module, state: Mapping[str, Tensor], file: Path, name: str) -> None:
    """Fill the model.

    ``other_parameter`` is left out: trainable models keep caches there, or modules whose weights are here.
    """
    ours = model.state_dict()
    for key, value in state.items():
        if key in ours and ours[key].shape != value.shape:
            raise CheckpointError(
                f"{file} was trained on other data than '{name}': its table {key} has the shape "
                f"{list(value.shape)}, but this data set gives {list(ours[key].shape)}. Name the data set "
                "that it was trained on, with the same columns and in the same order of rows."
            )
    differing = sorted(set(ours) ^ set(state))
    if differing:
        raise CheckpointError(
            f"{file} does not fit its model: {differing[0]} is "
            f"{'missing from the file' if differing[0] in ours else 'unknown to the installed RecBole'}."
        )
    model.load_state_dict(dict(state))


def _check_score(bundle: Bundle, model: nn.Module, content: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Evaluate again and compare.

    Raises:
        CheckpointError: no stored score, one that cannot be repeated, or another value.
    """
    stored = content["score"]
    metric = str(bundle.config["valid_metric"]).lower()
    places = bundle.config["metric_decimal_place"]
    if type(stored) not in (int, float) or not -1e6 < stored < 1e6:
        raise CheckpointError(
            f"{file} was saved without validation, so nothing shows that it belongs to "
            f"'{bundle.facts['data']}'. Train with validation data, or train here."
        )
    got = _score(bundle, model, metric, file)
    tolerance = max(10.0 ** -(4 if places is None else places), _FINEST)
    if not abs(got - stored) <= tolerance * 1.001:
        raise CheckpointError(
            f"{file} is not accepted: its stored validation score {metric} is {stored:.6g}, but on "
            f"'{bundle.facts['data']}' it scores {got:.6g}. The data set has other rows, another order of "
            "rows or other columns than the one it was trained on, or the weights were altered."
        )
    return {"valid_metric": metric, "stored": float(stored), "got": got}


def _score(bundle: Bundle, model: nn.Module, metric: str, file: Path) -> float:
    mode = bundle.config["eval_args"]["mode"]["valid"]
    name, _, k = metric.partition("@")
    if mode == "labeled" and metric in LABEL_METRICS:
        return labelled_metrics(model, bundle.valid)[metric]
    if mode == "full" and name in RANKING_METRICS and k.isdigit() and int(k) > 0:
        task = RankingTask(bundle.train, bundle.valid, bundle.test)
        return task.evaluate(model, [int(k)])[metric]
    raise CheckpointError(
        f"{file} was validated by {metric} in mode '{mode}', which cannot be repeated here (random "
        f"negatives, or a metric other than {', '.join(RANKING_METRICS)} at k in mode 'full' and "
        f"{', '.join(LABEL_METRICS)} in mode 'labeled'). Train again with one of these as valid_metric, or "
        "train here."
    )
