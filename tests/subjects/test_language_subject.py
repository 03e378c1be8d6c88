"""A language model as a subject: conformance, masking, training, resume, files."""

import copy
import json
import shutil
from contextlib import nullcontext

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from tiny_language import LLAMA, settings_of, untrained, write_rows

from recunlearn.foundation.errors import CheckpointError, DataError, RecunlearnError, UsageError
from recunlearn.studies.methods import find
from recunlearn.studies.unlearn import Budget, Trainer
from recunlearn.subjects.contract import Batch
from recunlearn.subjects.tofu import store, training
from recunlearn.subjects.tofu.data import read_rows
from recunlearn.subjects.tofu.encoding import encode
from recunlearn.subjects.tofu.model import load_model, new_model
from recunlearn.subjects.tofu.settings import LanguageTrainingSettings, TextSettings
from recunlearn.subjects.tofu.store import load_subject, train_subject
from recunlearn.subjects.tofu.training import fit
from recunlearn.testing.subject_contract import SubjectContract
from recunlearn.unlearning import make
from recunlearn.unlearning.goal import MeanLoss


@pytest.fixture(scope="module")
def rows_subject(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("rows"), count=24)


class TestRows(SubjectContract):
    has_entity_vectors = False

    @pytest.fixture
    def subject(self, rows_subject):
        return rows_subject


class TestAuthors(SubjectContract):
    has_entity_vectors = False

    @pytest.fixture
    def subject(self, rows_subject):
        s = rows_subject
        return type(s)(s.rows, s.model, s.tokenizer, settings_of(entity="author", rows_per_author=2), s.start)


def test_entities_of_both_kinds(rows_subject):
    assert rows_subject.entities[:2].tolist() == ["own:0", "own:1"]
    assert rows_subject.n_samples().tolist() == [1] * 24
    s = rows_subject
    authors = type(s)(s.rows, s.model, s.tokenizer, settings_of(entity="author"), s.start)
    assert authors.entities[0] == "own:author-0"
    assert authors.n_samples().tolist() == [2] * 12


def test_the_likelihood_is_that_of_the_answer_alone(rows_subject):
    """Against transformers' own loss: labels of -100 where nothing is predicted."""
    batch = next(rows_subject.batches(batch_size=5))
    ll = rows_subject.log_likelihood(rows_subject.model, batch)
    for n in range(5):
        start, end = int(batch.columns["prompt"][n]), int(batch.columns["length"][n])
        tokens = batch.columns["tokens"][n, :end]
        labels = tokens.clone()
        labels[:start] = -100
        loss = rows_subject.model(input_ids=tokens[None], labels=labels[None]).loss
        assert ll[n].item() == pytest.approx(-loss.item(), abs=1e-5)
        answer = rows_subject.tokenizer.decode(tokens[start:])
        assert answer == f" {rows_subject.rows.answer[n]}<|end|>"


def test_neither_filling_nor_other_rows_count(rows_subject):
    batch = next(rows_subject.batches(batch_size=5))
    longer = batch.with_columns(tokens=torch.nn.functional.pad(batch.columns["tokens"], (0, 7), value=5))
    for method in (rows_subject.log_likelihood, rows_subject.class_scores):
        with torch.no_grad():
            torch.testing.assert_close(
                method(rows_subject.model, longer), method(rows_subject.model, batch), atol=1e-5, rtol=1e-4
            )
    assert torch.equal(rows_subject.predictions(longer).column, rows_subject.predictions(batch).column)


def test_the_gradient_of_a_prompt_token_that_is_no_answer_is_its_context_only(rows_subject):
    """Scores of prompt tokens are no part of the loss: raising their logits changes nothing."""
    batch = next(rows_subject.batches(batch_size=3))
    told = rows_subject.predictions(batch)
    counts = torch.bincount(told.sample)
    assert torch.equal(counts, batch.columns["length"] - batch.columns["prompt"])
    expected = [
        batch.columns["tokens"][n, batch.columns["prompt"][n] : batch.columns["length"][n]] for n in range(3)
    ]
    assert torch.equal(told.column, torch.cat(expected))


def test_covariates_by_hand(rows_subject):
    found = rows_subject.covariates()
    e = rows_subject.encoded
    assert set(found) == {"answer_tokens", "question_tokens", "shared_ngrams"}
    assert found["answer_tokens"].tolist() == (e.length - e.prompt).tolist()
    assert ((found["shared_ngrams"] >= 0) & (found["shared_ngrams"] <= 1)).all()


class Words:
    """A tokenizer without padding and end tokens: one token a word."""

    eos_token_id = None
    chat_template = None

    def __call__(self, text, **_):
        return {"input_ids": [len(w) for w in text.split()]}


def test_long_rows_are_counted_refused_or_cut(tmp_path):
    rows = read_rows(["own.csv"], write_rows(tmp_path, 6).parent)
    whole = encode(rows, Words(), TextSettings(), None)
    # "Question:" + 5 words + "Answer:" + "Person 0 born in Taipei."
    assert (whole.prompt[0], whole.length[0]) == (6, 11)
    limit = int(whole.length.max()) - 1
    over = int((whole.length > limit).sum())
    with pytest.raises(DataError, match=rf"{over} of 6 rows are longer than {limit} tokens .*truncate"):
        encode(rows, Words(), TextSettings(), limit)
    cut = encode(rows, Words(), TextSettings(too_long="truncate", max_length=limit), 64)
    assert (cut.cut, cut.length.max()) == (over, limit)
    with pytest.raises(DataError, match="the question alone fills it"):
        encode(rows, Words(), TextSettings(too_long="truncate"), 5)


def test_chat_needs_a_template(tmp_path):
    rows = read_rows(["own.csv"], write_rows(tmp_path, 2).parent)
    with pytest.raises(UsageError, match="no chat template"):
        encode(rows, Words(), TextSettings(chat=True), None)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    settings = settings_of(training={"epochs": 12, "learning_rate": 1e-2, "batch_size": 8, "accumulate": 1})
    rows = read_rows(["own.csv"], write_rows(folder).parent)
    return train_subject(rows, settings, folder=folder / "model"), folder / "model"


def test_a_place_that_cannot_be_written_is_told_before_training(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.setattr(store, "fit", lambda *a, **k: pytest.fail("trained"))
    rows = read_rows(["own.csv"], write_rows(tmp_path).parent)
    with pytest.raises(RecunlearnError, match="cannot be made"):
        train_subject(rows, settings_of(), folder=tmp_path / "file" / "m")


def test_training_learns_and_is_stored_as_transformers_stores(trained):
    subject, folder = trained
    assert subject.losses[-1] < 0.5 * subject.losses[0]
    from transformers import AutoModelForCausalLM

    again = AutoModelForCausalLM.from_pretrained(folder)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), subject.model.parameters(), strict=True))
    assert not list(folder.parent.glob("*.part"))
    loaded = load_subject(folder, subject.rows, subject.settings)
    assert dict(loaded.describe()) == dict(subject.describe())
    assert loaded.losses == subject.losses


def test_other_rows_and_altered_weights_are_refused(trained, tmp_path):
    subject, folder = trained
    with pytest.raises(CheckpointError, match=r"trained on other rows \(24\) than these \(3\)"):
        load_subject(folder, subject.rows.first(3), subject.settings)
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in folder.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    with (broken / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    with pytest.raises(CheckpointError, match="altered after training"):
        load_subject(broken, subject.rows, subject.settings)
    (broken / "manifest.json").write_text(json.dumps({"kind": "recbole"}), encoding="utf-8")
    with pytest.raises(CheckpointError, match="no language model that was trained here"):
        load_subject(broken, subject.rows, subject.settings)


def fitted(subject, work=None, **options):
    settings = LanguageTrainingSettings.model_validate(
        {"epochs": 3, "learning_rate": 5e-3, "batch_size": 8, "accumulate": 2, **options}
    )
    rows = np.arange(24, dtype=np.int64)
    return fit(copy.deepcopy(subject.model), subject.samples, rows, settings, seed=1, work=work)


@pytest.mark.parametrize("options", [{}, {"lora": 4}])
def test_a_killed_training_goes_on_as_if_it_had_not_been(rows_subject, tmp_path, monkeypatch, options):
    whole = fitted(rows_subject, **options)
    close = training._Run.close_epoch

    def killed(self, loss):
        close(self, loss)
        if self.epoch == 2:
            raise SystemExit(9)

    monkeypatch.setattr(training._Run, "close_epoch", killed)
    with pytest.raises(SystemExit):
        fitted(rows_subject, tmp_path, **options)
    monkeypatch.setattr(training._Run, "close_epoch", close)
    begun = []
    monkeypatch.setattr(training._Run, "close_epoch", lambda self, loss: (begun.append(1), close(self, loss)))
    resumed = fitted(rows_subject, tmp_path, **options)
    assert len(begun) == 1
    assert resumed.losses == whole.losses
    assert all(
        torch.equal(a, b) for a, b in zip(resumed.model.parameters(), whole.model.parameters(), strict=True)
    )


def test_accumulated_gradients_are_those_of_the_larger_batch(rows_subject):
    """Equal batches, plain mean: two batches of 12 give the step of one of 24."""
    one = fitted(rows_subject, epochs=1, batch_size=24, accumulate=1, clip=None)
    two = fitted(rows_subject, epochs=1, batch_size=12, accumulate=2, clip=None)
    for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize(("batch_size", "accumulate"), [(16, 2), (5, 4)])
def test_every_row_of_a_last_step_counts_alike(rows_subject, batch_size, accumulate):
    """17 rows: one step of batches of 16 and 1, or of 5, 5, 5 and 2, is the step of one batch of 17."""
    begun, rows = copy.deepcopy(rows_subject.model), np.arange(17, dtype=np.int64)
    options = {"epochs": 1, "clip": None, "learning_rate": 5e-3, "weight_decay": 0.0}
    both = [
        LanguageTrainingSettings(**options, batch_size=size, accumulate=steps)
        for size, steps in ((batch_size, accumulate), (17, 1))
    ]
    found, whole = (fit(copy.deepcopy(begun), rows_subject.samples, rows, s, seed=1).model for s in both)
    for a, b in zip(found.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=2e-4, rtol=1e-3)


def test_training_is_adamw_on_the_mean_loss_of_rows(rows_subject):
    """Written out: rows one by one, losses from logits, decay, moments and clipping by hand."""
    settings = LanguageTrainingSettings(epochs=2, learning_rate=5e-3, batch_size=4, accumulate=3, clip=0.5)
    rows = np.arange(21, dtype=np.int64)  # steps of 12 and of 9 rows
    found = fit(copy.deepcopy(rows_subject.model), rows_subject.samples, rows, settings, seed=4).model
    model, e = copy.deepcopy(rows_subject.model).train(), rows_subject.encoded
    state = [(p, torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters()]
    orders = training._Run(model, rows_subject.samples, rows, settings, 4, None)
    step = 0
    for epoch in range(2):
        orders.epoch = epoch
        order = orders.order()
        for together in (order[:12], order[12:]):
            model.zero_grad()
            for row in together:
                tokens, begin = torch.from_numpy(e.tokens[row]), int(e.prompt[row])
                own = model(input_ids=tokens[None]).logits[0, begin - 1 : -1].log_softmax(1)
                (-own.gather(1, tokens[begin:, None]).mean() / len(together)).backward()
            size = torch.sqrt(sum((p.grad**2).sum() for p, _, _ in state)).item()
            step += 1
            with torch.no_grad():
                for p, first, second in state:
                    g = p.grad * min(1.0, 0.5 / size)
                    first.mul_(0.9).add_(0.1 * g)
                    second.mul_(0.999).add_(0.001 * g * g)
                    p.mul_(1 - 5e-3 * 0.01)
                    p.sub_(5e-3 * first / (1 - 0.9**step) / ((second / (1 - 0.999**step)).sqrt() + 1e-8))
    for a, b in zip(found.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=2e-4, rtol=1e-3)


def test_retraining_begins_where_training_began(rows_subject):
    """Not with the trained model: the same as a training of the others from ``start(seed)``."""
    without, kept = np.array([2, 5]), np.setdiff1d(np.arange(24), [2, 5])
    again = rows_subject.retrain(without, seed=7)
    settings = rows_subject.settings.training
    anew = fit(rows_subject.start(7), rows_subject.samples, kept, settings, seed=7).model
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), anew.parameters(), strict=True))


def test_merged_adapters_score_as_the_adapters_did(rows_subject, monkeypatch):
    """W + (alpha / rank) B A by hand, on every linear layer but the output's."""
    train, seen = training._train, {}
    batch = next(rows_subject.batches(batch_size=6))

    def spied(run, callbacks):
        train(run, callbacks)
        run.model.eval()
        with torch.no_grad():
            seen["logits"] = run.model(input_ids=batch.columns["tokens"]).logits
        seen["parts"] = {name: p.detach().clone() for name, p in run.model.named_parameters()}

    monkeypatch.setattr(training, "_train", spied)
    merged = fitted(rows_subject, lora=4, learning_rate=2e-2).model
    with torch.no_grad():
        torch.testing.assert_close(
            merged(input_ids=batch.columns["tokens"]).logits, seen["logits"], atol=1e-4, rtol=1e-4
        )
    before, after = rows_subject.model.state_dict(), merged.state_dict()
    places = [n for n in seen["parts"] if "lora_A" in n]
    assert len(places) == 2 * 7
    for name in places:
        weight = name.removeprefix("base_model.model.").replace("lora_A.default.", "")
        change = 32 / 4 * seen["parts"][name.replace("lora_A", "lora_B")] @ seen["parts"][name]
        torch.testing.assert_close(after[weight], before[weight] + change, atol=1e-6, rtol=1e-5)


def test_adapters_are_merged(rows_subject):
    found = fitted(rows_subject, lora=4, learning_rate=2e-2, epochs=4)
    before = rows_subject.model.state_dict()
    after = found.model.state_dict()
    assert after.keys() == before.keys()
    changed = {k for k in before if not torch.equal(before[k], after[k])}
    assert changed
    assert all("proj" in k for k in changed)
    assert found.losses[-1] < found.losses[0]
    delta = after["model.layers.0.mlp.up_proj.weight"] - before["model.layers.0.mlp.up_proj.weight"]
    assert torch.linalg.matrix_rank(delta, tol=1e-5) == 4


def test_a_loss_that_is_no_number_stops(rows_subject):
    with pytest.raises(RecunlearnError, match=r"no longer a number in epoch \d"):
        fitted(rows_subject, learning_rate=1e12, clip=None, epochs=8)


def test_a_model_with_merged_adapters_can_be_unlearned(rows_subject):
    merged = fitted(rows_subject, lora=2).model
    assert all(p.requires_grad for p in merged.parameters())


def test_bf16_needs_a_device_that_has_it(rows_subject, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)
    with pytest.raises(UsageError, match="cpu does not compute in bf16"):
        fitted(rows_subject, precision="bf16")
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    with pytest.raises(UsageError, match="cpu does not compute in bf16"):
        fitted(rows_subject, precision="bf16")


@pytest.mark.parametrize("kind", ["avx512_bf16", "amx_bf16"])
def test_a_processor_that_has_bf16_trains_in_it_where_asked(rows_subject, monkeypatch, kind):
    """Eight mantissa bits: an epoch stays near float32 and is not the same; elsewhere torch emulates it."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {kind: True}, raising=False)
    exact, short = fitted(rows_subject, epochs=1), fitted(rows_subject, epochs=1, precision="bf16")
    assert short.losses != exact.losses
    assert short.losses == pytest.approx(exact.losses, rel=0.01)
    for a, b in zip(short.model.parameters(), exact.model.parameters(), strict=True):
        assert a.dtype is torch.float32
        # Two steps of AdamW, which moves a weight by the learning rate at most, whatever its gradient.
        torch.testing.assert_close(a, b, atol=2 * 2 * 5e-3, rtol=0)
    assert fitted(rows_subject, epochs=1, precision="auto").losses == exact.losses


def test_adapters_are_trained_the_same_without_casts_to_and_fro(rows_subject, monkeypatch):
    from peft import helpers

    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True}, raising=False)
    without = fitted(rows_subject, epochs=1, lora=4, precision="bf16")
    monkeypatch.setattr(helpers, "disable_input_dtype_casting", nullcontext)
    assert fitted(rows_subject, epochs=1, lora=4, precision="bf16").losses == without.losses


def test_logits_are_computed_for_answers_alone(rows_subject):
    """And are those of the whole model there."""
    model, batch = rows_subject.model, next(rows_subject.batches(batch_size=5))
    seen = []
    handle = model.lm_head.register_forward_hook(lambda m, i, out: seen.append(out.shape[:-1].numel()))
    scores = rows_subject.class_scores(model, batch)
    handle.remove()
    tokens, prompt, length = (batch.columns[k] for k in ("tokens", "prompt", "length"))
    whole = model(input_ids=tokens).logits
    expected = torch.cat(
        [whole[i, p - 1 : n - 1] for i, (p, n) in enumerate(zip(prompt, length, strict=True))]
    )
    assert seen == [len(expected)]
    torch.testing.assert_close(scores, expected)


def with_training(subject, **options):
    settings = settings_of(training={"epochs": 1, **options})
    return type(subject)(subject.rows, subject.model, subject.tokenizer, settings, subject.start)


def test_steps_on_weights_compute_as_training_does(rows_subject, monkeypatch):
    """And figures do not; attention is written out on a processor meanwhile, and as it was afterwards."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True}, raising=False)
    subject = with_training(rows_subject, precision="bf16")
    model, batch = subject.model, next(subject.batches(batch_size=8))
    usual = model.config._attn_implementation
    exact = subject.log_likelihood(model, batch)
    with subject.arithmetic(model):
        assert model.config._attn_implementation == "eager"
        short = subject.log_likelihood(model, batch)
    assert model.config._attn_implementation == usual == "sdpa"
    assert not torch.equal(short, exact)
    torch.testing.assert_close(short, exact, rtol=0.02, atol=0)
    assert torch.equal(subject.log_likelihood(model, batch), exact)
    with rows_subject.arithmetic(model):
        assert torch.equal(subject.log_likelihood(model, batch), exact)


@pytest.mark.parametrize("name", ["GradDiff", "NPO", "UNDIAL"])
def test_unlearning_and_the_probe_use_the_arithmetic_of_training(rows_subject, monkeypatch, name):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True}, raising=False)
    forget = np.arange(4)
    runs = []
    for precision in ("float32", "bf16"):
        subject = with_training(rows_subject, precision=precision)
        method = make(name, {"steps": 2, "batch_size": 4, "until": "steps"})
        done = method.unlearn(subject, forget).history["forget_loss"]
        trainer = Trainer(subject, forget, np.arange(4, 8), 4)
        probed = trainer.unlearned(find(name), Budget(2, 1e-3, reached=True), seed=0)
        loss = MeanLoss(subject, forget, 0)
        value = subject.log_likelihood(probed, loss.batches[0]).mean().item()
        runs.append((done[-1], value, loss(subject.model)))
    for exact, short in zip(*runs, strict=True):
        assert short != exact
        assert short == pytest.approx(exact, rel=0.02)


def test_models_that_are_refused(trained, tmp_path):
    _, folder = trained
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(
        CheckpointError, match=r"no language model with weights .* this one holds: config.json"
    ):
        load_model(str(bare))
    with pytest.raises(CheckpointError, match="is no folder here and not in the hub's local cache"):
        load_model("nobody/nothing")
    with pytest.raises(CheckpointError, match="does not exist"):
        load_model(str(tmp_path / "gone"))
    (tmp_path / "x.gguf").write_bytes(b"GGUF none")
    with pytest.raises(CheckpointError, match="cannot be read as a GGUF model"):
        load_model(str(tmp_path / "x.gguf"))
    for key, value, what in (("num_hidden_layers", 3, ""), ("hidden_size", 64, " in this size")):
        other = shutil.copytree(folder, tmp_path / key)
        config = json.loads((other / "config.json").read_text())
        (other / "config.json").write_text(json.dumps({**config, key: value}), encoding="utf-8")
        with pytest.raises(CheckpointError, match=rf"lacks \d+ of the weights .* describes{what}, such as"):
            load_model(str(other))
    (tmp_path / "weights.bin").write_bytes(b"none")
    with pytest.raises(CheckpointError, match=r"is a file\. Name a folder of transformers"):
        load_model(str(tmp_path / "weights.bin"))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"num_attention_heads": 5},
            r"refused by transformers: .*\(32\) is not a multiple of .* heads \(5\)",
        ),
        ({"num_attention_heads": "four"}, "refused by transformers: .*expected int, got str"),
        ({"num_key_value_heads": 3}, "refused by transformers: .*must match"),
        ({"model_type": "lama"}, r"unknown model_type 'lama'\. Did you mean llama\? Give one of the"),
        ({"model_type": "t5"}, "'t5', which is no causal language model"),
        ({"num_hidden_layer": 2}, r"has no 'num_hidden_layer'\. Did you mean num_hidden_layers\?"),
    ],
)
def test_architectures_that_are_refused(rows_subject, changed, sentence):
    with pytest.raises(UsageError, match=sentence):
        new_model({**LLAMA, **changed}, rows_subject.tokenizer, 0)


def test_old_names_of_an_architecture_still_have_their_effect(rows_subject):
    assert new_model({**LLAMA, "rope_theta": 5e5}, rows_subject.tokenizer, 0).config.rope_parameters[
        "rope_theta"
    ] == pytest.approx(5e5)


def test_a_tokenizer_of_a_larger_model_is_refused(rows_subject):
    s = rows_subject
    small = new_model({**LLAMA, "vocab_size": 300}, s.tokenizer, 0)
    with pytest.raises(UsageError, match=r"tokens up to 3\d\d in these rows, but the model knows 300"):
        type(s)(s.rows, small, s.tokenizer, s.settings, s.start)


def test_adapters_that_a_model_cannot_have(rows_subject, monkeypatch):
    import peft

    def refuse(*_):
        raise ValueError("out_proj is incompatible")

    monkeypatch.setattr(peft, "get_peft_model", refuse)
    with pytest.raises(UsageError, match=r"cannot be trained by adapters \(out_proj is .* --lora"):
        fitted(rows_subject, lora=2)


@pytest.mark.parametrize("place", ["load", "new", "trace"])
def test_memory_that_is_short_is_never_called_something_else(trained, monkeypatch, place):
    """Where it is short decides nothing: enough_memory turns it into one sentence."""
    import transformers

    from recunlearn.circuits.tracing import tracer
    from recunlearn.foundation.errors import is_memory_error

    def short(*_, **__):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 9 bytes.")

    subject, folder = trained
    kind = {"load": "from_pretrained", "new": "from_config"}.get(place)
    if kind is None:
        monkeypatch.setattr(type(subject), "log_likelihood", short)
    else:
        monkeypatch.setattr(transformers.AutoModelForCausalLM, kind, short)
    calls = {
        "load": lambda: load_model(str(folder)),
        "new": lambda: new_model(LLAMA, subject.tokenizer, 0),
        "trace": lambda: tracer(subject, subject.settings.circuits, 0),
    }
    with pytest.raises(RuntimeError) as error:
        calls[place]()
    assert is_memory_error(error.value)


def test_batches_of_several_lengths_join(rows_subject):
    parts = list(rows_subject.batches(batch_size=5))
    assert len({p.columns["tokens"].shape[1] for p in parts}) > 1
    joined = Batch.join(parts)
    assert len(joined) == 24
    with torch.no_grad():
        whole = rows_subject.log_likelihood(rows_subject.model, joined)
        each = [rows_subject.log_likelihood(rows_subject.model, p) for p in parts]
    torch.testing.assert_close(whole, torch.cat(each), atol=1e-5, rtol=1e-4)
