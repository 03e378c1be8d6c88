"""Circuits of every kind of RecBole model, untrained, on a cut of ml-100k: sources, names, completeness."""

import pytest
import torch
from recbole_runs import cut

from recunlearn.circuits.tracing import tracer
from recunlearn.foundation.errors import TraceError
from recunlearn.foundation.settings import CircuitSettings, ScoreSettings
from recunlearn.subjects.recbole.store import untrained_subject

SOURCES = {
    "LightGCN": {f"{side}_layer_{k}" for side in ("user", "item") for k in range(3)},
    "DGCF": {"user_layer_0", "user_layer_1", "item_layer_1"},
    "GCMC": {"user", "item", "item.negative"},
    "SpectralCF": {"user_layer_4", "item_layer_4", "item_layer_4.negative"},
    "MultiVAE": {"user.input"},
    "DMF": {"user.input", "item.input"},
    "FISM": {"item.src", "item.dst", "user.bias", "item.bias"},
    "SimpleX": {"user", "item", "item.negative"},
    "TransRec": {"user", "item", "item.bias", "item.negative"},
    "FiGNN": {"fields", "class"},
    "DeepFM": {"fields", "class", "linear", "linear.class"},
    "CORE": {"item.history", "position"},
    "SHAN": {"item.history", "user"},
}


@pytest.fixture(scope="module")
def data():
    return cut(3_000)


def run_of(model, data, **options):
    subject = untrained_subject(data, ScoreSettings(model=model))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in subject.model.parameters():  # away from zero, where nothing would change
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return subject, tracer(subject, CircuitSettings(**options))


@pytest.mark.parametrize("model", SOURCES)
def test_sources_are_named_and_edges_complete(model, data):
    subject, run = run_of(model, data)
    plan = run.plan
    assert {plan.components[i].name for i in plan.sources} >= SOURCES[model]
    batch = next(subject.batches(batch_size=12, per_entity=1))
    found = run.engine.explain(batch, n_steps=64)
    assert float(found.delta.abs().sum() / found.change.abs().sum()) < 0.01
    torch.testing.assert_close(
        found.value, subject.log_likelihood(subject.model, batch).detach(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("model", "baseline"),
    [
        *((m, "counterfactual") for m in ("LightGCN", "MultiVAE", "TransRec")),
        *((m, "zero") for m in ("LightGCN", "DMF", "TransRec")),
    ],
)
def test_other_baselines_are_complete_too(model, baseline, data):
    subject, run = run_of(model, data, baseline=baseline)
    found = run.engine.explain(next(subject.batches(batch_size=12, per_entity=1)), n_steps=64)
    assert float(found.delta.abs().sum() / found.change.abs().sum()) < 0.01


def test_a_baseline_without_a_direction_is_refused(data):
    """MultiVAE normalises its input row: along a ray from zero nothing changes but at zero itself."""
    with pytest.raises(
        TraceError, match=r"change of its score from the zero baseline. Choose another model or"
    ):
        run_of("MultiVAE", data, baseline="zero")


def test_deepfm_has_an_edge_for_every_pair_of_fields(data):
    _, run = run_of("DeepFM", data)
    edges = run.plan.edges
    assert {"fm.pair(user_id,item_id) -> output", "fm.pair(age,class) -> output"} <= set(edges)
    assert sum(e.startswith("fm.pair(") for e in edges) == 21  # 7 fields: 7 * 6 / 2
    assert {"fields.user_id[0] -> fm", "linear.user_id -> output"} <= set(edges)


def test_granularity_of_a_run(data):
    edges = {g: run_of("NeuMF", data, granularity=g)[1].plan.edges for g in ("module", "head", "unit")}
    assert set(edges["module"]) >= {"user.mf -> gmf", "gmf -> score", "user.mlp -> mlp.0", "score -> output"}
    assert edges["head"] == edges["module"]  # neither fields nor heads
    assert "user.mf[31] -> gmf" in edges["unit"]
