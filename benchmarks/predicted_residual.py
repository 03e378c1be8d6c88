"""Out-of-fold predictions of what unlearning leaves of the probed users of a run, against what it left.

    python benchmarks/predicted_residual.py [--dataset ml-100k] [--model NeuMF] [--outcome share-left]

Reads the stored run (or makes it first) and prints one JSON line per set of features: circuits, covariates
(activity, popularity, loss, personalisation gap) and both, as ``score-users`` has it. Figures are means over
five draws of the ten folds: Spearman and R² of the mean over methods, the Spearman with the covariates held
fixed (partial), its mean over single methods, median absolute error, share of outcomes inside their 90 %
interval, for all users and for thirds by L_R − L_0, and the interval's median width.
"""

import argparse
import json
from typing import Any

import numpy as np
import pandas as pd

from recunlearn.difficulty.outcomes import hardness, retrained_gap, unlearned_methods
from recunlearn.difficulty.regression import out_of_fold
from recunlearn.difficulty.residual import covariates, quality, share_left
from recunlearn.difficulty.statistics import partial_spearman, spearman
from recunlearn.foundation.records import Outcomes, load_record
from recunlearn.foundation.settings import ScoreSettings
from recunlearn.studies.stored import scored_run

BESIDE = ("n_interactions", "mean_item_popularity", "loss", "personalisation_gap")
DRAWS = 5


def measured(
    features: tuple[Any, ...], targets: Any, averaged: Any, controls: list[Any], thirds: Any, seed: int
) -> dict[str, Any]:
    """Figures of one draw of the folds."""
    found = out_of_fold(*features[:1], targets, *features[1:], averaged=averaged, seed=seed)
    truth = targets[averaged].mean(0)
    inside = (found.low <= truth) & (truth <= found.high)
    figures: dict[str, Any] = quality(found.mean, found.low, found.high, truth)
    figures["partial"] = partial_spearman(found.mean, truth, controls)
    figures["spearman_methods"] = np.mean(
        [spearman(p, t) for p, t in zip(found.by_method, targets, strict=True)]
    )
    figures["width"] = np.nanmedian((found.high - found.low)[np.isfinite(truth)])
    for name, rows in thirds.items():
        figures[f"coverage_{name}"] = inside[rows].mean()
    return figures


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--dataset", default="ml-100k")
    options.add_argument("--model", default="NeuMF")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--outcome", choices=["share-left", "increase"], default="share-left")
    given = options.parse_args()
    run = scored_run(ScoreSettings(dataset=given.dataset, model=given.model, seed=given.seed))
    outcomes = load_record(Outcomes, run.keys.probe)
    place = pd.Index(run.circuits.entities).get_indexer(outcomes.entities)
    table = run.scores.table.set_index("user_id").loc[run.circuits.entities.tolist()]
    beside = covariates(*(table[c].to_numpy() for c in BESIDE))
    if beside is None:
        raise SystemExit("this run has no covariates")
    circuits, beside = run.circuits.values[place], beside[place]
    targets = (
        share_left(outcomes) if given.outcome == "share-left" else hardness(outcomes, "increase").mean(1)
    )
    fine = np.flatnonzero(np.isfinite(targets).all(0))
    parts = np.array_split(fine[np.argsort(retrained_gap(outcomes)[fine])], 3)
    thirds = dict(zip(("small", "middle", "large"), parts, strict=True))
    controls = [v for c in BESIDE if np.isfinite(v := table[c].to_numpy()[place]).all()]
    for name, features in {
        "circuits": (circuits,),
        "covariates": (beside,),
        "both": (circuits, beside),
    }.items():
        draws = pd.DataFrame(
            [
                measured(features, targets, unlearned_methods(outcomes), controls, thirds, seed)
                for seed in range(DRAWS)
            ]
        )
        facts = {"dataset": given.dataset, "model": given.model, "seed": given.seed, "outcome": given.outcome}
        figures = {k: round(float(v), 3) for k, v in draws.mean().items()}
        print(json.dumps({**facts, "features": name, "users": len(fine), **figures}))


if __name__ == "__main__":
    main()
