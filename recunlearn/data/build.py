"""From columns of external ids to :class:`Interactions`: numbered ids, aligned features."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from recunlearn.data.interactions import Interactions
from recunlearn.foundation.errors import DataError

Features = tuple[pd.DataFrame, Mapping[str, str]]


def build_interactions(
    name: str,
    user_ids: pd.Series,
    item_ids: pd.Series,
    *,
    rating: NDArray[Any] | None = None,
    time: NDArray[Any] | None = None,
    split: NDArray[Any] | None = None,
    user_features: Features | None = None,
    item_features: Features | None = None,
    card: Mapping[str, Any] | None = None,
) -> Interactions:
    """Number the ids in order of first appearance and align the features with them.

    Args:
        user_ids, item_ids: ``[n]`` text or categories of text.
        rating, time, split: ``[n]`` or None.
        user_features, item_features: table with the id in its first column, and column -> RecBole type.
            Ids without a row get empty text (token columns) or NaN (float columns); rows of ids that no
            interaction names are left out.
    """
    user, users = _number(user_ids)
    item, items = _number(item_ids)
    types: dict[str, str] = {}
    tables: list[pd.DataFrame | None] = []
    for ids, features in ((users, user_features), (items, item_features)):
        tables.append(None if features is None else align_features(features[0], ids))
        for column, kind in ({} if features is None else features[1]).items():
            if types.setdefault(column, kind) != kind:
                raise DataError(
                    f"Column '{column}' is {types[column]} in the user features of '{name}' and {kind} in "
                    "its item features. Rename one of them."
                )
    return Interactions(
        name,
        users,
        items,
        user,
        item,
        rating=None if rating is None else np.asarray(rating, dtype=np.float32),
        time=None if time is None else np.asarray(time, dtype=np.float64),
        split=None if split is None else np.asarray(split, dtype=np.int8),
        user_features=tables[0],
        item_features=tables[1],
        feature_types=types,
        card=dict(card or {}),
    )


def align_features(table: pd.DataFrame, ids: NDArray[np.str_]) -> pd.DataFrame:
    """Return one row per id, in the order of ``ids``; the first row wins where an id has several."""
    key = table.columns[0]
    unique = table.drop_duplicates(key).set_index(key)
    aligned = unique.reindex(pd.Index(ids.astype(object), name=key)).reset_index()
    for column in aligned.columns:
        if not pd.api.types.is_numeric_dtype(aligned[column]):
            aligned[column] = aligned[column].fillna("").astype(object)
    return aligned


def _number(ids: pd.Series) -> tuple[NDArray[np.int32], NDArray[np.str_]]:
    """Codes and distinct ids in order of first appearance; categories are never expanded to text."""
    if isinstance(ids.dtype, pd.CategoricalDtype):
        codes, seen = pd.factorize(ids.cat.codes.to_numpy())
        names = ids.cat.categories.to_numpy()[seen]
    else:
        codes, names = pd.factorize(ids.to_numpy(dtype=object))
    return codes.astype(np.int32), np.array([str(n) for n in names], dtype=str)
