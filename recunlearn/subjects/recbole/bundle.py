"""One model's settings together with its data sets: what training, scoring and evaluation share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from recunlearn.data.interactions import Interactions
from recunlearn.data.splits import positives, split_interactions
from recunlearn.foundation.errors import CheckpointError, DataError, UsageError
from recunlearn.foundation.settings import ScoreSettings
from recunlearn.subjects.recbole.compat import (
    AUTO_ENCODERS,
    InputType,
    ModelType,
    SafeConfig,
    init_seed,
    make_config,
)
from recunlearn.subjects.recbole.dataset import Tables, build_splits, make_dataset, numbers_of
from recunlearn.subjects.recbole.defaults import BIG_BATCH, BIG_DATA
from recunlearn.subjects.recbole.names import family_of
from recunlearn.subjects.recbole.parameters import epochs_of, recbole_defaults, resolve

LABEL_THRESHOLD = 4.0
"""Ratings from here on are label 1 for context-aware models (RecBole's choice for ml-100k)."""

KS = (10, 20)
STORED = "stored"
"""Kind of numbering in manifests of models whose data have lost users since they were trained."""


@dataclass(frozen=True)
class Bundle:
    """Settings and data sets of one model.

    Args:
        config: RecBole's settings.
        train, valid, test: RecBole's data sets, each with ``rows``.
        users, items: external ids in the order of the internal numbers from 1.
        time: ``[n]`` time of every interaction, in the order that ``rows`` counts, or None.
        labelled: rows carry their own label 0/1 (context-aware models on data with ratings).
        objective: "pointwise", "pairwise" or "softmax".
        facts: plain values that identify data and settings.
        labels: ``[rows of the data]`` part of each row, -1 for none, where it is kept and not drawn (imported
            models whose data have lost users); else None.
        tasks: prepared rankings by phase, filled when first asked for.
    """

    config: SafeConfig
    train: Any
    valid: Any
    test: Any
    users: NDArray[np.str_]
    items: NDArray[np.str_]
    time: NDArray[np.float64] | None
    labelled: bool
    objective: str
    facts: Mapping[str, Any]
    labels: NDArray[np.int8] | None = None
    tasks: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def numbers(self) -> dict[str, list[str]]:
        """Every token column -> its tokens in the order of their numbers from 1."""
        return numbers_of(self.train)

    def without(self, keep: NDArray[np.bool_]) -> "Bundle":
        """Copy whose training part holds the rows of ``keep`` only: ``[n_train]`` bool; the id map stays."""
        rows = np.flatnonzero(keep)
        part = self.train.part(self.train.__getitem__(rows, join=False), self.train.rows[rows])
        return replace(self, train=part, tasks={})


def make_bundle(
    interactions: Interactions,
    settings: ScoreSettings,
    *,
    device: str = "cpu",
    numbers: Mapping[str, Sequence[str]] | None = None,
) -> Bundle:
    """Prepare data and settings of ``settings.model``.

    Args:
        interactions: the data.
        settings: of the model.
        device: "cpu" or "cuda[:n]".
        numbers: column -> tokens in the order of their numbers, as the model was trained with them; None:
            in order of appearance.

    Raises:
        UsageError: unknown model or parameter.
        DataError: the data lack columns that the model needs.
        CheckpointError: the data have tokens without a number.
    """
    family = family_of(settings.model)
    params = resolve(settings.model, settings.training.params)
    if len(interactions) >= BIG_DATA and "train_batch_size" not in settings.training.params:
        params["train_batch_size"] = BIG_BATCH
    labelled = family == "context-aware" and interactions.rating is not None
    data = interactions if labelled else positives(interactions, settings.min_rating)
    _check_columns(settings.model, family, params, data)
    kind = "leave-one-out" if family == "sequential" else "ratio"
    tables = _tables(data, settings, family, params, labelled, kind, numbers or {})
    values = _values(settings, family, params, labelled, device)
    config = make_config(settings.model, interactions.name, values)
    init_seed(settings.seed, reproducibility=True)
    dataset = make_dataset(config, tables)
    check_numbers(interactions.name, dataset, numbers or {})
    train, valid, test = build_splits(dataset)
    if not len(train):
        raise DataError(f"No interaction of '{interactions.name}' is left for training {settings.model}.")
    return Bundle(
        config=config,
        train=train,
        valid=valid,
        test=test,
        users=np.asarray(dataset.field2id_token["user_id"][1:], dtype=str),
        items=np.asarray(dataset.field2id_token["item_id"][1:], dtype=str),
        time=data.time,
        labelled=labelled,
        objective=objective_of(config),
        facts={
            **_facts(interactions, settings, params, kind, labelled),
            **({} if numbers is None else {"numbering": STORED}),
        },
    )


def check_numbers(name: str, dataset: Any, numbers: Mapping[str, Sequence[str]]) -> None:
    """Refuse data with tokens that a model has no number for."""
    for column, tokens in numbers.items():
        found = len(dataset.field2id_token[column]) - 1
        if found != len(tokens):
            raise CheckpointError(
                f"The data set '{name}' has {found - len(tokens)} values of {column} that the model has no "
                "number for. Name the data that the model belongs to."
            )


def _check_columns(model: str, family: str, params: Mapping[str, Any], data: Interactions) -> None:
    if family == "sequential" and data.time is None:
        raise DataError(
            f"The sequential model {model} needs the order of interactions, but '{data.name}' has "
            "no time column. Import it again with --time-col, or use a general model such as NeuMF."
        )
    wanted = {**recbole_defaults(model), **params}.get("selected_features")
    if wanted:
        present = [] if data.item_features is None else list(data.item_features.columns[1:])
        missing = [w for w in wanted if w not in present]
        if missing:
            raise DataError(
                f"The model {model} needs the item feature columns {', '.join(missing)}, but '{data.name}' "
                f"has {', '.join(present) or 'none'}. Add them, or name others with selected_features."
            )


def _tables(
    data: Interactions,
    settings: ScoreSettings,
    family: str,
    params: Mapping[str, Any],
    labelled: bool,
    kind: Any,
    numbers: Mapping[str, Sequence[str]],
) -> Tables:
    inter = pd.DataFrame(
        {"user_id": data.users.astype(object)[data.user], "item_id": data.items.astype(object)[data.item]}
    )
    types = dict(data.feature_types)
    if labelled and data.rating is not None:
        inter["label"] = _labels(data, settings)
        types["label"] = "float"
    split = split_interactions(data, kind, seed=settings.seed)
    known = {**recbole_defaults(settings.model), **params}
    selected = known.get("selected_features")
    use_features = family == "context-aware" or settings.model in ("DIN", "DIEN") or selected
    numerical = set(known.get("numerical_features") or ())
    user, item = (
        _features(table, types, numerical, params, side, selected, numbers) if use_features else None
        for side, table in (("user", data.user_features), ("item", data.item_features))
    )
    types |= {"user_id": "token", "item_id": "token"}
    return Tables(inter, split, data.time, user, item, types, numbers)


def _labels(data: Interactions, settings: ScoreSettings) -> NDArray[np.float64]:
    rating = np.asarray(data.rating, dtype=np.float64)
    threshold = LABEL_THRESHOLD if settings.min_rating is None else settings.min_rating
    labels = (rating >= threshold).astype(np.float64)
    if labels.min() == labels.max():
        raise UsageError(
            f"{settings.model} learns to tell ratings from {threshold:g} on from lower ones, but all of "
            f"'{data.name}' are on one side: they lie in [{rating.min():g}, {rating.max():g}]. "
            "Choose another --min-rating."
        )
    return labels


def _features(
    table: pd.DataFrame | None,
    types: Mapping[str, str],
    numerical: set[str],
    params: Mapping[str, Any],
    side: str,
    selected: Any,
    numbers: Mapping[str, Sequence[str]],
) -> pd.DataFrame | None:
    """Columns that a model reads: named ones, else tokens that entities share (no titles, no zip codes)."""
    if table is None:
        return None
    chosen = (params.get("load_col") or {}).get(side)
    names = [
        c
        for c in table.columns[1:]
        if (c in chosen if chosen else _is_shared(table, c, types, numerical, selected, numbers))
    ]
    return table[[table.columns[0], *names]].reset_index(drop=True) if names else None


def _is_shared(
    table: pd.DataFrame,
    name: str,
    types: Mapping[str, str],
    numerical: set[str],
    selected: Any,
    numbers: Mapping[str, Sequence[str]],
) -> bool:
    if selected:
        return name in selected
    if types.get(name, "token").startswith("float"):
        return name in numerical
    if numbers:
        return name in numbers
    tokens = table[name].astype(str)
    if types.get(name) == "token_seq":
        tokens = tokens.str.split().explode()
    return bool(tokens.nunique() <= len(table) / 2)


def _values(
    settings: ScoreSettings, family: str, params: Mapping[str, Any], labelled: bool, device: str
) -> dict[str, Any]:
    known = {**recbole_defaults(settings.model), **params}
    ranking = {
        "eval_args": {
            "split": {"LS": "valid_and_test"} if family == "sequential" else {"RS": [0.8, 0.1, 0.1]},
            "order": "TO" if family == "sequential" else "RO",
            "group_by": "user",
            "mode": "full",
        },
        "metrics": ["Recall", "MRR", "NDCG", "Hit", "Precision"],
        "valid_metric": "NDCG@10",
        "topk": list(KS),
        "train_neg_sample_args": known["train_neg_sample_args"],
    }
    return {
        **{k: v for k, v in params.items() if k != "load_col"},
        **({} if labelled else ranking),
        "load_col": None,
        "normalize_all": None,
        "seed": settings.seed,
        "epochs": epochs_of(settings),
        "stopping_step": settings.training.patience,
        "benchmark_filename": None if family == "sequential" else ["train", "valid", "test"],
        "user_inter_num_interval": None,
        "item_inter_num_interval": None,
        "device": device,
        "show_progress": False,
    }


def objective_of(config: SafeConfig) -> str:
    """Return the objective that RecBole trains a model on: "pointwise", "pairwise" or "softmax"."""
    if config["model"] in AUTO_ENCODERS:
        return "pointwise" if config["model"] in ("CDAE", "ENMF") else "softmax"
    if config["MODEL_TYPE"] == ModelType.SEQUENTIAL and config["loss_type"] in ("CE", "NLL"):
        return "softmax"
    return "pairwise" if config["MODEL_INPUT_TYPE"] == InputType.PAIRWISE else "pointwise"


def _facts(
    interactions: Interactions, settings: ScoreSettings, params: Mapping[str, Any], kind: str, labelled: bool
) -> dict[str, Any]:
    rating = LABEL_THRESHOLD if labelled and settings.min_rating is None else settings.min_rating
    return {
        "model": settings.model,
        "family": family_of(settings.model),
        "params": dict(params),
        "epochs": epochs_of(settings),
        "patience": settings.training.patience,
        "seed": settings.seed,
        "min_rating": settings.min_rating,
        "positives": "every interaction" if rating is None else f"rating >= {rating:g}",
        "labelled": labelled,
        "split": "the data's own" if interactions.split is not None else kind,
        "data": interactions.name,
        "data_hash": interactions.hash,
    }
