"""The interaction log as arrays, with external ids kept as text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from recunlearn.foundation.store import content_hash


@dataclass(frozen=True)
class Interactions:
    """Who interacted with what; rows keep the order of the source file.

    Args:
        name: name of the data set.
        users, items: external ids (text, exactly as in the file), in order of first appearance.
        user, item: ``[n]`` index into ``users`` and ``items``.
        rating: ``[n]`` or None.
        time: ``[n]`` or None; any unit that grows.
        split: ``[n]`` 0 train, 1 valid, 2 test when the user brought their own split, else None.
        user_features, item_features: one row per known id, first column ``user_id`` / ``item_id`` (text);
            token columns are text, ``token_seq`` columns are text with tokens separated by one space.
        feature_types: column -> "token", "token_seq", "float" or "float_seq".
        card: plain facts: source, licence, rating scale, dropped rows and why.
    """

    name: str
    users: NDArray[np.str_]
    items: NDArray[np.str_]
    user: NDArray[np.int32]
    item: NDArray[np.int32]
    rating: NDArray[np.float32] | None = None
    time: NDArray[np.float64] | None = None
    split: NDArray[np.int8] | None = None
    user_features: pd.DataFrame | None = None
    item_features: pd.DataFrame | None = None
    feature_types: Mapping[str, str] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of interactions."""
        return len(self.user)

    @cached_property
    def hash(self) -> str:
        """Content hash of everything a model could learn from (not of the name or the card)."""
        parts: list[Any] = [self.users, self.items, self.user, self.item]
        parts += [a if a is not None else "none" for a in (self.rating, self.time, self.split)]
        for frame in (self.user_features, self.item_features):
            parts.append(
                "none" if frame is None else {c: frame[c].to_numpy().astype(str) for c in frame.columns}
            )
        return content_hash(*parts)
