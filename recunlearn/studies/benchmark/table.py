"""What the tables of a benchmark say: means over draws and seeds, and hard and easy against random."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from recunlearn.difficulty.effects import holm
from recunlearn.evaluation.statistics import paired_interval, paired_p

KEYS = ["model", "method", "set"]
MAIN = {
    "UE": "ue",
    "clip": "ue_clipped",
    "set": "set_share_left",
    "resid.": "residual/jsd/forget",
    "over": "over_forgotten",
    "n.m.": "not_measurable",
    "NDCG@10": "ndcg@10/retain/unlearned",
    "AUC": "auc/retain/unlearned",
    "MIA": "membership_auc/unlearned",
    "quality": "forget_quality/unlearned",
    "utility": "model_utility/unlearned",
    "kept": "probability/retain/unlearned",
    "extract": "extraction_strength/unlearned",
    "exact": "exact_memorisation/unlearned",
    "min-k": "membership_min_k/unlearned",
    "s": "cost/seconds",
    "cost": "cost/of_retraining",
}
"""Column of the main table -> figure; a column without values is left out."""
LANGUAGE = ("quality", "utility", "kept", "extract", "exact", "min-k")
"""Columns that only language models have."""
ORIGINAL, RETRAINED = "nothing done", "retrained reference"
BASELINES = {
    ORIGINAL: {
        "NDCG@10": "ndcg@10/retain/original",
        "AUC": "auc/retain/original",
        "MIA": "membership_auc/original",
        **{name: MAIN[name].replace("unlearned", "original") for name in LANGUAGE},
    },
    RETRAINED: {
        "UE": "retrained/ue",
        "clip": "retrained/ue_clipped",
        "resid.": "residual/jsd/forget/floor",
        "over": "retrained/over_forgotten",
        "n.m.": "retrained/not_measurable",
        "NDCG@10": "ndcg@10/retain/retrained",
        "AUC": "auc/retain/retrained",
        "MIA": "membership_auc/retrained",
        **{name: MAIN[name].replace("unlearned", "retrained") for name in LANGUAGE},
        "s": "cost/retraining_seconds",
    },
}
"""Rows beside the methods: what doing nothing and what retraining itself amounts to."""
PAPER = {"hard": -14.1, "easy": 3.3}
"""UE against random sets in arXiv 2601.09624, which does not count over-forgetting."""


@dataclass(frozen=True)
class Contrast:
    """UE on one stratum minus UE on random sets, paired by draw and seed.

    Args:
        model, method, stratum: which.
        pairs: draws x seeds.
        difference: mean, in points of UE; ``low`` and ``high`` its 95 % bootstrap interval.
        p: of the paired permutation test; ``p_holm`` corrected over the contrasts of the model.
        clipped: the same difference with over-forgetting not counted, as in the paper.
        median: uncapped median share left on the stratum, mean over cells; ``median_random`` on random sets.
    """

    model: str
    method: str
    stratum: str
    pairs: int
    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    clipped: float
    median: float
    median_random: float


def summary(frame: pd.DataFrame, own: Mapping[tuple[str, str], bool] | None = None) -> pd.DataFrame:
    """Mean, deviation and count over draws and seeds, by model, set, method and column of :data:`MAIN`.

    Args:
        frame: the tidy table.
        own: (model, method) -> whether the method has an original of its own kind: the baselines are read
            from cells of the others, where there are any.

    Returns:
        Columns model, method, set, column, mean, sd (NaN for one cell), n; methods after the baselines.
    """
    parts = [_spread(frame, MAIN)]
    whole = frame
    if own and not all(own.values()):
        shared = [not own.get(pair, False) for pair in zip(frame["model"], frame["method"], strict=True)]
        whole = frame[np.array(shared, dtype=bool)]
    one = whole.drop_duplicates(["model", "set", "draw", "seed", "metric"])
    for name, columns in BASELINES.items():
        parts.insert(0, _spread(one.assign(method=name), columns))
    return pd.concat(parts, ignore_index=True)


def _spread(frame: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    names = {figure: column for column, figure in columns.items()}
    wanted = frame[frame["metric"].isin(names)]
    grouped = wanted.groupby([*KEYS, "metric"], sort=False, observed=True)["value"]
    found = grouped.agg(mean="mean", sd=lambda v: v.std(ddof=1), n="count").reset_index()
    return found.assign(column=found["metric"].map(names))[[*KEYS, "column", "mean", "sd", "n"]]


def contrasts(frame: pd.DataFrame, seed: int = 0) -> list[Contrast]:
    """Hard and easy sets against random ones, for every model and method that has both."""
    found = []
    for model in frame["model"].unique():
        of_model = [
            made
            for method in frame["method"][frame["model"] == model].unique()
            for stratum in PAPER
            if (made := _contrast(frame, model, method, stratum, seed)) is not None
        ]
        corrected = holm(np.array([c.p for c in of_model], dtype=np.float64))
        found += [
            Contrast(**{**vars(c), "p_holm": float(p)}) for c, p in zip(of_model, corrected, strict=True)
        ]
    return found


def _contrast(frame: pd.DataFrame, model: str, method: str, stratum: str, seed: int) -> Contrast | None:
    rows = frame[(frame["model"] == model) & (frame["method"] == method)]
    paired = _paired(rows, "ue", stratum)
    if not len(paired):
        return None
    medians, clipped = (_paired(rows, metric, stratum) for metric in ("share_left_median", "ue_clipped"))
    apart = paired[:, 0] - paired[:, 1]
    return Contrast(
        model,
        method,
        stratum,
        len(paired),
        float(apart.mean()),
        *paired_interval(paired[:, 1], paired[:, 0], seed),
        paired_p(paired[:, 1], paired[:, 0], seed),
        float("nan"),
        float((clipped[:, 0] - clipped[:, 1]).mean()) if len(clipped) else float("nan"),
        *(map(float, medians.mean(0)) if len(medians) else (float("nan"), float("nan"))),
    )


def _paired(rows: pd.DataFrame, metric: str, stratum: str) -> NDArray[np.float64]:
    """Values on the stratum and on random sets of the same draw and seed: ``[pairs, 2]``."""
    one = rows[rows["metric"] == metric].set_index(["set", "draw", "seed"])["value"]
    sides = [one.xs(name) for name in (stratum, "random") if name in one.index.get_level_values("set")]
    if len(sides) < 2:
        return np.zeros((0, 2))
    both = pd.concat(sides, axis=1, join="inner").dropna()
    return both.sort_index().to_numpy(dtype=np.float64)


def unable(results: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Model, method and reason where a method could not do its cells, once each."""
    found = {(r["cell"]["model"], r["cell"]["method"], r["unable"]): None for r in results if "unable" in r}
    return list(found)


def own_kinds(results: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], bool]:
    """(model, method) -> whether it forgets from an original of its own kind."""
    return {
        (r["cell"]["model"], r["cell"]["method"]): bool(r["own_original"])
        for r in results
        if "own_original" in r
    }
