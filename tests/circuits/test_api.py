"""The public face of edge attribution: names, parts of sinks, refusals, bounded memory."""

import contextlib
import warnings

import pytest
import torch
from nets import attention, neumf, score
from torch import nn

from recunlearn.circuits.attribution import EdgeAttribution
from recunlearn.circuits.baselines import counterfactual_rows, table_means
from recunlearn.circuits.discovery import discover
from recunlearn.circuits.subject import ModuleSubject
from recunlearn.foundation.errors import TraceError, UsageError
from recunlearn.subjects.contract import Batch, PlanHints

HINTS = {neumf: PlanHints(), attention: PlanHints(padding={"item": 0})}


def engine_of(net, *, metric=score, **options):
    model, batch = net()
    subject = ModuleSubject(model, metric, HINTS[net])
    return EdgeAttribution(subject, discover(subject, batch, **options)), batch


@pytest.mark.parametrize("net", [neumf, attention])
@pytest.mark.parametrize("method", ["eap-ig", "conductance"])
def test_parts_of_a_sink_sum_to_the_whole_sink(net, method):
    whole, batch = engine_of(net, groups=2)
    split, _ = engine_of(net, groups=2, sinks="unit")
    a, b = (e.attribute(batch, n_steps=6, method=method) for e in (whole, split))
    assert b.shape[1] > a.shape[1]
    assert split.plan.segments > whole.plan.segments
    for (u, v, _), columns in whole.plan.columns.items():
        parts = [b[:, s] for (x, y, _), s in split.plan.columns.items() if (x, y) == (u, v)]
        torch.testing.assert_close(torch.stack(parts).sum(0), a[:, columns])


def test_part_of_a_linear_sink_by_hand():
    """Group to group: S(a, b) = sum over a of change_u[a] W[b, a] g_v[b], with g_v the mean gradient."""
    engine, batch = engine_of(neumf, groups=4, sinks="unit")
    plan, model = engine.plan, engine.model
    edges = engine.attribute(batch, n_steps=8)
    hidden = next(i for i, c in enumerate(plan.components) if c.place == "hidden")
    out = next(i for i, c in enumerate(plan.components) if c.place == "out")
    user = next(i for i, c in enumerate(plan.components) if c.table == "user_mlp")
    ends = engine.ends(batch)
    # What leaves "hidden" towards "out" is change_hidden * g_hidden, unit by unit.
    leaving = edges[:, plan.columns[hidden, out, 0]]
    g = leaving / ends.changes[hidden]
    for b in range(3):
        expected = ends.changes[user] * model.hidden.weight[b, :4] * g[:, b : b + 1]
        torch.testing.assert_close(edges[:, plan.columns[user, hidden, b]], expected, rtol=1e-6, atol=1e-9)


def test_edges_carry_the_names_of_both_parts():
    plan = engine_of(attention, granularity="unit", sinks="unit")[0].plan
    assert len(set(plan.edges)) == len(plan.edges)
    assert plan.graph.sink_group.count("") < len(plan.edges)
    for e in (0, len(plan.edges) // 2, len(plan.edges) - 1):
        g = plan.graph
        source = g.nodes[g.source[e]] + g.source_group[e]
        assert plan.edges[e] == f"{source} -> {g.nodes[g.sink[e]]}{g.sink_group[e]}"


def test_captums_conventions():
    engine, batch = engine_of(neumf)
    edges = engine.attribute(batch, n_steps=4)
    both = engine.attribute(batch, n_steps=4, return_convergence_delta=True)
    assert isinstance(edges, torch.Tensor)
    assert torch.equal(both[0], edges)
    assert both[1].shape == (len(batch),)
    sources = [e for s in engine.plan.sources for e in engine.plan.columns_of(engine.plan.graph.nodes[s])]
    change = engine.explain(batch, n_steps=4).change
    torch.testing.assert_close(edges[:, sources].sum(1) - change, both[1])


def test_names_that_do_not_exist_are_refused_with_the_near_miss():
    plan = engine_of(neumf)[0].plan
    name = plan.graph.nodes[0]
    with pytest.raises(UsageError, match=rf"no component '{name}x'\. Did you mean {name}\?"):
        plan.number(f"{name}x")
    assert plan.number("output") == len(plan.components)
    entering = plan.columns_of(sink="output")
    assert entering == [e for e, v in enumerate(plan.graph.sink) if v == len(plan.components)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_steps": 0}, "at least 2 steps, but got n_steps=0"),
        ({"n_steps": 1}, "at least 2 steps"),
        ({"internal_batch_size": 0}, "internal_batch_size must be at least 1, but got 0"),
        ({"method": "eap_ig"}, r"Unknown edge score 'eap_ig'\. Did you mean eap-ig\?"),
    ],
)
def test_options_that_make_no_sense(options, sentence):
    engine, batch = engine_of(neumf)
    with pytest.raises(UsageError, match=sentence):
        engine.attribute(batch, **options)


def test_unknown_granularity():
    with pytest.raises(UsageError, match=r"Unknown sinks 'heads'\. Did you mean head\?"):
        engine_of(neumf, sinks="heads")


def test_an_empty_batch():
    engine, batch = engine_of(neumf)
    with pytest.raises(UsageError, match="The batch is empty"):
        engine.attribute(batch[:0])


def test_one_sample_is_too_few_for_a_plan():
    model, batch = neumf()
    with pytest.raises(UsageError, match="at least 2 samples to be found with, but got 1"):
        discover(ModuleSubject(model, score), batch[:1])


def test_a_batch_on_another_device():
    engine, batch = engine_of(neumf)
    with pytest.raises(UsageError, match=r"model is on cpu, but the column 'user' of the batch on meta"):
        engine.attribute(batch.to("meta"))


def test_dropout_that_is_on_is_refused():
    model, batch = neumf()
    model.act = nn.Sequential(nn.Tanh(), nn.Dropout(0.5)).eval()
    subject = ModuleSubject(model, score)
    engine = EdgeAttribution(subject, discover(subject, batch))
    engine.attribute(batch, n_steps=2)
    model.train()
    with pytest.raises(UsageError, match=r"Dropout is on \('act.1', p=0.5\)"):
        engine.attribute(batch, n_steps=2)


def test_a_component_that_is_no_number_is_named():
    engine, batch = engine_of(neumf)
    name = next(c.name for c in engine.plan.components if c.place == "hidden")
    with torch.no_grad():
        engine.model.hidden.weight.fill_(float("inf"))
    with pytest.raises(TraceError, match=f"component '{name}' is not a finite number"):
        engine.attribute(batch)


def test_a_gradient_that_is_no_number_is_named():
    """sqrt(0) has no derivative: the metric is finite, the edge is not."""
    model, batch = neumf()
    subject = ModuleSubject(model, lambda m, b: score(m, b) + (m.user(b.columns["user"]) * 0).sum(-1).sqrt())
    engine = EdgeAttribution(subject, discover(subject, batch, groups=1))
    with pytest.raises(TraceError, match=r"along the edge 'user.* -> output' is not a finite number"):
        engine.attribute(batch)


def test_a_baseline_that_equals_the_input_is_said():
    engine, batch = engine_of(neumf)
    with torch.no_grad():
        for table in (engine.model.user, engine.model.user_mlp, engine.model.item, engine.model.item_mlp):
            table.weight[1:] = 0.0  # the mean row is not zero: row 0 is not
            table.weight[0] = 0.0
    found = engine.explain(batch, n_steps=3)
    assert found.degenerate.all()
    assert (found.edges == 0).all()
    other, batch = engine_of(neumf)
    assert not other.explain(batch, n_steps=3).degenerate.any()


def test_memory_is_bounded_by_the_tile_whatever_the_batch():
    """No pass ever sees more rows than internal_batch_size samples times n_steps."""
    seen = []

    def counted(model, batch):
        seen.append(len(batch))
        return score(model, batch)

    engine, batch = engine_of(neumf, metric=counted)
    long = batch.tile(40)
    seen.clear()
    engine.attribute(long, n_steps=4, internal_batch_size=5)
    assert max(seen) <= 5 * 4
    assert sum(seen) >= len(long) * 4


@pytest.mark.parametrize("method", ["eap-ig", "conductance"])
def test_the_order_of_the_batch_does_not_matter(method):
    engine, batch = engine_of(attention)
    order = torch.tensor([2, 0, 1])
    a, b = (engine.attribute(x, n_steps=5, method=method) for x in (batch, batch[order]))
    torch.testing.assert_close(b, a[order])


class Shared(nn.Module):
    """Two linear layers read one and the same activation: their segments share the tanh."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.a, self.b, self.c = (
            nn.Embedding(6, 4),
            nn.Linear(4, 4),
            nn.Linear(4, 4),
            nn.Linear(4, 4),
        )

    def forward(self, index):
        x = torch.tanh(self.a(self.table(index)))
        return (self.b(x) * self.c(x)).sum(-1)


def test_segments_that_share_an_operation():
    """Freed for the first of them, it would be gone for the second."""
    batch = Batch.of(index=torch.arange(6))
    subject = ModuleSubject(Shared().double().eval(), lambda m, b: m(b.columns["index"]))
    engine = EdgeAttribution(subject, discover(subject, batch, groups=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = engine.attribute(batch, n_steps=6, internal_batch_size=2)
    assert engine.shared
    torch.testing.assert_close(engine.attribute(batch, n_steps=6), first)
    found = engine.explain(batch, n_steps=24)
    torch.testing.assert_close(found.delta, torch.zeros(6).double(), rtol=0, atol=1e-9)


def test_an_unknown_baseline_is_refused_not_taken_for_another():
    model, batch = neumf()
    subject = ModuleSubject(model, score)
    with pytest.raises(UsageError, match=r"Unknown baseline 'means'\. Did you mean mean\?"):
        EdgeAttribution(subject, discover(subject, batch), baseline="means")


def test_names_that_are_no_text():
    with pytest.raises(UsageError, match="Unknown granularity 'None'"):
        engine_of(neumf, granularity=None)
    with pytest.raises(UsageError, match="no component '3'"):
        engine_of(neumf)[0].plan.columns_of(source=3)


@pytest.mark.parametrize("value", [2.5, "16", None])
def test_steps_are_whole_numbers(value):
    engine, batch = engine_of(neumf)
    with pytest.raises(UsageError, match=f"n_steps must be a whole number, but got {value!r}"):
        engine.attribute(batch, n_steps=value)


@pytest.mark.parametrize(("groups", "words"), [(0, "at least 1, but got 0"), (1.5, "a whole number")])
def test_groups_that_make_no_sense(groups, words):
    with pytest.raises(UsageError, match=f"groups must be {words}"):
        engine_of(neumf, groups=groups)


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (lambda m, b: 1.0, "must be a tensor of shape .* but got float"),
        (lambda m, b: score(m, b).detach().numpy(), "but got ndarray"),
        (lambda m, b: score(m, b)[:2], r"but got \(2,\) for \d samples"),
    ],
)
def test_a_metric_that_is_no_value_a_sample(metric, words):
    with pytest.raises(TraceError, match=words):
        engine_of(neumf, metric=metric)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({}, "nothing"),
        ({"a": [1, 2]}, "a no such tensor"),
        ({"a": torch.tensor(1)}, "a no such tensor"),
        ({"a": torch.zeros(2), "b": torch.zeros(3)}, "a 2, b 3"),
    ],
)
def test_columns_that_make_no_batch(columns, told):
    with pytest.raises(UsageError, match=f"the same number in each column, but got: {told}"):
        Batch.of(**columns)


def test_a_column_of_another_length():
    engine, batch = engine_of(neumf)
    with pytest.raises(UsageError, match="its column 'more' 1 rows"):
        engine.attribute(batch.with_columns(more=torch.zeros(1)))


def test_where_nothing_can_be_computed():
    engine, batch = engine_of(neumf)
    with torch.inference_mode(), pytest.raises(UsageError, match="no gradients in it"):
        engine.attribute(batch)
    model, batch = neumf()
    with pytest.raises(UsageError, match="on the device 'meta', where nothing is computed"):
        discover(ModuleSubject(model.to("meta"), score), batch.to("meta"))


def test_the_plan_of_another_model_is_refused():
    plan = engine_of(neumf)[0].plan
    with pytest.raises(UsageError, match=r"The plan is of another model: .* has no module 'hidden'"):
        EdgeAttribution(ModuleSubject(attention()[0], score), plan)


def test_hints_about_what_is_not_there():
    model, _ = attention()
    rows = len(model.item.weight)
    for hints, words in (
        (PlanHints(padding={"items": 0}), "table 'items', which the model does not have. Did you mean item?"),
        (PlanHints(rows={"item": ((0, rows + 1),)}), f"which has {rows} rows"),
        (PlanHints(rows={"item": ((2, 2),)}), r"from 2 up to 2 \(exclusive\)"),
        (PlanHints(padding={"item": rows}), f"which has {rows} rows"),
    ):
        with pytest.raises(UsageError, match=words):
            ModuleSubject(model, score, hints)


@pytest.mark.parametrize("padding", [0, 3, 8])
def test_a_padding_row_anywhere_is_no_part_of_a_baseline(padding):
    hints, table = PlanHints(padding={"t": padding}), torch.randn(9, 2)
    rows = torch.arange(9)
    others = rows != padding
    torch.testing.assert_close(table_means("t", table, hints), table[others].mean(0))
    found = counterfactual_rows(rows, "t", table, hints, seed=3)[others]
    assert (found != padding).all()
    assert (found != rows[others]).all()


class Pooled(nn.Module):
    """Words, attention over the words, one score."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.value = nn.Embedding(20, 4, padding_idx=0), nn.Linear(4, 4)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.words(text)
        weights = torch.softmax(x @ self.value(x).transpose(1, 2), -1)
        return (weights @ x).sum((1, 2))


def pooled(length, **options):
    torch.manual_seed(0)
    subject = ModuleSubject(Pooled(), lambda m, b: m(b.columns["text"]), PlanHints(padding={"words": 0}))
    batch = Batch.of(text=torch.randint(1, 20, (5, length)))
    return EdgeAttribution(subject, discover(subject, batch, **options)), batch


@pytest.mark.parametrize("method", ["eap-ig", "conductance"])
def test_later_sequences_may_have_another_length(method):
    short, _ = pooled(4, granularity="module")
    long, batch = pooled(6, granularity="module")
    torch.testing.assert_close(short.attribute(batch, method=method), long.attribute(batch, method=method))


def test_parts_that_grow_with_the_sequence_are_not_mixed_up():
    short, _ = pooled(4, granularity="unit")
    _, batch = pooled(6)
    with pytest.raises(UsageError, match=r"has shape \(6, 6\) in this batch, but \(4, 4\) in the plan"):
        short.attribute(batch)


class LastWord(nn.Module):
    """A layer over all words, of which the score reads the last."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.hidden, self.out = nn.Embedding(20, 4), nn.Linear(4, 4), nn.Linear(4, 1)
        self.from_word = 0

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        words = self.words(text)[:, self.from_word :]
        return self.out(torch.tanh(self.hidden(words.tanh())))[:, -1, 0]


def last_word(from_word):
    @contextlib.contextmanager
    def shortcut(model, batch):
        model.from_word = from_word
        try:
            yield
        finally:
            model.from_word = 0

    torch.manual_seed(0)
    subject = ModuleSubject(
        LastWord(), lambda m, b: m(b.columns["text"]), PlanHints(shortcut=shortcut if from_word else None)
    )
    batch = Batch.of(text=torch.randint(20, (5, 6)))
    return EdgeAttribution(subject, discover(subject, batch)), batch


@pytest.mark.parametrize("method", ["eap-ig", "conductance"])
def test_a_shortcut_leaves_out_what_the_metric_does_not_read(method):
    (whole, batch), (short, _) = last_word(0), last_word(5)
    shapes = [{c.name: c.shape for c in e.plan.components} for e in (whole, short)]
    assert [s["hidden"] for s in shapes] == [(6, 4), (1, 4)]
    assert short.plan.edges == whole.plan.edges
    torch.testing.assert_close(short.attribute(batch, method=method), whole.attribute(batch, method=method))
    assert short.model.from_word == 0


def test_nothing_at_all_flows_where_nothing_moves():
    engine, batch = pooled(5)
    found = engine.explain(Batch.of(text=torch.zeros_like(batch.columns["text"])))
    assert found.degenerate.all()
    assert not found.edges.any()
