"""Losses and weights are bit-equal to RecBole's own trainer, fed from files on disk, over two epochs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from plain_recbole import train

from recunlearn.data.catalogue import load_interactions
from recunlearn.data.splits import take_rows
from recunlearn.foundation.settings import ScoreSettings, TrainingSettings
from recunlearn.subjects.recbole.bundle import make_bundle
from recunlearn.subjects.recbole.training import fit

FEATURES = {"user": ["user_id", "age", "gender", "occupation"], "item": ["item_id", "release_year", "class"]}
SMALL = {
    "NeuMF": {"mf_embedding_size": 8, "mlp_embedding_size": 8, "mlp_hidden_size": [16, 8]},
    "BPR": {"embedding_size": 16},
    "LightGCN": {"embedding_size": 8, "n_layers": 2},
    "DeepFM": {"embedding_size": 8, "mlp_hidden_size": [16, 16]},
    "SASRec": {"hidden_size": 16, "inner_size": 16},
}


@pytest.fixture(scope="module")
def ml_100k():
    return load_interactions("ml-100k")


def check(model, data, tmp_path, monkeypatch, seed=7, **options):
    monkeypatch.chdir(tmp_path)
    params = SMALL[model]
    losses, expected, _ = train(model, data, tmp_path, seed=seed, epochs=2, **params, **options)
    settings = ScoreSettings(model=model, seed=seed, training=TrainingSettings(params=params))
    ours = fit(make_bundle(data, settings), epochs=2, patience=None)
    assert ours.losses == losses
    weights, reference = ours.model.state_dict(), expected.state_dict()
    assert weights.keys() == reference.keys()
    assert all(torch.equal(weights[k], reference[k]) for k in reference)


@pytest.mark.parametrize("model", ["BPR", "NeuMF", "LightGCN"])
def test_general_models(model, ml_100k, tmp_path, monkeypatch):
    check(model, ml_100k, tmp_path, monkeypatch, load_col={"inter": ["user_id", "item_id"]})


def test_deepfm_with_features_and_labels(ml_100k, tmp_path, monkeypatch):
    load = {"inter": ["user_id", "item_id", "rating", "timestamp"], **FEATURES}
    check("DeepFM", ml_100k, tmp_path, monkeypatch, load_col=load, threshold={"rating": 4})


def test_sasrec_on_10_000_rows(ml_100k, tmp_path, monkeypatch):
    # RecBole rounds times to float32; ranks survive that, so both sides see the same order.
    rows = np.flatnonzero(ml_100k.user < np.flatnonzero(np.cumsum(np.bincount(ml_100k.user)) > 10_000)[0])
    cut = take_rows(ml_100k, rows)
    ranks = np.unique(cut.time, return_inverse=True)[1].astype(np.float64)
    assert 9_000 < len(cut) <= 10_000
    check(
        "SASRec",
        replace(cut, time=ranks, user_features=None, item_features=None),
        tmp_path,
        monkeypatch,
        sequential=True,
        load_col={"inter": ["user_id", "item_id", "timestamp"]},
    )
