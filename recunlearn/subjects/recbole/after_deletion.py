"""A model on its data after users were deleted: others keep their numbers, the deleted leave tombstones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recunlearn.data.interactions import Interactions
from recunlearn.data.tombstones import is_tombstone, tombstone
from recunlearn.subjects.recbole.as_written import SPLIT, bundle_as_written
from recunlearn.subjects.recbole.bundle import Bundle, make_bundle
from recunlearn.subjects.recbole.evaluation import evaluate, popularity
from recunlearn.subjects.recbole.kept_split import labels_of
from recunlearn.subjects.recbole.scoring import clear_caches
from recunlearn.subjects.recbole.store import settings_of
from recunlearn.subjects.recbole.subject import RecBoleSubject
from recunlearn.subjects.recbole.training import prepare
from recunlearn.subjects.recbole.vectors import bundle_of

PHASES = ("valid", "test")
_OF_ITEMS = "item_id"


def after_deletion(
    subject: RecBoleSubject,
    model: nn.Module,
    interactions: Interactions,
    *,
    phases: Sequence[str] = PHASES,
) -> RecBoleSubject:
    """Model that has unlearned, as a subject of the data without the deleted; save it by ``save_subject``.

    Ids of deleted users, and values of user features that nobody else has, become tombstones in the id map,
    and their rows the mean over the rows of the others: nothing of the person is left but a number.

    Args:
        subject: the model before, on the data before.
        model: the unlearned model, of the subject's form or plain tables.
        interactions: the data after the deletion, as :func:`recunlearn.data.tombstones.survivors` returns.
        phases: parts that the model is evaluated on, which takes most of the time; figures of others are left
            empty.

    An imported model keeps the parts that RecBole's random split gave to the rows that are left.
    """
    bundle = _bundle_after(bundle_of(subject.bundle, model), interactions)
    fresh, _ = prepare(bundle)
    fresh.load_state_dict(model.state_dict())
    made = RecBoleSubject(
        bundle, fresh, epochs=subject.epochs, metrics={}, popularity_metrics={}, weights_hash=""
    )
    _reset_rows(made)
    made.metrics = {p: evaluate(bundle, made.model, p) if p in phases else {} for p in PHASES}
    made.popularity_metrics = {p: popularity(bundle, p) if p in phases else {} for p in PHASES}
    return made


def _bundle_after(before: Bundle, interactions: Interactions) -> Bundle:
    device, numbers = str(before.config["device"]), _numbers_after(before, interactions)
    if before.facts["split"] != SPLIT:
        settings = settings_of({**before.facts, "data": interactions.name})
        return make_bundle(interactions, settings, device=device, numbers=numbers)
    made = bundle_as_written(
        interactions,
        before.config.final_config_dict,
        device=device,
        labels=labels_of(before, interactions),
        numbers=numbers,
    )
    return replace(made, facts={**made.facts, "imported": before.facts["imported"]})


def _numbers_after(before: Bundle, interactions: Interactions) -> dict[str, list[str]]:
    """Tokens by number; those that went with the deleted are tombstones."""
    alive = {"user_id": set(interactions.users.tolist()), **_user_tokens(interactions)}
    return {
        column: [
            token
            if column not in alive or token in alive[column] or is_tombstone(token)
            else tombstone(number)
            for number, token in enumerate(tokens, 1)
        ]
        for column, tokens in before.numbers.items()
    }


def _user_tokens(interactions: Interactions) -> dict[str, set[str]]:
    table = interactions.user_features
    if table is None:
        return {}
    found: dict[str, set[str]] = {}
    for column in table.columns[1:]:
        texts = table[column].astype(str)
        sequence = interactions.feature_types.get(column) == "token_seq"
        # RecBole gives the empty text a number of its own, whether anybody has it or not.
        found[column] = {"", *(t for text in texts for t in (text.split() if sequence else [text]))}
    return found


def _reset_rows(subject: RecBoleSubject) -> None:
    """Give rows of tombstones the mean of the others' rows in every table that has one."""
    model: Any = subject.model
    state: Mapping[str, Tensor] = dict(model.named_parameters())
    for column, tokens in subject.bundle.numbers.items():
        gone = np.array([is_tombstone(token) for token in tokens])
        if column == _OF_ITEMS or not gone.any():
            continue
        dead = torch.from_numpy(gone)
        for name, offset in _tables(subject, column, len(tokens), state).items():
            with torch.no_grad():
                rows = state[name][offset + 1 : offset + 1 + len(tokens)]
                place = dead.to(rows.device)
                rows[place] = rows[~place].mean(0) if not gone.all() else 0.0
    clear_caches(model)


def _tables(subject: RecBoleSubject, column: str, count: int, state: Mapping[str, Tensor]) -> dict[str, int]:
    """Parameters with a row for each token of a column -> row of number 0."""
    found = dict(subject.tables(subject.model, column))
    named = {name: offset for name, offset in found.items() if name is not None}
    if None in found or (not named and column == "user_id"):
        # A graph model reads what it computed; what it computes from has a row for each user.
        named |= {n: 0 for n, p in state.items() if p.dim() == 2 and len(p) == count + 1 and "user" in n}
    return named
