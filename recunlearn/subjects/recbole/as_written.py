"""A data set prepared by RecBole's own filters, order and split, from the settings in its checkpoint."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from recunlearn.data.interactions import Interactions
from recunlearn.data.splits import take_rows
from recunlearn.foundation.errors import CheckpointError
from recunlearn.subjects.recbole.bundle import STORED, Bundle, check_numbers, objective_of
from recunlearn.subjects.recbole.compat import (
    Dataset,
    Interaction,
    dataset_base,
    init_seed,
    make_config,
    quiet,
)
from recunlearn.subjects.recbole.dataset import InMemory, Tables, class_of
from recunlearn.subjects.recbole.kept_split import inter_columns, without_filters
from recunlearn.subjects.recbole.names import family_of

SPLIT = "recbole"
"""Kind of split in manifests of imported models: RecBole's, by the stored settings and seed."""

ORDER_KEY = "feature_rows"
FEATURE_ORDERS = ("by first interaction", "by id")
"""Orders that rows of a feature file may have had: RecBole numbers feature values by it and keeps no file."""

_ROW = "recunlearn_row"
_FIELDS = {
    "USER_ID_FIELD": "user_id",
    "ITEM_ID_FIELD": "item_id",
    "RATING_FIELD": "rating",
    "TIME_FIELD": "timestamp",
    "LABEL_FIELD": "label",
}
_NAMING_FIELDS = ("load_col", "unload_col", "threshold", "val_interval", "numerical_features")
_OURS: dict[str, Any] = {
    "use_pretrain": False,
    "preload_weight": None,
    "additional_feat_suffix": None,
    "worker": 0,
    "show_progress": False,
    "enable_amp": False,
}
_FOREIGN = ("path", "dir", "device", "gpu", "wandb", "dataset", "config", "save")
_MAX_DEPTH, _MAX_SIZE = 10, 10_000
_UNFIT = (ValueError, KeyError, TypeError, IndexError, AttributeError, NotImplementedError, AssertionError)


def plain_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain settings without places on the writer's disk, with fields by our names."""
    kept = {k: v for k, v in values.items() if _is_plain(v) and not any(w in k.lower() for w in _FOREIGN)}
    names = {str(kept[k]): ours for k, ours in _FIELDS.items() if kept.get(k)}
    renamed = {k: _rename(kept[k], names) for k in _NAMING_FIELDS if k in kept}
    # RecBole writes "no negatives" differently from how it reads it.
    sampling = kept.get("train_neg_sample_args") or {}
    if sampling.get("distribution") == "none":
        renamed["train_neg_sample_args"] = None
    return {**kept, **renamed, **_FIELDS, **{k: v for k, v in _OURS.items() if k in kept}}


def bundle_as_written(
    interactions: Interactions,
    settings: Mapping[str, Any],
    *,
    device: str = "cpu",
    labels: NDArray[np.int8] | None = None,
    numbers: Mapping[str, Sequence[str]] | None = None,
) -> Bundle:
    """Prepare data and model settings as RecBole would with ``settings``.

    Args:
        interactions: the data set, rows in the order of the original file.
        settings: ``final_config_dict`` of a RecBole configuration; ``feature_rows`` is one of
            FEATURE_ORDERS.
        device: "cpu" or "cuda[:n]".
        labels: ``[n]`` part of each row, -1 for none, instead of RecBole's filters and random split.
        numbers: column -> tokens in the order of their numbers; None: in order of appearance.

    Raises:
        UsageError: unknown model.
        CheckpointError: the data cannot be prepared in this way.
    """
    settings = plain_settings(settings)
    model = str(settings.get("model"))
    data = interactions
    if labels is not None:
        data = replace(take_rows(interactions, np.flatnonzero(labels >= 0)), split=labels[labels >= 0])
        settings |= without_filters(family_of(model) == "sequential")
    config = make_config(model, interactions.name, {**settings, "device": device})
    try:
        init_seed(config["seed"], reproducibility=True)
        dataset, parts = _build(config, data, numbers or {})
        check_numbers(interactions.name, dataset, numbers or {})
        facts = _facts(config, interactions)
    except _UNFIT as error:
        raise CheckpointError(
            f"The data set '{interactions.name}' cannot be prepared by the checkpoint's settings "
            f"({type(error).__name__}: {error}). It is probably not the one that the model was trained on."
        ) from None
    return Bundle(
        config=config,
        train=parts[0],
        valid=parts[1],
        test=parts[2],
        users=np.asarray(dataset.field2id_token["user_id"][1:], dtype=str),
        items=np.asarray(dataset.field2id_token["item_id"][1:], dtype=str),
        time=data.time,
        labelled=facts["labelled"],
        objective=objective_of(config),
        facts=facts if numbers is None else {**facts, "numbering": STORED},
        labels=labels,
    )


def _facts(config: Any, data: Interactions) -> dict[str, Any]:
    return {
        "model": config["model"],
        "family": family_of(config["model"]),
        "params": {},
        "epochs": int(config["epochs"]),
        "patience": max(1, int(config["stopping_step"] or 1)),
        "seed": int(config["seed"]),
        "min_rating": None,
        "positives": "as the imported checkpoint's settings say",
        "labelled": config["eval_args"]["mode"]["valid"] == "labeled",
        "split": SPLIT,
        "data": data.name,
        "data_hash": data.hash,
    }


def _is_plain(value: Any) -> bool:
    """Tell whether a value is plain; one that is nested deeply or in itself is not."""
    level, size = [value], 0
    for _ in range(_MAX_DEPTH):
        if not level:
            return True
        size += len(level)
        if size > _MAX_SIZE or not all(_is_leaf(v) or type(v) in (dict, list) for v in level):
            return False
        inner: list[Any] = []
        for v in level:
            inner += [*v, *v.values()] if type(v) is dict else v if type(v) is list else []
            if len(inner) > _MAX_SIZE:
                return False
        level = inner
    return False


def _is_leaf(value: Any) -> bool:
    return value is None or type(value) in (bool, int, float, str)


def _rename(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(k, k): _rename(v, names) for k, v in value.items()}
    if isinstance(value, list):
        return [_rename(v, names) for v in value]
    return names.get(value, value) if isinstance(value, str) else value


def _build(config: Any, data: Interactions, numbers: Mapping[str, Sequence[str]]) -> tuple[Any, list[Any]]:
    base = dataset_base(config["model"], config["MODEL_TYPE"])
    made = class_of(f"AsWritten{base.__name__}", (_AsWritten, base))
    with quiet():
        dataset: Any = object.__new__(made)
        dataset.tables = replace(_tables(config, data), numbers=numbers)
        dataset.__init__(config)
        return dataset, dataset.build()


def _tables(config: Any, data: Interactions) -> Tables:
    if config["benchmark_filename"] is not None and data.split is None:
        raise CheckpointError(
            f"The model was trained on ready-made train, valid and test files, but '{data.name}' has no "
            "split of its own. Import the data again with --valid-file and --test-file."
        )
    split = np.zeros(len(data), dtype=np.int8) if data.split is None else data.split
    types = {
        **data.feature_types,
        "user_id": "token",
        "item_id": "token",
        "rating": "float",
        "timestamp": "float",
    }
    user, item = (
        None if table is None else _loaded(config, side, _in_file_order(config, table))
        for side, table in (("user", data.user_features), ("item", data.item_features))
    )
    inter = _loaded(config, "inter", inter_columns(data))
    if inter is None:
        raise KeyError("load_col names no columns of interactions")
    return Tables(inter, split, data.time, user, item, types)


def _in_file_order(config: Any, table: pd.DataFrame) -> pd.DataFrame:
    if config[ORDER_KEY] != FEATURE_ORDERS[1]:
        return table
    ids = table.iloc[:, 0].astype(str)
    numbers = pd.to_numeric(ids, errors="coerce")
    return table.iloc[np.argsort(ids if numbers.isna().any() else numbers, kind="stable")].reset_index(
        drop=True
    )


def _loaded(config: Any, source: str, table: pd.DataFrame) -> pd.DataFrame | None:
    """Columns that RecBole would have loaded.

    Source: RecBole 1.2.1, ``Dataset._get_load_and_unload_col``.
    """
    load, unload = config["load_col"], (config["unload_col"] or {}).get(source, ())
    if load is not None and not load.get(source):
        return None
    asked = None if load is None or load[source] == "*" else load[source]
    names = [c for c in table.columns if (asked is None or c in asked) and c not in unload]
    return table[names].copy()


class _AsWritten(InMemory):
    """RecBole's own preparation of rows that are followed into their parts."""

    kept: NDArray[np.int64]
    file_size_list: list[int]

    def _in_order(self, inter: pd.DataFrame) -> pd.DataFrame:
        self.kept = np.arange(len(inter))
        if self.config["benchmark_filename"] is None:
            return inter
        self.kept = np.argsort(self.tables.split, kind="stable")
        self.file_size_list = np.bincount(self.tables.split, minlength=3).tolist()
        return inter.iloc[self.kept].reset_index(drop=True)

    def _data_filtering(self) -> None:
        Dataset._data_filtering(self)

    def _reset_index(self) -> None:
        self.kept = self.inter_feat.index.to_numpy()
        super()._reset_index()

    def _change_feat_format(self) -> None:
        super()._change_feat_format()
        if _ROW not in self.inter_feat:
            self.inter_feat[_ROW] = torch.from_numpy(self.kept)

    def data_augmentation(self) -> None:
        """Sequential data: a row stands for its target, found by the same sort by user and time."""
        keys = Interaction({k: self.inter_feat[k] for k in (self.uid_field, self.time_field)})
        keys[_ROW] = torch.from_numpy(self.kept)
        keys.sort(by=[self.uid_field, self.time_field], ascending=True)
        user = keys[self.uid_field]
        super().data_augmentation()
        self.inter_feat[_ROW] = keys[_ROW][1:][user[1:] == user[:-1]]

    def build(self) -> list[Any]:
        """RecBole's parts, each with ``rows``."""
        parts: list[Any] = super().build()
        for part in parts:
            part.rows = part.inter_feat[_ROW].numpy()
            del part.inter_feat[_ROW]
        return parts
