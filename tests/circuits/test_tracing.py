"""Circuits of entities: streamed means, known answers, and the four recommenders."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from recunlearn.circuits import tracing
from recunlearn.circuits.captum_path import source_attributions
from recunlearn.circuits.path import Path
from recunlearn.circuits.tracing import chunk_size, trace, tracer
from recunlearn.data.catalogue import load_interactions
from recunlearn.data.splits import take_rows
from recunlearn.foundation.settings import CircuitSettings, ScoreSettings, TrainingSettings
from recunlearn.testing.checkerboard import CheckerboardWorld

MODELS = ("BPR", "NeuMF", "DeepFM", "SASRec")


@pytest.fixture(scope="session", params=MODELS)
def recommender(request, tmp_path_factory):
    """A RecBole model trained for two epochs on a cut of ml-100k."""
    from recunlearn.subjects.recbole.store import train_subject

    log = load_interactions("ml-100k")
    cut = take_rows(log, np.flatnonzero((log.user < 60) & (log.item < 300)))
    settings = ScoreSettings(model=request.param, training=TrainingSettings(epochs=2))
    return train_subject(cut, settings, folder=tmp_path_factory.mktemp("model") / request.param)


def test_every_recommender_has_a_hundred_edges_and_is_complete(recommender):
    run = tracer(recommender, CircuitSettings(per_user=5))
    circuits = trace(run, np.arange(20))
    assert len(circuits.edges) >= 100
    assert len(set(circuits.edges)) == len(circuits.edges)
    assert circuits.values.shape == (20, len(circuits.edges))
    assert np.isfinite(circuits.values).all()
    assert np.nanmedian(circuits.gap) < 0.02  # ReLU kinks at 16 steps
    assert (circuits.n_samples <= 5).all()


def test_sources_of_every_recommender_get_captums_attribution(recommender, monkeypatch):
    """At Captum's own nodes: Gauss-Legendre."""
    x, w = np.polynomial.legendre.leggauss(16)
    legendre = Path(torch.tensor((x + 1) / 2).float(), torch.tensor(w / 2).float())
    monkeypatch.setattr(Path, "of", lambda *_: legendre)
    engine = tracer(recommender, CircuitSettings()).engine
    batch = next(recommender.batches(batch_size=12))
    oracle, delta = source_attributions(engine, batch, 16)
    found = engine.explain(batch, n_steps=16)
    at, leaving = 0, dict.fromkeys(engine.plan.sources, 0)
    for u, _, _ in engine.plan.reads:
        width = engine.plan.components[u].groups
        if u in leaving:
            leaving[u] = leaving[u] + found.edges[:, at : at + width]
        at += width
    for i, expected in zip(engine.plan.sources, oracle, strict=True):
        torch.testing.assert_close(
            leaving[i], engine.plan.components[i].group(expected), rtol=1e-4, atol=1e-5
        )
    ours = (found.delta + found.change).double()  # the tile's last point is not the actual one here
    change = engine.ends(batch).change.double()
    torch.testing.assert_close(ours - change, delta.double(), rtol=0, atol=1e-4)


def test_circuits_do_not_depend_on_chunk_threads_or_order(recommender, monkeypatch):
    settings = CircuitSettings(steps=4, per_user=6)
    users = np.arange(12)
    whole = trace(tracer(recommender, settings), users)
    monkeypatch.setattr(tracing, "chunk_size", lambda plan, steps: 3)
    run = replace(tracer(recommender, settings), workers=3)
    small = trace(run, users[::-1].copy())
    assert torch.get_num_threads() == 1
    np.testing.assert_allclose(small.values[::-1], whole.values, atol=1e-5)
    assert small.entities[::-1].tolist() == whole.entities.tolist()


def test_a_users_circuit_is_the_mean_over_their_interactions(recommender):
    run = tracer(recommender, CircuitSettings(steps=4))
    batch = next(recommender.batches(np.array([7]), batch_size=10_000))
    found = run.attribute(batch)
    circuits = trace(run, np.array([3, 7]))
    np.testing.assert_allclose(circuits.values[1], found.edges.mean(0).numpy(), atol=1e-6)
    relative = found.delta.abs().sum() / found.change.abs().sum()
    assert circuits.gap[1] == pytest.approx(float(relative), rel=1e-3)
    assert circuits.n_samples[1] == len(batch) == recommender.n_samples()[7]


@pytest.mark.parametrize(("score", "steps", "apart"), [("conductance", 6, 1e-5), ("eap-ig", 96, 2e-2)])
def test_captum_path_gives_the_same_circuits(recommender, score, steps, apart):
    """eap-ig has other nodes in Captum: kinks of ReLU keep the two quadratures a little apart."""
    settings = CircuitSettings(score=score, steps=steps, per_user=2)
    ours, theirs = (
        trace(tracer(recommender, settings.model_copy(update={"path": path})), np.arange(4)).values
        for path in ("chunked", "captum")
    )
    np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=apart * np.abs(ours).max())


def test_a_user_without_samples_has_no_circuit():
    world = CheckerboardWorld()
    run = tracer(world, CircuitSettings(steps=4))
    found = trace(run, np.arange(len(world.entities)))
    none = world.n_samples() == 0
    assert np.isnan(found.values[none]).all()
    assert np.isfinite(found.values[~none]).all()


def test_checkerboard_edges_have_a_closed_form():
    """Score w.(u*i) + b from zero baselines: u and i enter alike, so each carries half of the change.

    Along the path the score is a^2 w.(u*i) + b; both integrands are equal, and both edges together are
    log sigma(s) - log sigma(b).
    """
    world = CheckerboardWorld()
    run = tracer(world, CircuitSettings(groups=1, baseline="zero", steps=32))
    circuits = trace(run)
    user, item = (circuits.values[:, circuits.edges.index(f"{side} -> gmf")] for side in ("user", "item"))
    bias = torch.nn.functional.logsigmoid(world.model.out.bias.detach()).item()
    batch = next(world.batches(batch_size=10_000))
    value = world.log_likelihood(world.model, batch).detach()
    mean = torch.zeros(len(user)).index_add_(0, batch.entity, value).numpy() / world.n_samples()
    np.testing.assert_allclose(user, item, atol=1e-6)
    np.testing.assert_allclose(user + item, mean - bias, atol=1e-5)


def test_checkerboard_users_with_a_colour_have_stronger_circuits():
    """A user without a colour is explained by no edge: the model cannot tell their items from others."""
    world = CheckerboardWorld(random_users=8)
    circuits = trace(tracer(world, CircuitSettings(groups=1, baseline="zero")))
    strength = np.abs(circuits.values).sum(1)
    assert strength[world.colourless].max() < strength[~world.colourless].min()


def test_chunks_are_bounded_by_the_tile():
    world = CheckerboardWorld()
    plan = tracer(world, CircuitSettings()).plan
    floats = sum(int(np.prod(c.shape)) for c in plan.components)
    most = tracing.TILE_BYTES // (floats * 4 * 3)  # steps of one sample that just fit
    assert chunk_size(plan, most) == 16
    assert chunk_size(plan, most + 1) == 1
    wide = chunk_size(plan, 512)
    assert wide * 512 * floats * 4 * 3 <= tracing.TILE_BYTES or wide == 16


def test_edges_have_stable_names(recommender):
    first = tracer(recommender, CircuitSettings()).plan.edges
    again = tracer(recommender, CircuitSettings(), seed=5).plan.edges
    assert first == again
    sinks = pd.Series(first).str.split(" -> ").str[1]
    assert "output" in set(sinks)
