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
    assert {"fm.pair(user_id,item_id) -> output", "fm.pair(class,age) -> output"} <= set(edges)
    assert sum(e.startswith("fm.pair(") for e in edges) == 21  # 7 fields: 7 * 6 / 2
    assert {"fields.user_id[0] -> fm", "linear.user_id -> output"} <= set(edges)


@pytest.mark.parametrize("model", ["FM", "DeepFM", "FwFM", "FFM"])
@pytest.mark.parametrize("changed", ["user_id", "gender", "class"])
def test_pairs_are_named_after_the_fields_that_they_join(model, changed, data):
    """Another value of one field moves exactly the pairs that carry its name."""
    subject, run = run_of(model, data)
    batch = next(subject.batches(batch_size=12, per_entity=1))
    other = batch.columns[changed].clone()
    other[other > 0] = other[other > 0] % 2 + 1
    before, after = (run.engine.replay(b).leaves for b in (batch, batch.with_columns(**{changed: other})))
    (fm,) = (i for i, c in enumerate(run.plan.components) if c.name == "fm")
    moved = (before[fm] != after[fm]).flatten(2).any(2).any(0)
    labels = run.plan.components[fm].labels
    assert [
        changed in label.removeprefix(".pair(").removesuffix(")").split(",") for label in labels
    ] == moved.tolist()


@pytest.mark.parametrize(
    ("model", "source"),
    [
        ("LightGCN", "user_layer_0"),
        ("SpectralCF", "item_layer_0"),
        ("FISM", "item.bias"),
        ("NAIS", "item.bias"),
        ("GRU4RecF", "class"),
    ],
)
def test_the_padding_row_is_no_part_of_the_mean(model, source, data):
    subject, run = run_of(model, data)
    batch = next(subject.batches(batch_size=12, per_entity=1))
    before = run.attribute(batch).edges
    table = run.plan.components[run.plan.number(source)].table
    parameters = dict(subject.model.named_parameters())
    with torch.no_grad():
        parameters[table if table in parameters else f"{table}.weight"][0] += 5
    torch.testing.assert_close(run.attribute(batch).edges, before)


def test_fields_of_ffm_are_apart(data):
    """Every field begins at its own mean, in each of the tables."""
    subject, run = run_of("FFM", data)
    batch = next(subject.batches(batch_size=12, per_entity=1))
    assert "ffm.token.0.user_id[0] -> fm" in run.plan.edges
    place = run.plan.number("ffm.token.0")
    start = run.engine.ends(batch).starts[place][0]
    table, sizes = subject.model.ffm.token_embeddings[0].weight, subject.model.token_field_dims
    for field, rows in zip(start, table.detach().split([int(s) for s in sizes]), strict=True):
        torch.testing.assert_close(field, rows[1:].mean(0))


def test_granularity_of_a_run(data):
    edges = {g: run_of("NeuMF", data, granularity=g)[1].plan.edges for g in ("module", "head", "unit")}
    assert set(edges["module"]) >= {"user.mf -> gmf", "gmf -> score", "user.mlp -> mlp.0", "score -> output"}
    assert edges["head"] == edges["module"]  # neither fields nor heads
    assert "user.mf[31] -> gmf" in edges["unit"]
