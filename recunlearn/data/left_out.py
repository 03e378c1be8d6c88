"""What was deleted from each data set: keyed hashes of users, and rows of the packaged log left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from recunlearn.data.build import Features, build_interactions
from recunlearn.data.interactions import Interactions
from recunlearn.foundation import paths
from recunlearn.foundation.errors import DataError, RecunlearnError
from recunlearn.foundation.store import read_json, write_json

FORMAT = 1


@dataclass(frozen=True)
class LeftOut:
    """What is remembered of a data set's deletions; no id.

    Args:
        users: keyed hashes of deleted users.
        rows: places in the packaged log that are skipped when it is read; empty for sets that are rewritten.
        whole: content hash of the packaged log that ``rows`` count in, or "".
    """

    users: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    whole: str = ""

    def adding(self, users: Sequence[str], rows: Sequence[int] = (), whole: str = "") -> "LeftOut":
        """Return the record with more, each once."""
        return LeftOut(
            tuple(dict.fromkeys([*self.users, *users])),
            tuple(sorted({*self.rows, *rows})),
            self.whole or whole,
        )


def file_of(dataset: str) -> Path:
    """Where the deletions of a data set are remembered."""
    return paths.deletions() / f"{dataset}.json"


def read_left_out(dataset: str) -> LeftOut:
    """Read what was deleted from a data set; nothing where there is no record.

    Raises:
        DataError: the record is damaged: reading on would bring deleted users back.
    """
    file = file_of(dataset)
    if not file.is_file():
        return LeftOut()
    try:
        plain = read_json(file)
        found = _from_plain(plain)
    except (RecunlearnError, KeyError, TypeError, ValueError):
        raise DataError(
            f"{file}, which says who was deleted from '{dataset}', is damaged, and without it deleted users "
            "would come back. Restore it from a backup."
        ) from None
    return found


def _from_plain(plain: Mapping[str, Any]) -> LeftOut:
    if plain["format"] != FORMAT or not all(isinstance(u, str) for u in plain["users"]):
        raise ValueError
    return LeftOut(tuple(plain["users"]), tuple(int(r) for r in plain["rows"]), str(plain["whole"]))


def write_left_out(dataset: str, left_out: LeftOut) -> None:
    """Write the record, whole or not at all; one that is there already is left alone."""
    if left_out == read_left_out(dataset):
        return
    plain = {"users": list(left_out.users), "rows": list(left_out.rows), "whole": left_out.whole}
    write_json(file_of(dataset), {"format": FORMAT, **plain})


def without_rows_of(interactions: Interactions, left_out: LeftOut) -> Interactions:
    """Leave the remembered rows out of the packaged log.

    Raises:
        DataError: the package holds another log than the one that the rows count in.
    """
    if not left_out.rows:
        return interactions
    if interactions.hash != left_out.whole:
        raise DataError(
            f"The packaged data set '{interactions.name}' is not the one that users were deleted from, so "
            "they cannot be left out. Reinstall the version of recbole that was installed then."
        )
    keep = np.ones(len(interactions), dtype=bool)
    keep[list(left_out.rows)] = False
    return keep_rows(interactions, keep)


def keep_rows(interactions: Interactions, keep: NDArray[np.bool_]) -> Interactions:
    """Build the data set of some rows as an import of them would: ids by first appearance, features of those.

    Args:
        interactions: a data set.
        keep: ``[n]``.
    """
    rows = np.flatnonzero(keep)
    arrays = {c: v[rows] for c in ("rating", "time", "split") if (v := getattr(interactions, c)) is not None}
    return build_interactions(
        interactions.name,
        pd.Series(
            pd.Categorical.from_codes(interactions.user[rows], pd.Index(interactions.users.astype(object)))
        ),
        pd.Series(
            pd.Categorical.from_codes(interactions.item[rows], pd.Index(interactions.items.astype(object)))
        ),
        **arrays,
        user_features=_features(interactions, "user"),
        item_features=_features(interactions, "item"),
        card=interactions.card,
    )


def _features(interactions: Interactions, side: str) -> Features | None:
    table: pd.DataFrame | None = getattr(interactions, f"{side}_features")
    if table is None:
        return None
    known = interactions.feature_types
    return table, {c: known.get(c, "token") for c in table.columns}
