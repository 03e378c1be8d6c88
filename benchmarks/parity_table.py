"""RecBole's own trainer against ours on ml-100k, full length: writes docs/results/parity-ml-100k.md.

Run ``python benchmarks/parity_table.py``; a second call continues where the first one stopped. Both sides get
the same split, the same parameters (ours) and the same early stopping; RecBole reads files and uses its own
loaders, loop and metrics.
"""

import argparse
import contextlib
import json
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "subjects")]

from plain_recbole import train  # noqa: E402

from recunlearn.data.catalogue import load_interactions  # noqa: E402
from recunlearn.foundation.settings import ScoreSettings, TrainingSettings  # noqa: E402
from recunlearn.foundation.store import atomic_file  # noqa: E402
from recunlearn.subjects.recbole.bundle import make_bundle  # noqa: E402
from recunlearn.subjects.recbole.evaluation import evaluate, main_metric  # noqa: E402
from recunlearn.subjects.recbole.parameters import epochs_of  # noqa: E402
from recunlearn.subjects.recbole.training import fit  # noqa: E402

TABLE = ROOT / "docs" / "results" / "parity-ml-100k.md"
ROWS = TABLE.with_suffix(".jsonl")
MODELS, SEEDS = ("BPR", "NeuMF", "LightGCN", "DeepFM"), (0, 1, 2)
LOADED = {"inter": ["user_id", "item_id"]}
LABELLED = {
    "load_col": {
        "inter": ["user_id", "item_id", "rating", "timestamp"],
        "user": ["user_id", "age", "gender", "occupation"],
        "item": ["item_id", "release_year", "class"],
    },
    "threshold": {"rating": 4},
}
RANKED = {"load_col": LOADED, "valid_metric": "NDCG@10"}


def recbole_side(model, seed, data, settings):
    options = LABELLED if model == "DeepFM" else RANKED
    # RecBole stops after more than stopping_step epochs without a better score, we after patience of them.
    options = {**options, "stopping_step": settings.training.patience - 1, "metric_decimal_place": 10}
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        options["eval_batch_size"] = 1 << 20
        epochs = epochs_of(settings)
        _, _, trainer = train(model, data, Path(folder), seed=seed, epochs=epochs, evaluated=True, **options)
    epoch, score, test = trainer.best
    return {"epoch": epoch, "valid": score, "test": test, "seconds": time.perf_counter() - start}


def our_side(model, data, settings):
    start = time.perf_counter()
    bundle = make_bundle(data, settings)
    fitted = fit(bundle, epochs=epochs_of(settings), patience=settings.training.patience)
    test = evaluate(bundle, fitted.model, "test")
    valid = fitted.valid[fitted.best_epoch - 1][main_metric(bundle)]
    return {"epoch": fitted.best_epoch, "valid": valid, "test": test, "seconds": time.perf_counter() - start}


def write_table(rows):
    lines = [
        "# Parity with RecBole's own trainer on ml-100k",
        "",
        "Command: `python benchmarks/parity_table.py` (one thread; split 80/10/10 per user, by seed).",
        "Same parameters and early stopping on both sides; RecBole reads files and uses its own loaders,",
        "loop and metrics (evaluation in large batches). Epoch: the one with the best validation score,",
        "whose weights are tested. Seconds include data preparation and evaluation, on a shared machine.",
        "",
        "Versions: "
        + ", ".join(f"{p} {version(p)}" for p in ("recbole", "torch", "lightning", "numpy"))
        + f", Python {platform.python_version()}.",
        "",
        "| model | seed | metric | RecBole | ours | difference | epoch | seconds (RecBole / ours) |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        theirs, ours = row["recbole"], row["ours"]
        same = theirs["epoch"] == ours["epoch"]
        epoch = ours["epoch"] if same else f"{theirs['epoch']} / {ours['epoch']}"
        for metric in ("auc", "logloss") if row["model"] == "DeepFM" else ("ndcg@10",):
            a, b = theirs["test"][metric], ours["test"][metric]
            lines.append(
                f"| {row['model']} | {row['seed']} | {metric} | {a:.6f} | {b:.6f} | {b - a:+.1e} "
                f"| {epoch} | {theirs['seconds']:.0f} / {ours['seconds']:.0f} |"
            )
    with atomic_file(TABLE) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--epochs", type=int, help="at most (default: the model's)")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.is_file() else []
    data = load_interactions("ml-100k")
    for model in chosen.models:
        for seed in chosen.seeds:
            if any((r["model"], r["seed"]) == (model, seed) for r in rows):
                continue
            settings = ScoreSettings(model=model, seed=seed, training=TrainingSettings(epochs=chosen.epochs))
            row = {"model": model, "seed": seed, "ours": our_side(model, data, settings)}
            row["recbole"] = recbole_side(model, seed, data, settings)
            rows.append(row)
            with atomic_file(ROWS) as temporary:
                temporary.write_text("".join(json.dumps(r) + "\n" for r in rows))
            write_table(rows)
            print(json.dumps({"model": model, "seed": seed, "ours": row["ours"]["test"]}), flush=True)


if __name__ == "__main__":
    main()
