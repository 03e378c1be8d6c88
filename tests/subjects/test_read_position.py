"""The last layer at the one position that a score reads: edges as with all positions, and when it applies."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from recbole_runs import cut

from recunlearn.circuits.ablation import Ablation
from recunlearn.circuits.attribution import EdgeAttribution
from recunlearn.circuits.discovery import discover
from recunlearn.circuits.tracing import side_by_side, tracer
from recunlearn.circuits.trust import check_trust
from recunlearn.foundation.errors import TraceError
from recunlearn.foundation.settings import CircuitSettings, ScoreSettings, TrainingSettings
from recunlearn.subjects.recbole.item_scores import HISTORY, LENGTH
from recunlearn.subjects.recbole.read_position import at_read_position, reads_one_position
from recunlearn.subjects.recbole.store import untrained_subject

TWO_LAYERS = {"n_layers": 2}
MODELS = {
    "SASRec": ("SASRec", {}),
    "SASRec of two layers": ("SASRec", TWO_LAYERS),
    "SASRecF": ("SASRecF", {}),
    "BERT4Rec": ("BERT4Rec", {}),
    "BERT4Rec of two layers": ("BERT4Rec", TWO_LAYERS),
    "FDSA": ("FDSA", {}),
    "GCSAN": ("GCSAN", {}),
    "LightSANs": ("LightSANs", {}),
    "FEARec": ("FEARec", {}),
}


@pytest.fixture(scope="module")
def data():
    return cut(3_000)


def subject_of(data, model, params=None):
    training = TrainingSettings(params=params or {})
    subject = untrained_subject(data, ScoreSettings(model=model, training=training))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in subject.model.parameters():  # away from zero, where nothing would change
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return subject


class AsItIs:
    """The same subject without the shortcut."""

    def __init__(self, subject):
        self.model, self.log_likelihood = subject.model, subject.log_likelihood
        self.known = replace(subject.hints(), shortcut=None)

    def hints(self):
        return self.known


def engines(subject, batch, **options):
    return [
        EdgeAttribution(s, discover(s, batch, **options), baseline="mean") for s in (subject, AsItIs(subject))
    ]


def last_lengths(engine):
    """Positions of the last attention's output and of the norm after the feed-forward layers."""
    shapes = {c.name: c.shape for c in engine.plan.components}
    ends = [n for n in shapes if n.startswith("attention.") and n.endswith(".out")]
    return {shapes[ends[-1]][0], shapes[max(n for n in shapes if n.startswith("ffn."))][0]}


@pytest.mark.parametrize("name", MODELS)
def test_edges_are_those_of_all_positions(name, data):
    subject = subject_of(data, *MODELS[name])
    batch = next(subject.batches(batch_size=12, per_entity=1))
    for options in ({}, {"granularity": "head", "sinks": "head"}):
        short, plain = engines(subject, batch, **options)
        assert last_lengths(short) == {1} != last_lengths(plain)
        assert short.plan.edges == plain.plan.edges
        assert short.plan.graph == plain.plan.graph
        for method in ("eap-ig", "conductance"):
            found, expected = (e.explain(batch, method=method) for e in (short, plain))
            scale, moved = (float(t.abs().max()) for t in (expected.edges, expected.change))
            torch.testing.assert_close(found.edges, expected.edges, rtol=0, atol=1e-5 * scale)
            torch.testing.assert_close(found.delta, expected.delta, rtol=0, atol=1e-5 * moved)
            torch.testing.assert_close(found.value, expected.value, rtol=1e-5, atol=1e-6)


def test_edges_of_one_plan_hold_for_the_other_way(data):
    """A plan that was found with all positions is replayed by the shortcut, and the other way round."""
    subject = subject_of(data, "SASRec")
    batch = next(subject.batches(batch_size=12, per_entity=1))
    short, plain = engines(subject, batch)
    expected = plain.attribute(batch)
    for engine in (EdgeAttribution(subject, plain.plan), EdgeAttribution(AsItIs(subject), short.plan)):
        torch.testing.assert_close(
            engine.attribute(batch), expected, rtol=0, atol=1e-5 * float(expected.abs().max())
        )


@pytest.mark.parametrize("model", ["SASRec", "BERT4Rec"])
def test_exact_ablation_is_that_of_all_positions(model, data):
    subject = subject_of(data, model)
    batch = next(subject.batches(batch_size=4, per_entity=1))
    short, plain = (Ablation(e, batch) for e in engines(subject, batch, groups=2))
    expected = plain.single()
    torch.testing.assert_close(short.single(), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    keep = torch.rand(3, 4, len(plain.edges), generator=torch.Generator().manual_seed(0)) < 0.5
    torch.testing.assert_close(short.kept(keep), plain.kept(keep), rtol=1e-5, atol=1e-5)


def test_tracing_leaves_the_model_as_it_was(data):
    subject = subject_of(data, "SASRec")
    model, batch = subject.model, next(subject.batches(batch_size=12, per_entity=1))
    before = subject.log_likelihood(model, batch)
    engine = EdgeAttribution(subject, discover(subject, batch))
    engine.attribute(batch)
    assert torch.equal(subject.log_likelihood(model, batch), before)
    assert "gather_indexes" not in vars(model)
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
    model.train()
    assert subject.hints().shortcut is not None
    assert all(m.training for m in model.modules())


def test_batches_side_by_side_do_not_share_a_position(data):
    subject = subject_of(data, "SASRec")
    run = replace(tracer(subject, CircuitSettings()), workers=2)
    for batch, found in side_by_side(run, subject.batches(np.arange(40), batch_size=64)):
        torch.testing.assert_close(found.edges, run.attribute(batch).edges, rtol=1e-4, atol=1e-6)


def read(model, how):
    """The model as if its score read its last layer in another way."""
    model.__dict__["gather_indexes"] = how
    return model


@pytest.mark.parametrize(
    "how",
    [
        lambda output, index: output.mean(1),
        lambda output, index: output[:, -1],
        lambda output, index: output[torch.arange(len(output)), (index - 1).clamp_min(0)],
    ],
    ids=["all positions", "the last column", "the step before the last"],
)
def test_a_score_that_reads_another_position_is_left_as_it_is(how, data):
    subject = subject_of(data, "SASRec")
    assert subject.hints().shortcut is not None
    read(subject.model, how)
    assert subject.hints().shortcut is None
    assert subject.model.__dict__["gather_indexes"] is how


@pytest.mark.parametrize("model", ["CORE", "GRU4Rec", "NextItNet"])
def test_a_model_without_such_a_layer_is_left_as_it_is(model, data):
    """CORE weighs all positions of its encoder; the others have no attention."""
    assert subject_of(data, model).hints().shortcut is None


def test_full_histories_alone_tell_nothing(data):
    """Where every history fills its columns, the last step and the last column cannot be told apart."""
    subject = subject_of(data, "SASRec")
    samples = next(subject.batches(batch_size=4096))
    full = samples[samples.columns[LENGTH] == samples.columns[HISTORY].shape[1]]
    assert len(full) > 1
    assert reads_one_position(subject.log_likelihood, subject.model, samples[:32])
    assert not reads_one_position(subject.log_likelihood, subject.model, full)


def test_a_shortcut_to_another_score_is_refused(data):
    """The trial of an engine holds the shortcut to the model's own score."""
    subject = subject_of(data, "SASRec")
    batch = next(subject.batches(batch_size=7, per_entity=1))

    def wrong(model, given):
        return at_read_position(model, given.with_columns(**{LENGTH: given.columns[LENGTH].clamp_max(2)}))

    twin = AsItIs(subject)
    twin.known = replace(twin.known, shortcut=wrong)
    with pytest.raises(TraceError, match="its pass along the components does not give its own score"):
        check_trust(EdgeAttribution(twin, discover(twin, batch)), batch)
