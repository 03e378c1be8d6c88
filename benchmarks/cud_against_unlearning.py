"""CUD against what unlearning really did to users that are neither anchors nor in the probe pool.

    python benchmarks/cud_against_unlearning.py [--dataset ml-100k] [--model NeuMF] [--seed 0] [--users 300]

Unlearns a second random pool with every method at the budgets of the first, draws CUD (scored beforehand)
against the increase of loss, and prints one JSON line: Spearman of CUD and -increase per method with a 95 %
bootstrap interval over users; for the mean of the methods also with the trivial columns of the score table
held fixed, and of those columns themselves. One seed, one pool: an illustration, not a validity study.
"""

import argparse
import json
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt
from scipy.stats import bootstrap, spearmanr

from recunlearn.difficulty.statistics import partial_spearman
from recunlearn.foundation.records import Outcomes, load_record
from recunlearn.foundation.settings import ScoreSettings
from recunlearn.studies.keys import keys_for
from recunlearn.studies.losses import entity_losses, samples
from recunlearn.studies.methods import find
from recunlearn.studies.pool import rest_of
from recunlearn.studies.score_stages import trained
from recunlearn.studies.scoring import Listener, scored_users
from recunlearn.studies.unlearn import BATCH, Budget, Trainer

TRIVIAL = ("n_interactions", "mean_item_popularity", "loss", "personalisation_gap")
COLOURS = {"easy": "#2a9d5c", "medium": "#d8a31a", "hard": "#c8453c"}


def increases(settings: ScoreSettings, users: int) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """Score table of the second pool, and the increase of loss per method ``[users]``."""
    keys = keys_for(settings)
    table = scored_users(settings).table.set_index("user_id")
    subject = trained(keys, Listener())
    outcomes = load_record(Outcomes, keys.probe)
    outside = ~np.isin(subject.entities, outcomes.entities) & (subject.n_samples() >= 2)
    rng = np.random.default_rng(settings.seed)
    pool = np.sort(rng.choice(np.flatnonzero(outside), min(users, outside.sum()), replace=False))
    batches = samples(subject, pool, settings.seed)
    before = entity_losses(subject, subject.model, batches, pool)
    trainer = Trainer(subject, pool, rest_of(subject, pool), keys.settings.anchors.batch_size or BATCH)
    found = {}
    for name, steps in outcomes.budgets.items():
        rate = outcomes.settings["learning_rates"][name]
        model = trainer.unlearned(find(name), Budget(steps, rate, True), seed=settings.seed)
        found[name] = entity_losses(subject, model, batches, pool) - before
    return table.loc[subject.entities[pool].tolist()], found


def draw(cud: np.ndarray, increase: np.ndarray, bands: np.ndarray, title: str, file: Path) -> None:
    """Scatter of CUD against the mean increase, with the median of each fifth of the users."""
    figure, axes = plt.subplots(figsize=(7, 4.2), dpi=150)
    for band, colour in COLOURS.items():
        rows = bands == band
        axes.scatter(cud[rows], increase[rows], s=14, color=colour, alpha=0.75, label=band, linewidths=0)
    edges = np.quantile(cud, np.linspace(0, 1, 6))
    fifth = np.clip(np.searchsorted(edges, cud, side="right") - 1, 0, 4)
    middle = [(np.median(cud[fifth == k]), np.median(increase[fifth == k])) for k in range(5)]
    axes.plot(
        *zip(*middle, strict=True),
        color="black",
        marker="o",
        linewidth=1.5,
        label="median of a fifth of the users",
    )
    axes.set_xlabel("CUD, computed before unlearning (0 easy, 1 hard)")
    axes.set_ylabel("increase of the user's loss\nby unlearning (mean of the methods)")
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(file)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--dataset", default="ml-100k")
    options.add_argument("--model", default="NeuMF")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--users", type=int, default=300)
    options.add_argument("--out", type=Path, default=Path("docs/results"))
    given = options.parse_args()
    settings = ScoreSettings(dataset=given.dataset, model=given.model, seed=given.seed)
    chosen, found = increases(settings, given.users)
    cud, bands = chosen["cud"].to_numpy(), chosen["band"].to_numpy()
    trivial = [c for c in TRIVIAL if chosen[c].notna().all()]
    figures = {}
    for name, values in found.items():
        result = bootstrap(
            (cud, -values), lambda a, b: spearmanr(a, b)[0], paired=True, vectorized=False, n_resamples=500,
            method="percentile", rng=np.random.default_rng(0),
        )  # fmt: skip
        low, high = result.confidence_interval
        figures[name] = {
            "spearman": round(float(spearmanr(cud, -values)[0]), 3),
            "low": round(low, 3),
            "high": round(high, 3),
        }
    mean = np.mean(list(found.values()), axis=0)
    rho = spearmanr(cud, -mean)[0]
    title = f"{given.model} on {given.dataset}: {len(cud)} users that are no anchors, Spearman {-rho:.2f}"
    file = given.out / f"cud-{given.dataset}-{given.model}.png"
    draw(cud, mean, bands, title, file)
    print(
        json.dumps(
            {
                "dataset": given.dataset,
                "model": given.model,
                "seed": given.seed,
                "users": len(cud),
                "methods": figures,
                "mean": round(float(rho), 3),
                "partial": round(partial_spearman(cud, -mean, [chosen[c].to_numpy() for c in trivial]), 3),
                "trivial": {c: round(float(spearmanr(chosen[c], -mean)[0]), 3) for c in trivial},
                "figure": str(file),
            }
        )
    )


if __name__ == "__main__":
    main()
