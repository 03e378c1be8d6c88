"""Scores and log-likelihoods of any RecBole model through its own ``predict`` and ``full_sort_predict``."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from recunlearn.subjects.recbole.compat import Interaction, quiet

_SIGMOIDS = frozenset({torch.sigmoid, torch.Tensor.sigmoid, torch.special.expit, functional.sigmoid})
_VIEWS = frozenset(
    {
        torch.squeeze,
        torch.Tensor.squeeze,
        torch.Tensor.view,
        torch.Tensor.reshape,
        torch.reshape,
        torch.flatten,
    }
)


_GIVE_PROBABILITIES = frozenset({"RepeatNet"})
"""Models whose ``full_sort_predict`` returns the softmax instead of its logits."""


class _Predicting(TorchFunctionMode):
    """Remembers what went into a sigmoid, and does not repeat an embedding look-up of the same ids.

    ``predict`` of NeuMF, DeepFM and kin ends in a sigmoid; the logarithm of its output would lose digits, so
    its input is the score. Pairs share the user's look-up as they do in RecBole's own loss.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[tuple[Tensor, Tensor]] = []
        self._seen: list[tuple[Any, Any, Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.embedding:
            return self._embedding(func, args, kwargs)
        out = func(*args, **kwargs)
        if func in _SIGMOIDS:
            self.inputs.append((out, args[0]))
        elif func in _VIEWS and (before := self.before_sigmoid(args[0])) is not args[0]:
            self.inputs.append((out, func(before, *args[1:], **kwargs)))
        return out

    def _embedding(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        for ids, weight, out in self._seen:
            if args[0] is ids and args[1] is weight:
                return out
        found: Tensor = func(*args, **kwargs)
        self._seen.append((args[0], args[1], found))
        return found

    def before_sigmoid(self, value: Tensor) -> Tensor:
        """Return the input of the sigmoid that made ``value``, else ``value``."""
        return next((given for out, given in reversed(self.inputs) if out is value), value)


@contextmanager
def _one_forward(model: nn.Module) -> Iterator[None]:
    """Run ``forward`` once for the same inputs: graphs are propagated, sequences encoded once a pair."""
    original: Any = model.forward
    known: list[tuple[Any, Any]] = []

    def forward(*args: Any) -> Any:
        for given, out in known:
            if len(given) == len(args) and all(a is b for a, b in zip(given, args, strict=True)):
                return out
        out = original(*args)
        known.append((args, out))
        return out

    with replaced(model, "forward", forward):
        yield


@contextmanager
def replaced(model: nn.Module, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Let a model call ``function`` where its own code says ``self.name``."""
    before = model.__dict__.get(name)
    model.__dict__[name] = function
    try:
        yield
    finally:
        if before is None:
            del model.__dict__[name]
        else:
            model.__dict__[name] = before


def clear_caches(model: nn.Module) -> None:
    """Drop the embeddings that graph models keep between evaluations: they do not follow changed weights."""
    for name in getattr(model, "other_parameter_name", ()):
        if name.startswith("restore_"):
            setattr(model, name, None)


def signed_scores(model: nn.Module, columns: Mapping[str, Tensor]) -> Tensor:
    """``[B]`` raw score, negated where the label is 0 (pointwise)."""
    score = _predict_pair(model, (columns,))[0]
    label = columns.get("label")
    return score if label is None else torch.where(label > 0, score, -score)


def pair_scores(model: nn.Module, columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """``[B]`` score of the item and ``[B]`` score of the negative."""
    other = {**columns, **{k.removeprefix("neg_"): v for k, v in columns.items() if _is_negative(k, columns)}}
    clear_caches(model)
    with _one_forward(model):
        positive, negative = _predict_pair(model, (columns, other))
    clear_caches(model)
    return positive, negative


def all_scores(model: Any, columns: Mapping[str, Tensor]) -> Tensor:
    """``[B, n_items]`` logits over all items (softmax models)."""
    with quiet():
        scores: Tensor = model.full_sort_predict(Interaction(dict(columns))).reshape(
            len(columns["item_id"]), -1
        )
    if type(model).__name__ in _GIVE_PROBABILITIES:
        return scores.clamp_min(torch.finfo(scores.dtype).tiny).log()
    return scores


def log_likelihood(objective: str, model: nn.Module, columns: Mapping[str, Tensor]) -> Tensor:
    """``[B]``: log sigma(±s), log sigma(s_i - s_j) or log softmax(s)_i."""
    if objective == "softmax":
        scores = all_scores(model, columns).log_softmax(-1)
        return scores.gather(1, columns["item_id"][:, None]).squeeze(1)
    if objective == "pairwise":
        positive, negative = pair_scores(model, columns)
        return functional.logsigmoid(positive - negative)
    return functional.logsigmoid(signed_scores(model, columns))


def class_scores(objective: str, model: nn.Module, columns: Mapping[str, Tensor]) -> Tensor:
    """``[B, C]`` logits: all items, ``[s_j, s_i]``, or ``[0, ±s]``."""
    if objective == "softmax":
        return all_scores(model, columns)
    if objective == "pairwise":
        positive, negative = pair_scores(model, columns)
        return torch.stack([negative, positive], dim=1)
    score = signed_scores(model, columns)
    return torch.stack([torch.zeros_like(score), score], dim=1)


def raw_scores(model: nn.Module, columns: Mapping[str, Tensor]) -> Tensor:
    """``[B]`` score of each row's item, before a final sigmoid."""
    return _predict_pair(model, (columns,))[0]


def gives_probabilities(model: nn.Module, columns: Mapping[str, Tensor]) -> str:
    """Tell what ``predict`` and ``full_sort_predict`` end in: "sigmoid", "softmax" or "" (plain scores)."""
    if type(model).__name__ in _GIVE_PROBABILITIES:
        return "softmax"
    predict: Any = model.predict
    try:
        with torch.no_grad(), quiet():
            plain = predict(Interaction(dict(columns))).reshape(-1)
            raw = raw_scores(model, columns).reshape(-1)
    except NotImplementedError:
        return ""
    return "sigmoid" if not torch.equal(plain, raw) and torch.allclose(raw.sigmoid(), plain) else ""


def predicted(model: Any, interaction: Any) -> Tensor:
    """What ``predict`` returns, before a final sigmoid."""
    with _Predicting() as mode:
        return mode.before_sigmoid(model.predict(interaction))


def _predict_pair(model: Any, rows: tuple[Mapping[str, Tensor], ...]) -> list[Tensor]:
    predict: Callable[[Any], Tensor] = model.predict
    with quiet(), _Predicting() as mode:
        return [mode.before_sigmoid(predict(Interaction(dict(columns)))) for columns in rows]


def _is_negative(name: str, columns: Mapping[str, Tensor]) -> bool:
    return name.startswith("neg_") and name.removeprefix("neg_") in columns and not name.endswith("_list")
