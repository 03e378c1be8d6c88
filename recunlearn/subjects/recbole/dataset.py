"""From :class:`Interactions` to RecBole's data sets, in memory: no files, one id map, our split labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from recunlearn.subjects.recbole.compat import (
    Dataset,
    FeatureSource,
    FeatureType,
    Interaction,
    SafeConfig,
    SequentialDataset,
    dataset_base,
    quiet,
)


@dataclass(frozen=True)
class Tables:
    """What RecBole would have read from files.

    Args:
        inter: one row per interaction with ``user_id``, ``item_id`` (text) and perhaps ``label``.
        split: ``[n]`` 0 train, 1 valid, 2 test.
        time: ``[n]`` or None.
        user, item: feature tables or None.
        types: column -> "token", "token_seq", "float" or "float_seq".
        numbers: column -> tokens in the order of their numbers from 1, where these are given.
    """

    inter: pd.DataFrame
    split: NDArray[np.int8]
    time: NDArray[np.float64] | None = None
    user: pd.DataFrame | None = None
    item: pd.DataFrame | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, Sequence[str]] = field(default_factory=dict)


def numbers_of(dataset: Any) -> dict[str, list[str]]:
    """Every token column of a data set's tables -> its tokens in the order of their numbers from 1."""
    tables = dataset.tables
    frames = [t for t in (tables.inter, tables.user, tables.item) if t is not None]
    names = dict.fromkeys(c for frame in frames for c in frame.columns)
    tokens = [c for c in names if tables.types.get(c, "token").startswith("token")]
    return {c: [str(t) for t in dataset.field2id_token[c][1:]] for c in tokens}


def make_dataset(config: SafeConfig, tables: Tables) -> Any:
    """Create RecBole's data set of a model, fed from ``tables``."""
    base = dataset_base(config["model"], config["MODEL_TYPE"])
    mixin = _Sequences if issubclass(base, SequentialDataset) else _PreSplit
    made = class_of(f"InMemory{base.__name__}", (mixin, base))
    with quiet():
        dataset: Any = object.__new__(made)
        dataset.tables = tables
        dataset.__init__(config)
        return dataset


@cache
def class_of(name: str, bases: tuple[type, ...]) -> Any:
    """Class of that name over ``bases``, the same one each time."""
    return type(name, bases, {})


def _blank(name: str, bases: tuple[type, ...]) -> Any:
    return object.__new__(class_of(name, bases))


def build_splits(dataset: Any) -> list[Any]:
    """Train, valid and test data sets of RecBole, with ``rows`` (``[n]`` row of ``tables.inter``) each."""
    with quiet():
        return list(dataset.build())


class InMemory(Dataset):
    """Reads tables instead of files."""

    tables: Tables
    rows: NDArray[np.int64]
    inter_feat: Any

    def __reduce__(self) -> Any:
        """Go to another process as name, bases and content: the class itself belongs to no module."""
        return _blank, (type(self).__name__, type(self).__bases__), self.__dict__

    def _load_data(self, token: str, dataset_path: str) -> None:
        tables = self.tables
        self.inter_feat = self._in_order(self._table(tables.inter, FeatureSource.INTERACTION))
        self.user_feat = self._side(tables.user, FeatureSource.USER, self.uid_field)
        self.item_feat = self._side(tables.item, FeatureSource.ITEM, self.iid_field)

    def _in_order(self, inter: pd.DataFrame) -> pd.DataFrame:
        return inter

    def _data_filtering(self) -> None:
        """Checks and filters lie in recunlearn.data."""

    def _remap(self, remap_list: list[Any]) -> None:
        """Number tokens in order of appearance, after those whose numbers are given."""
        name = next((f for _, f, _ in remap_list if f in self.tables.numbers), None)
        if name is not None:
            given = pd.DataFrame({name: list(self.tables.numbers[name])}, dtype=object)
            remap_list = [(given, name, FeatureType.TOKEN), *remap_list]
        super()._remap(remap_list)

    def _side(self, table: pd.DataFrame | None, source: Any, key: str) -> pd.DataFrame | None:
        loaded = None if table is None else self._table(table, source)
        self.field2source[key] = FeatureSource(f"{source.value}_id")
        return loaded

    def _table(self, table: pd.DataFrame, source: Any) -> pd.DataFrame:
        out = {}
        for name in table.columns:
            kind = FeatureType(self.tables.types.get(name, "token"))
            self.field2source[name], self.field2type[name] = source, kind
            out[name], self.field2seqlen[name] = _column(table[name], kind)
            if "float" in kind.value:
                self.field2bucketnum[name] = 2
        return pd.DataFrame(out)

    def __getitem__(self, index: Any, join: bool = True) -> Any:
        if isinstance(index, np.ndarray):
            index = torch.from_numpy(index)
        picked = _take(self.inter_feat, index)
        return self.join(picked) if join else picked

    def join(self, df: Any) -> Any:
        """Add the features of the users and items named in ``df`` (in place)."""
        if self.user_feat is not None and self.uid_field in df:
            df.update(_take(self.user_feat, df[self.uid_field]))
        if self.item_feat is not None and self.iid_field in df:
            df.update(_take(self.item_feat, df[self.iid_field]))
        return df

    def part(self, feat: Any, rows: NDArray[np.int64]) -> Any:
        """Copy with other interactions."""
        part = self.copy(feat)
        part.rows = rows
        return part


def _take(feat: Any, ids: Any) -> Any:
    # RecBole turns the index into a Python list first; the values are the same.
    return Interaction({k: v[ids] for k, v in feat.interaction.items()})


def _column(values: pd.Series, kind: Any) -> tuple[Any, int]:
    if kind == FeatureType.TOKEN:
        text = values.astype(object).where(values.notna() & (values.astype(str) != ""), None)
        return text.to_numpy(dtype=object), 1
    if kind == FeatureType.FLOAT:
        return values.to_numpy(dtype=np.float64), 1
    dtype = str if kind == FeatureType.TOKEN_SEQ else np.float64
    parts = [np.array(v.split() if isinstance(v, str) else [], dtype=dtype) for v in values]
    return pd.Series(parts, index=values.index, dtype=object), max(map(len, parts), default=0)


class _PreSplit(InMemory):
    """General and context-aware models: RecBole's benchmark style, rows in the order train, valid, test."""

    def _in_order(self, inter: pd.DataFrame) -> pd.DataFrame:
        split = self.tables.split
        self.all_rows = np.argsort(split, kind="stable")
        self.file_size_list = np.bincount(split, minlength=3).tolist()
        return inter.iloc[self.all_rows].reset_index(drop=True)

    def build(self) -> list[Any]:
        """Cut the interactions where the parts end."""
        self._change_feat_format()
        ends = np.cumsum(self.file_size_list)
        return [
            self.part(self.inter_feat[start:end], self.all_rows[start:end])
            for start, end in zip([0, *ends[:-1]], ends, strict=True)
        ]


class _Sequences(InMemory, SequentialDataset):
    """Sequential models: RecBole's augmentation over all interactions, parts by the label of the target.

    Deviation from RecBole: times are compared in full precision. RecBole rounds them to float32 first, which
    reorders interactions less than 64 seconds apart.
    """

    @property
    def times(self) -> NDArray[np.float64]:
        """Time of every interaction (checked by :func:`bundle.make_bundle`)."""
        return np.asarray(self.tables.time)

    def sort(self, by: Any, ascending: Any = True) -> None:
        """Order by user, then time, then file order (what the augmentation asks for)."""
        user = self.inter_feat[self.uid_field].numpy()
        self.order = np.lexsort((self.times, user))
        self.inter_feat = _take(self.inter_feat, torch.from_numpy(self.order))

    def data_augmentation(self) -> None:
        """Every interaction but a user's first becomes a target with the items before it as its history.

        Source: RecBole 1.2.1, ``SequentialDataset.data_augmentation``, vectorised; the same rows and columns.
        """
        if self._has_own_augmentation():
            super().data_augmentation()
            self.targets = self.order[_targets(self._users_of_all_rows()[self.order])]
            return
        self._aug_presets()
        self.sort(by=None)
        user = self.inter_feat[self.uid_field].numpy()
        target = _targets(user)
        item = self.inter_feat[self.iid_field].numpy()
        first = np.searchsorted(user, user[target])
        length = np.minimum(target - first, self.max_item_list_len)
        place = np.arange(self.max_item_list_len)
        index = (target - length)[:, None] + place
        history = np.where(place < length[:, None], item[np.minimum(index, len(item) - 1)], 0)
        columns = {k: v[target] for k, v in self.inter_feat.interaction.items()}
        columns[self.item_list_length_field] = torch.from_numpy(length.astype(np.int64))
        columns[f"{self.iid_field}{self.config['LIST_SUFFIX']}"] = torch.from_numpy(history.astype(np.int64))
        self.inter_feat = Interaction(columns)
        self.targets = self.order[target]

    def _has_own_augmentation(self) -> bool:
        above = (c for c in type(self).__mro__ if c is not _Sequences and "data_augmentation" in vars(c))
        return next(above) is not SequentialDataset

    def _users_of_all_rows(self) -> NDArray[np.int64]:
        return self.tables.inter[self.uid_field].map(self.field2token_id[self.uid_field]).to_numpy(np.int64)

    def build(self) -> list[Any]:
        """Give every target to the part of its label, in RecBole's order (users by first target).

        Interactions that are nobody's target (a user's first) belong to no part.
        """
        self._change_feat_format()
        user = self.inter_feat[self.uid_field].numpy()
        by_time = np.argsort(self.times[self.targets], kind="stable")
        _, first = np.unique(user[by_time], return_index=True)
        rank = np.zeros(self.user_num, dtype=np.int64)
        rank[np.unique(user)] = first
        order = by_time[np.argsort(rank[user[by_time]], kind="stable")]
        label = self.tables.split[self.targets]
        parts = [order[label[order] == k] for k in range(3)]
        return [self.part(_take(self.inter_feat, torch.from_numpy(p)), self.targets[p]) for p in parts]


def _targets(user: NDArray[Any]) -> NDArray[np.int64]:
    """Places that are not a user's first: ``[n]`` sorted by user -> ``[m]``."""
    return np.flatnonzero(np.concatenate(([False], user[1:] == user[:-1])))
