"""RecBole's own trainer, fed from files on disk: the oracle of the parity tests."""

import sys

import pandas as pd

from recunlearn.data.splits import split_interactions
from recunlearn.subjects.recbole.compat import Config, init_seed, quiet
from recunlearn.subjects.recbole.parameters import recbole_defaults, resolve

PARTS = ("train", "valid", "test")


def _write(table, types, path):
    headed = table.rename(columns={c: f"{c}:{types.get(c, 'token')}" for c in table.columns})
    headed.to_csv(path, sep="\t", index=False, float_format="%.17g")


def write_files(data, folder, *, kind, seed, name="plain"):
    """Atomic files of RecBole: benchmark parts for ``ratio``, one file for ``leave-one-out``."""
    folder = folder / name
    folder.mkdir(parents=True)
    columns = {"user_id": data.users[data.user], "item_id": data.items[data.item]}
    if data.rating is not None:
        columns["rating"] = data.rating
    if data.time is not None:
        columns["timestamp"] = data.time
    inter = pd.DataFrame(columns)
    types = {**data.feature_types, "rating": "float", "timestamp": "float"}
    if kind == "leave-one-out":
        _write(inter, types, folder / f"{name}.inter")
    else:
        split = split_interactions(data, kind, seed)
        for label, part in enumerate(PARTS):
            _write(inter[split == label], types, folder / f"{name}.{part}.inter")
    for suffix, table in (("user", data.user_features), ("item", data.item_features)):
        if table is not None:
            _write(table, types, folder / f"{name}.{suffix}")


def train(model, data, folder, *, seed, epochs, sequential=False, evaluated=False, **config):
    """Losses per epoch, the model after ``epochs`` and the trainer of RecBole itself."""
    write_files(data, folder, kind="leave-one-out" if sequential else "ratio", seed=seed)
    argv, sys.argv = sys.argv, ["plain"]
    try:
        with quiet():
            values = {**_config(model, folder, sequential), **config}
            return _train(model, values, seed, epochs, evaluated)
    finally:
        sys.argv = argv


def _config(model, folder, sequential):
    params = resolve(model, {})
    return {
        **{k: v for k, v in params.items() if k in recbole_defaults(model)},
        "data_path": str(folder),
        "checkpoint_dir": str(folder / "saved"),
        "benchmark_filename": None if sequential else list(PARTS),
        "normalize_all": None,
        "show_progress": False,
        "gpu_id": "",
        "use_gpu": False,
        "worker": 0,
    }


def _train(model, values, seed, epochs, evaluated):
    from recbole.data import create_dataset, data_preparation
    from recbole.trainer import Trainer

    config = Config(model=model, dataset="plain", config_dict={**values, "seed": seed, "epochs": epochs})
    init_seed(seed, reproducibility=True)
    loaders = data_preparation(config, create_dataset(config))
    init_seed(seed, reproducibility=True)
    made = config.model_class(config, loaders[0].dataset)
    trainer = Trainer(config, made)
    if evaluated:
        _fit_evaluated(trainer, loaders)
    else:
        trainer.fit(loaders[0], verbose=False, saved=False, show_progress=False)
    return list(trainer.train_loss_dict.values()), made, trainer


def _fit_evaluated(trainer, loaders):
    """Stop early as RecBole does; ``trainer.best``: epoch, validation score and test metrics of the best."""
    trainer.best = None

    def after_epoch(epoch, score):
        if trainer.best is None or score > trainer.best[1]:
            test = trainer.evaluate(loaders[2], load_best_model=False)
            trainer.best = (epoch + 1, float(score), {k: float(v) for k, v in test.items()})

    options = {"verbose": False, "saved": False, "show_progress": False}
    trainer.fit(loaders[0], loaders[1], callback_fn=after_epoch, **options)
