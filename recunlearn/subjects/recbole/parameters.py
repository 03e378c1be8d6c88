"""Parameters of a run: RecBole's own defaults, ours that fit two cores, and the user's; imports no torch."""

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from recunlearn.foundation.errors import UsageError, near_miss
from recunlearn.foundation.settings import ScoreSettings
from recunlearn.foundation.store import content_hash
from recunlearn.subjects.recbole.defaults import CONTROLLED, DEFAULTS, EPOCHS, FAMILY_DEFAULTS, FAMILY_EPOCHS
from recunlearn.subjects.recbole.names import family_of, recbole_folder

FORMAT = 1
"""Raised when the same settings would no longer make the same model."""


_CLIPPING = {"max_norm", "norm_type"}
_LEAST = {"weight_decay": 0, "MAX_ITEM_LIST_LENGTH": 1, "eval_step": 1}


class _Loader(yaml.SafeLoader):
    """Reads 1e-05 as a number, as RecBole does."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*\.\d*([eE][-+]?\d+)?|\d[\d_]*[eE][-+]?\d+|\.\d+([eE][-+]?\d+)?)$"),
    list("-+0123456789."),
)


@cache
def _file(name: str) -> Mapping[str, Any]:
    path = recbole_folder() / "properties" / name
    return (yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader) or {}) if path.is_file() else {}


def recbole_defaults(model: str) -> dict[str, Any]:
    """RecBole's own values: overall, data set and model files, the later over the earlier."""
    return {**_file("overall.yaml"), **_file("dataset/sample.yaml"), **_file(f"model/{model}.yaml")}


def resolve(model: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return every parameter that differs from RecBole's files: our defaults, then ``params``.

    Raises:
        UsageError: unknown model or parameter (with the near miss), a value of another type, or a parameter
            that this program sets itself.
    """
    known = recbole_defaults(model)
    family = family_of(model)
    for name, value in params.items():
        _check(model, name, value, known)
    ours = {**FAMILY_DEFAULTS[family], **DEFAULTS.get(model, {})}
    if {**known, **params}.get("loss_type") == "BPR" and family == "sequential":
        ours["train_neg_sample_args"] = known["train_neg_sample_args"]
    return {**{k: v for k, v in ours.items() if k in known}, **params}


def _check(model: str, name: str, value: Any, known: Mapping[str, Any]) -> None:
    if name in CONTROLLED:
        raise UsageError(f"The parameter '{name}' is not passed to RecBole: {CONTROLLED[name]}.")
    if name not in known:
        own = sorted(_file(f"model/{model}.yaml"))
        raise UsageError(
            f"Unknown parameter '{name}' of {model}.{near_miss(name, known)} "
            f"Its own parameters are: {', '.join(own) or 'none'}; "
            "of training: learning_rate, train_batch_size, weight_decay, learner, ..."
        )
    if not _same_kind(value, known[name]):
        raise UsageError(
            f"The parameter '{name}' of {model} must be {_kind(known[name])} such as {known[name]!r}, "
            f"but got {value!r}."
        )
    if needed := _out_of_range(name, value, known[name]):
        raise UsageError(f"The parameter '{name}' of {model} must {needed}, but got {value!r}.")


def _out_of_range(name: str, value: Any, default: Any) -> str | None:
    """Say what ``value`` must be where RecBole or torch would stop in the middle of a run, or change it."""
    if name == "train_neg_sample_args" and value is not None:
        return _out_of_sampling(value, default)
    if name == "clip_grad_norm" and value is not None:
        return _out_of_clipping(value)
    numbers = [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, int | float)]
    if not all(map(math.isfinite, numbers)):
        return "be finite"
    if name == "learning_rate" and value <= 0:
        return "be above 0"
    least = 1 if name.endswith(("_size", "_sizes")) else _LEAST.get(name, -math.inf)
    return f"be {least} or more" if any(v < least for v in numbers) else None


def _out_of_sampling(value: Mapping[str, Any], default: Any) -> str | None:
    known = default or _file("overall.yaml")["train_neg_sample_args"]
    if any(k not in known or not _same_kind(v, known[k]) for k, v in value.items()):
        return f"be a table such as {known}"
    if value.get("distribution", "uniform") not in ("uniform", "popularity", "none"):
        return "have the distribution uniform, popularity or none"
    return "have a sample_num of 1 or more" if value.get("sample_num", 1) < 1 else None


def _out_of_clipping(value: Any) -> str | None:
    fine = isinstance(value, Mapping) and value.get("max_norm") is not None and set(value) <= _CLIPPING
    if not fine or not all(_is_positive(v) for v in value.values()):
        return "be a table such as {max_norm=5, norm_type=2} with numbers above 0"
    return None


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _same_kind(value: Any, default: Any) -> bool:
    if default is None:
        return True
    if value is None:
        return isinstance(default, dict)
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    if isinstance(default, float):
        return isinstance(value, int | float)
    if isinstance(default, list):
        return isinstance(value, list) and (not default or all(_same_kind(v, default[0]) for v in value))
    return isinstance(value, type(default))


def _kind(default: Any) -> str:
    names = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "a table",
    }
    return names[type(default)]


def epochs_of(settings: ScoreSettings) -> int:
    """Most epochs of a run: the user's, else the model's, else the family's default."""
    if settings.training.epochs is not None:
        return settings.training.epochs
    return EPOCHS.get(settings.model, FAMILY_EPOCHS[family_of(settings.model)])


def model_key(data_hash: str, settings: ScoreSettings) -> str:
    """Content hash of everything that makes the trained model; needs no torch.

    The device and the number of threads are no part of it: they change the last digits only.
    """
    params = {**recbole_defaults(settings.model), **resolve(settings.model, settings.training.params)}
    training = {"epochs": epochs_of(settings), "patience": settings.training.patience}
    return content_hash(
        FORMAT, data_hash, settings.model, params, training, settings.seed, settings.min_rating
    )
