"""RecBole's own loaders, trainer and evaluator on files in a temporary folder: the oracle of these tests."""

import contextlib

import numpy as np
from plain_recbole import write_files

from recunlearn.data.catalogue import load_interactions
from recunlearn.data.splits import take_rows
from recunlearn.subjects.recbole.compat import Config, SafeConfig, importing, init_seed, model_class, quiet

LABELLED = {
    "metrics": ["AUC", "LogLoss"],
    "valid_metric": "AUC",
    "eval_args": {
        "mode": "labeled",
        "split": {"RS": [0.8, 0.1, 0.1]},
        "order": "RO",
        "group_by": "user",
    },
    "load_col": {
        "inter": ["user_id", "item_id", "rating"],
        "user": ["user_id", "age", "gender"],
        "item": ["item_id", "class"],
    },
    "threshold": {"rating": 4},
    "train_neg_sample_args": None,
}
TINY_SASREC = {
    "train_neg_sample_args": None,
    "n_layers": 1,
    "hidden_size": 16,
    "inner_size": 16,
    "MAX_ITEM_LIST_LENGTH": 5,
}


class MySettings(SafeConfig):
    """A user's subclass, as its name ends up in a checkpoint."""


def cut(rows=12_000):
    """The first rows of ml-100k."""
    return take_rows(load_interactions("ml-100k"), np.arange(rows))


class Run:
    """A RecBole run on ``data``: ``trainer``, ``model``, ``loaders`` (train, valid, test) and ``parts``."""

    def __init__(self, data, folder, model, kind=MySettings, **config):
        from recbole.data import create_dataset, data_preparation
        from recbole.utils import get_trainer

        write_files(data, folder, kind="leave-one-out", seed=0)
        values = {
            "data_path": str(folder),
            "checkpoint_dir": str(folder / "saved"),
            "load_col": {"inter": ["user_id", "item_id", "timestamp"]},
            "metrics": ["Recall", "NDCG", "MRR", "Hit", "Precision"],
            "topk": [10, 20],
            "train_batch_size": 512,
            "show_progress": False,
            "use_gpu": False,
            "gpu_id": "",
            **config,
        }
        with importing(), contextlib.chdir(folder):
            self.config = kind(model=model, dataset="plain", config_dict=values)
            init_seed(self.config["seed"], self.config["reproducibility"])
            self.loaders = data_preparation(self.config, create_dataset(self.config))
            self.parts = [loader._dataset for loader in self.loaders]
            init_seed(self.config["seed"], self.config["reproducibility"])
            self.model = model_class(model)(self.config, self.parts[0])
            self.trainer = get_trainer(self.config["MODEL_TYPE"], model)(self.config, self.model)
        self.folder = folder

    def fit(self, saved=False):
        with quiet(), contextlib.chdir(self.folder):
            self.trainer.fit(self.loaders[0], self.loaders[1], saved=saved, verbose=False)
        return self

    def evaluate(self, phase):
        with quiet(), contextlib.chdir(self.folder):
            found = self.trainer.evaluate(self.loaders[phase], load_best_model=False)
        return {k: float(v) for k, v in found.items()}


__all__ = ["LABELLED", "TINY_SASREC", "Config", "MySettings", "Run", "cut"]
