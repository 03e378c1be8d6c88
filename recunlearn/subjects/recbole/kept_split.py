"""Parts that RecBole's own random split once gave to the rows of a data set, kept when rows go."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from recunlearn.data.interactions import Interactions
from recunlearn.subjects.recbole.bundle import Bundle
from recunlearn.subjects.recbole.names import family_of

_KEYS = ("user_id", "item_id", "rating", "timestamp")


def inter_columns(data: Interactions) -> pd.DataFrame:
    """Interactions under the names of RecBole's fields."""
    columns = {
        "user_id": data.users.astype(object)[data.user],
        "item_id": data.items.astype(object)[data.item],
    }
    columns |= {k: v for k, v in (("rating", data.rating), ("timestamp", data.time)) if v is not None}
    return pd.DataFrame(columns)


def without_filters(sequential: bool) -> dict[str, Any]:
    """Settings under which rows stay in the parts that they are given; sequences are cut by time."""
    filters = ("user_inter_num_interval", "item_inter_num_interval", "val_interval", "rm_dup_inter")
    parts = None if sequential else ["train", "valid", "test"]
    return {**dict.fromkeys(filters), "filter_inter_by_user_or_item": False, "benchmark_filename": parts}


def labels_of(bundle: Bundle, interactions: Interactions) -> NDArray[np.int8]:
    """Part that each row of ``interactions`` had in a bundle, -1 for none: ``[n]``.

    Args:
        bundle: as written, of data that ``interactions`` are some rows of.
        interactions: what is left of them.
    """
    tables, labels = bundle.train.tables, np.full(len(bundle.train.tables.inter), -1, dtype=np.int8)
    labels[bundle.train.kept] = 0
    if family_of(bundle.config["model"]) != "sequential":
        labels[:] = -1
        for number, part in enumerate((bundle.train, bundle.valid, bundle.test)):
            labels[part.rows] = number
    now = inter_columns(interactions)[[c for c in tables.inter if c in _KEYS]]
    before = tables.inter[now.columns].assign(label=labels)
    tables_of_rows = [t.assign(again=t.groupby(list(now.columns)).cumcount()) for t in (now, before)]
    found = tables_of_rows[0].merge(tables_of_rows[1], how="left", on=[*now.columns, "again"])
    return found["label"].fillna(-1).to_numpy(dtype=np.int8)
