"""Weights under another numbering of users, items and feature values: tables lose and move rows."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recunlearn.foundation.errors import CheckpointError

Numbers = Mapping[str, Sequence[str]]
_JOINT = re.compile(r"(.*?)token_embedding_table\.embedding\.weight$")
_SEQUENCE = re.compile(r"(.*?)token_seq_embedding_table\.(\d+)\.weight$")
_IDS = {"user": "user_id", "item": "item_id"}


def renumbered(old: nn.Module, new: nn.Module, before: Numbers, after: Numbers) -> dict[str, Tensor]:
    """Weights of ``old`` in the places where ``new`` has them.

    Args:
        old: model of the numbering ``before``.
        new: freshly made model of the numbering ``after``.
        before, after: column -> tokens by number from 1; every token of ``after`` is in ``before``.

    Raises:
        CheckpointError: a table whose rows cannot be told.
    """
    rows = {column: _rows(before[column], after[column]) for column in after}
    shapes = {name: tuple(value.shape) for name, value in new.state_dict().items()}
    moved = {name: _moved(name, value, old, before, rows) for name, value in old.state_dict().items()}
    for name, value in moved.items():
        if tuple(value.shape) != shapes.get(name):
            raise CheckpointError(
                f"The rows of {name} in {type(old).__name__} cannot be told, so the model cannot leave with "
                "other numbers. Train it again on the data as they are now."
            )
    return moved


def _rows(before: Sequence[str], after: Sequence[str]) -> Tensor:
    """Old row of each new number, padding first: ``[len(after) + 1]``."""
    place = {token: number for number, token in enumerate(before, 1)}
    return torch.tensor([0, *(place[token] for token in after)])


def _moved(name: str, value: Tensor, model: nn.Module, before: Numbers, rows: Mapping[str, Tensor]) -> Tensor:
    if found := _JOINT.match(name):
        owner = _owner(model, found[1])
        sizes = [len(before[column]) + 1 for column in owner.token_field_names]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        pieces = [rows[c] + int(s) for c, s in zip(owner.token_field_names, starts, strict=True)]
        return value[torch.cat(pieces)]
    if found := _SEQUENCE.match(name):
        return value[rows[_owner(model, found[1]).token_seq_field_names[int(found[2])]]]
    column = _column(name, value, before)
    return value if column is None else value[rows[column]]


def _owner(model: nn.Module, prefix: str) -> Any:
    return model.get_submodule(prefix.rstrip("."))


def _column(name: str, value: Tensor, before: Numbers) -> str | None:
    """Column whose tokens have a row each in a table of a general or sequential model."""
    fitting = [c for c in _IDS.values() if value.dim() and len(value) == len(before[c]) + 1]
    if len(fitting) < 2:
        return fitting[0] if fitting else None
    return next((column for word, column in _IDS.items() if word in name.casefold()), None)
