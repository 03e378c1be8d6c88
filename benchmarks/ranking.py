"""Full-ranking evaluation against RecBole's own ``Trainer.evaluate``, on MovieLens-1M.

    python benchmarks/ranking.py ml-1m.zip [--models BPR NeuMF] [--epochs 2] [--repeats 5] [--threads 2]

Prints one JSON line: per model the medians of interleaved runs (seconds), their ratio, and the largest
difference of Recall, NDCG, MRR, Hit and Precision at 10 and 20. Both sides evaluate the same trained weights
on the same split (RecBole's defaults: every rating, 80/10/10 per user, d 64) with the same number of threads.
``prepare`` is what our side does once before the first evaluation.
"""

import argparse
import contextlib
import json
import statistics
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import torch

from recunlearn.subjects.recbole.compat import SafeConfig, importing, init_seed, model_class, quiet
from recunlearn.subjects.recbole.ranking import RankingTask

HEAD = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"


def write_atomic(archive: Path, folder: Path) -> None:
    """Write RecBole's interaction file from the official zip."""
    with zipfile.ZipFile(archive) as opened:
        text = opened.read("ml-1m/ratings.dat").decode("latin-1")
    (folder / "plain").mkdir()
    (folder / "plain" / "plain.inter").write_text(HEAD + text.replace("::", "\t"))


def recbole_run(model: str, folder: Path, epochs: int) -> tuple[Any, list[Any]]:
    """Trained trainer and loaders of RecBole itself."""
    from recbole.data import create_dataset, data_preparation
    from recbole.utils import get_trainer

    values = {
        "data_path": str(folder),
        "checkpoint_dir": str(folder / "saved"),
        "load_col": {"inter": ["user_id", "item_id"]},
        "metrics": ["Recall", "NDCG", "MRR", "Hit", "Precision"],
        "topk": [10, 20],
        "metric_decimal_place": 12,
        "epochs": epochs,
        "show_progress": False,
        "use_gpu": False,
    }
    with importing():
        config = SafeConfig(model=model_class(model), dataset="plain", config_dict=values)
    init_seed(config["seed"], config["reproducibility"])
    loaders = data_preparation(config, create_dataset(config))
    made = model_class(model)(config, loaders[0]._dataset)
    with importing():
        trainer = get_trainer(config["MODEL_TYPE"], model)(config, made)
    trainer.fit(loaders[0], None, saved=False, verbose=False)
    return trainer, loaders


def timed(call: Any) -> tuple[float, Any]:
    """Seconds and result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def compare(trainer: Any, loaders: list[Any], repeats: int) -> dict[str, float]:
    """Medians, ratio and largest difference for one model."""
    prepare, task = timed(lambda: RankingTask(*(loader._dataset for loader in loaders)))
    ours, theirs = [], []
    for _ in range(repeats):
        seconds, mine = timed(lambda: task.evaluate(trainer.model))
        ours.append(seconds)
        seconds, other = timed(lambda: trainer.evaluate(loaders[1], load_best_model=False))
        theirs.append(seconds)
    return {
        "prepare": round(prepare, 3),
        "ours": round(statistics.median(ours), 3),
        "recbole": round(statistics.median(theirs), 3),
        "ratio": round(statistics.median(theirs) / statistics.median(ours), 2),
        "max_difference": max(abs(mine[k] - float(other[k])) for k in other),
        "ndcg@10": round(mine["ndcg@10"], 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", type=Path, help="the official ml-1m.zip")
    parser.add_argument("--models", nargs="+", default=["BPR", "NeuMF"])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    line: dict[str, Any] = {"benchmark": "ranking", "threads": args.threads, "epochs": args.epochs}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_atomic(args.archive.resolve(), folder)
        with quiet(), contextlib.chdir(folder):
            for model in args.models:
                line[model] = compare(*recbole_run(model, folder, args.epochs), args.repeats)
    print(json.dumps(line))


if __name__ == "__main__":
    main()
