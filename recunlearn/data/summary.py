"""Plain figures about an interaction log: counts, rating scale, time range, users with few interactions."""

from datetime import UTC, datetime
from typing import Any

import numpy as np

from recunlearn.data.interactions import Interactions

_UNIX_SECONDS = (1e8, 1e10)
"""Numbers in this range are shown as dates (1973 to 2286)."""


def summarise(interactions: Interactions) -> dict[str, Any]:
    """Counts, ratings (histogram of at most 20 values), time range, activity and the user's own split."""
    per_user = np.bincount(interactions.user, minlength=len(interactions.users))
    facts: dict[str, Any] = {
        "users": len(interactions.users),
        "items": len(interactions.items),
        "interactions": len(interactions),
        "interactions_per_user": {
            "least": int(per_user.min()),
            "median": float(np.median(per_user)),
            "most": int(per_user.max()),
        },
        "users_with_1": int((per_user == 1).sum()),
        "users_with_2": int((per_user == 2).sum()),
        "users_with_under_5": int((per_user < 5).sum()),
    }
    if interactions.rating is not None:
        values, counts = np.unique(interactions.rating, return_counts=True)
        facts["rating"] = {"lowest": float(values[0]), "highest": float(values[-1]), "values": len(values)}
        if len(values) <= 20:
            facts["rating"]["histogram"] = {f"{v:g}": int(c) for v, c in zip(values, counts, strict=True)}
    if interactions.time is not None:
        facts["time"] = {"first": _moment(interactions.time.min()), "last": _moment(interactions.time.max())}
    if interactions.split is not None:
        labels = np.bincount(interactions.split, minlength=3)
        facts["split"] = dict(zip(("train", "valid", "test"), labels.tolist(), strict=True))
    features = [
        c for t in (interactions.user_features, interactions.item_features) if t is not None for c in t
    ]
    if features:
        facts["features"] = [c for c in features if c not in ("user_id", "item_id")]
    return facts


def _moment(value: float) -> str | float:
    low, high = _UNIX_SECONDS
    if low <= value < high:
        return datetime.fromtimestamp(float(value), UTC).strftime("%Y-%m-%d %H:%M:%S")
    return float(value)
