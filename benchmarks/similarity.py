"""Which whitening of circuits makes CUD predict best? Folds within the probed users of stored runs.

    python benchmarks/similarity.py [--models NeuMF BPR ...] [--dataset ml-100k] [--count 20] [--draws 4]

Prints one JSON line a model: for every shrinkage of the edges' covariance (1: standardised edges as they are)
the Spearman correlation of CUD with the outcome, raw and with the trivial columns of the score table held
fixed, mean over methods and over draws of five folds. Anchors are chosen among the other folds' users only.
"""

import argparse
import json

import numpy as np

from recunlearn.difficulty.anchors import choose_anchors
from recunlearn.difficulty.cud import cud
from recunlearn.difficulty.outcomes import hardness, part
from recunlearn.difficulty.similarity import Whitening, edge_scale, similarity
from recunlearn.difficulty.validity import correlations
from recunlearn.foundation.records import Outcomes, load_record
from recunlearn.foundation.settings import AnchorSettings, ScoreSettings, SimilaritySettings
from recunlearn.studies.stored import scored_run

SHRINKAGES = (0.09, 0.23, 0.5, 0.75, 0.9, 1.0)
TRIVIAL = ("n_interactions", "mean_item_popularity", "loss", "personalisation_gap")
FOLDS = 5


def held_out(outcomes: Outcomes, edges: np.ndarray, settings: AnchorSettings, fold: np.ndarray) -> np.ndarray:
    """CUD of every probed user from anchors of the other folds: ``[n]``."""
    values = np.full(len(fold), np.nan)
    for number in range(FOLDS):
        rows = np.flatnonzero(fold != number)
        anchors = choose_anchors(part(outcomes, rows=rows), settings)
        tested = np.flatnonzero(fold == number)
        sides = (
            similarity(edges[tested], edges[rows[side]], SimilaritySettings()).mean(1)
            for side in (anchors.easy, anchors.hard)
        )
        values[tested] = cud(*sides)
    return values


def figures(settings: ScoreSettings, count: int, draws: int) -> dict[str, dict[str, list[float]]]:
    """Shrinkage -> outcome -> raw and partial correlation."""
    run = scored_run(settings)
    outcomes = load_record(Outcomes, run.keys.probe)
    table = run.scores.table.set_index("user_id").loc[outcomes.entities.tolist()]
    controls = [table[c].to_numpy(np.float64) for c in TRIVIAL if table[c].notna().all()]
    place = {entity: row for row, entity in enumerate(run.circuits.entities.tolist())}
    pool = np.array([place[e] for e in outcomes.entities.tolist()])
    scaled = edge_scale(run.circuits.values).apply(run.circuits.values)
    traced = scaled[np.isfinite(scaled).all(1)]
    anchors = run.keys.settings.anchors.model_copy(update={"count": count})
    folds = [np.random.default_rng(d).permutation(len(pool)) % FOLDS for d in range(draws)]
    found: dict[str, dict[str, list[float]]] = {}
    for shrinkage in SHRINKAGES:
        edges = Whitening.of(traced, shrinkage).apply(scaled[pool])
        scores = [held_out(outcomes, edges, anchors, fold) for fold in folds]
        for kind in ("increase", "share-left"):
            truth = hardness(outcomes, kind).mean(1)
            pairs = [correlations(s, truth, controls, f, draws=0) for s, f in zip(scores, folds, strict=True)]
            means = [float(np.mean([getattr(p, k) for p in pairs])) for k in ("raw", "partial")]
            found.setdefault(str(shrinkage), {})[kind] = [round(m, 3) for m in means]
    return found


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--models", nargs="+", default=["NeuMF", "BPR", "DeepFM", "LightGCN", "SASRec"])
    options.add_argument("--dataset", default="ml-100k")
    options.add_argument("--count", type=int, default=20)
    options.add_argument("--draws", type=int, default=4)
    given = options.parse_args()
    for model in given.models:
        found = figures(ScoreSettings(dataset=given.dataset, model=model), given.count, given.draws)
        print(
            json.dumps(
                {"model": model, "dataset": given.dataset, "anchors": given.count, "raw, partial": found}
            )
        )


if __name__ == "__main__":
    main()
