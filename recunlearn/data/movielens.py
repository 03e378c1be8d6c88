"""MovieLens: ml-100k out of the installed recbole wheel (ml-1m: see ml_1m.py)."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd

from recunlearn.data.atomic import read_features
from recunlearn.data.build import build_interactions
from recunlearn.data.interactions import Interactions
from recunlearn.foundation.errors import DataError

ML_100K = {"users": 943, "items": 1_682, "interactions": 100_000}


def ml_100k_files() -> dict[str, Path]:
    """Paths of the ``.inter``, ``.user`` and ``.item`` files, without importing recbole."""
    spec = importlib.util.find_spec("recbole")
    roots = list(spec.submodule_search_locations or []) if spec else []
    folder = Path(roots[0], "dataset_example", "ml-100k") if roots else Path("recbole")
    files = {kind: folder / f"ml-100k.{kind}" for kind in ("inter", "user", "item")}
    missing = [f for f in files.values() if not f.is_file()]
    if missing:
        raise DataError(
            f"ml-100k comes with the recbole package, but {missing[0]} does not exist. "
            "Run: pip install --force-reinstall --no-deps recbole==1.2.1"
        )
    return files


def read_ml_100k() -> Interactions:
    """100,000 ratings (1 to 5) of 943 users and 1,682 films, with both feature tables."""
    files = ml_100k_files()
    try:
        log = pd.read_csv(
            files["inter"], sep="\t", dtype=dict.fromkeys(("user_id:token", "item_id:token"), "category")
        )
        log.columns = pd.Index(["user_id", "item_id", "rating", "timestamp"])
        built = build_interactions(
            "ml-100k",
            log["user_id"],
            log["item_id"],
            rating=log["rating"].to_numpy(),
            time=log["timestamp"].to_numpy(np.float64),
            user_features=read_features(files["user"], "user_id"),
            item_features=read_features(files["item"], "item_id"),
            card={"source": "recbole 1.2.1 (MovieLens 100K)", "rating_scale": [1, 5]},
        )
    except (ValueError, OSError) as error:
        raise DataError(f"{files['inter']} is damaged ({error}). Reinstall recbole==1.2.1.") from None
    found = {"users": len(built.users), "items": len(built.items), "interactions": len(built)}
    if found != ML_100K:
        raise DataError(
            f"{files['inter']} should hold {ML_100K}, but holds {found}. Reinstall recbole==1.2.1."
        )
    return built
