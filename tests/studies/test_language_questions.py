"""Metrics of language models on a tiny Llama that knows its rows, against slow computations."""

import json
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import roc_auc_score

pytest.importorskip("transformers")

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "subjects"))
from tiny_language import settings_of, untrained

from recunlearn.evaluation.language import truth_ratio
from recunlearn.foundation.errors import UsageError
from recunlearn.studies import language_metrics
from recunlearn.studies.language_asked import tokens, written
from recunlearn.studies.language_metrics import Questions, forget_qualities
from recunlearn.studies.language_yardstick import LanguageYardstick
from recunlearn.subjects.tofu.settings import LanguageMetricSettings
from recunlearn.subjects.tofu.training import fit

FORGET = np.arange(6, dtype=np.int64)
FILES = {"perturbed": ("perturbed.jsonl",), "real_authors": "authors.jsonl", "world_facts": "facts.jsonl"}
SETTINGS = LanguageMetricSettings(**FILES, holdout="holdout.jsonl", retain=8, written=4, new_tokens=20)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Trained subject, two retrained models, and the folder with the files of the metrics."""
    place = tmp_path_factory.mktemp("rows")
    training = {"epochs": 25, "learning_rate": 1e-2, "batch_size": 12, "accumulate": 1}
    subject = untrained(place, settings_of(training=training), count=24)
    everyone = np.arange(24, dtype=np.int64)
    subject.model = fit(subject.model, subject.samples, everyone, subject.settings.training, seed=0).model
    rows = list(zip(subject.rows.question, subject.rows.answer, strict=True))
    other = {"perturbed_answer": ["Nobody was born in Mars.", "A bird."]}
    _write(
        place / "perturbed.jsonl", [_row(q, a) | other | {"paraphrased_answer": f"{a} So."} for q, a in rows]
    )
    for name in ("authors", "facts"):
        _write(place / f"{name}.jsonl", [_row(f"Who wrote {name} {n}?", "Ann Lee") | other for n in range(3)])
    # The first question is one of the training: it is no stranger.
    held = [_row("Where was person 0?", "Person 0."), *(_row(f"Why {n}?", f"Rain {n}.") for n in range(5))]
    _write(place / "holdout.jsonl", held)
    return subject, [subject.retrain(FORGET, seed=s) for s in (5, 6)], place


def _row(question, answer):
    return {"question": question, "answer": answer}


def _write(path, records):
    path.write_text("\n".join(map(json.dumps, records)) + "\n")


def test_tokens_are_those_of_each_answer_alone(world):
    subject, _, _ = world
    found = tokens(subject.model, subject.samples)
    for n in (0, 3, 23):
        ids = torch.from_numpy(subject.encoded.tokens[n])[None]
        with torch.no_grad():
            logs = subject.model(input_ids=ids).logits[0].log_softmax(1)
        own = [(t - 1, int(ids[0, t])) for t in range(int(subject.encoded.prompt[n]), ids.shape[1])]
        assert found.log_probabilities[n] == pytest.approx([logs[t, c].item() for t, c in own], abs=1e-4)
        assert found.hits[n].tolist() == [logs[t].argmax().item() == c for t, c in own]


def test_written_answers_are_greedy_whatever_stands_beside_them(world):
    subject, _, _ = world
    found = written(subject.model, subject.tokenizer, subject.samples, 12)
    for n in (0, 5):
        ids = subject.encoded.tokens[n][: subject.encoded.prompt[n]].tolist()
        start = len(ids)
        while len(ids) < start + 12 and (len(ids) == start or ids[-1] != subject.tokenizer.eos_token_id):
            with torch.no_grad():
                ids.append(int(subject.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
        assert found[n] == subject.tokenizer.decode(ids[start:], skip_special_tokens=True).strip()


def test_figures_of_a_model_that_knows_its_rows(world):
    pytest.importorskip("rouge_score")
    subject, _, place = world
    questions = Questions.of(subject, FORGET, SETTINGS, place)
    told = questions.ask(subject.model)
    assert told.reasons == {}
    assert len(questions.asked["holdout"].rows) == 5
    assert len(questions.asked["retain"].rows) == 8
    losses = -np.concatenate(
        [
            subject.log_likelihood(subject.model, b).detach().numpy()
            for b in subject.batches(FORGET, batch_size=8)
        ]
    )
    assert told.figures["probability/forget"] == pytest.approx(np.exp(-losses).mean(), abs=1e-5)
    assert told.figures["exact_memorisation"] > 0.6
    assert told.figures["membership_loss"] > 0.9
    right = tokens(subject.model, questions.asked["forget"].right).loss
    wrong = np.stack([tokens(subject.model, w).loss for w in questions.asked["forget"].wrong], axis=1)
    assert told.ratio == pytest.approx(truth_ratio(wrong, right))
    parts = [f"{p}/{k}" for k in ("retain", "real_authors", "world_facts") for p in language_metrics.PARTS]
    values = [told.figures[name] for name in parts]
    expected = 0 if min(values) == 0 else 9 / sum(1 / v for v in values)
    assert told.figures["model_utility"] == pytest.approx(expected)
    assert forget_qualities(told, [told]) == pytest.approx(1)


WRONG = ("Nobody was born in Mars.", "A bird.")


@dataclass(frozen=True)
class Slow:
    """The figures of one model by plain code: each answer is tokenised and asked by itself."""

    subject: Any
    model: Any

    def tokens(self, question, answer):
        """Log-probability and hit of every token of an answer, the one that ends it included."""
        before = self.subject.tokenizer(f"Question: {question}\nAnswer:")["input_ids"]
        after = self.subject.tokenizer(f" {answer}", add_special_tokens=False)["input_ids"]
        after = torch.tensor([*after, self.subject.tokenizer.eos_token_id])
        ids = torch.cat([torch.tensor(before), after])[None]
        with torch.no_grad():
            logits = self.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0].double()
        own = logits[len(before) - 1 : -1]
        logs = own.gather(1, after[:, None])[:, 0] - own.logsumexp(1)
        return logs.numpy(), (own.argmax(1) == after).numpy()

    def loss(self, question, answer):
        return -self.tokens(question, answer)[0].mean()

    def ratios(self, asked, after=""):
        """exp(-mean of the wrong answers' losses) / exp(-loss of the right one, with ``after`` behind it)."""
        rows = zip(asked.rows.question, asked.rows.answer, strict=True)
        wrong_right = [(np.mean([self.loss(q, w) for w in WRONG]), self.loss(q, a + after)) for q, a in rows]
        return np.array([np.exp(-wrong) / np.exp(-right) for wrong, right in wrong_right])

    def of_kind(self, kind, asked):
        """Probability, truth and ROUGE-L recall."""
        own = kind in ("forget", "retain")
        rows = list(zip(asked.rows.question, asked.rows.answer, strict=True))
        chances = np.array([np.exp(-self.loss(q, a)) for q, a in rows])
        if not own:
            chances /= chances + [sum(np.exp(-self.loss(q, w)) for w in WRONG) for q, _ in rows]
        truth = np.maximum(0, 1 - self.ratios(asked, " So." if own else ""))
        texts = written(self.model, self.subject.tokenizer, asked.samples, SETTINGS.new_tokens)
        recalls = [recall(a, text) for (_, a), text in zip(rows[: SETTINGS.written], texts, strict=False)]
        values = {"probability": chances, "truth": truth, "rouge_l": recalls}
        return {f"{name}/{kind}": np.mean(value) for name, value in values.items()}

    def of_memory(self, forget, holdout):
        """What is memorised is a text, not where it ends; scikit-learn's AUC."""
        answers = [*forget.rows.answer, *holdout.rows.answer]
        found = [
            self.tokens(q, a)
            for q, a in zip([*forget.rows.question, *holdout.rows.question], answers, strict=True)
        ]
        hits = [h[:-1] for _, h in found[: len(forget.rows)]]
        starts = [next((1 - k / len(h) for k in range(len(h)) if h[k:].all()), 0.0) for h in hits]
        means = np.array([logs.mean() for logs, _ in found])
        sizes = [len(zlib.compress(a.encode())) for a in answers]
        least = [np.sort(logs[:-1])[: max(1, int(0.4 * (len(logs) - 1)))].mean() for logs, _ in found]
        labels = np.arange(len(found)) < len(forget.rows)
        scores = {"loss": means, "zlib": means / sizes, "min_k": least}
        aucs = {f"membership_{name}": roc_auc_score(labels, score) for name, score in scores.items()}
        return {
            "exact_memorisation": np.mean([h.mean() for h in hits]),
            "extraction_strength": np.mean(starts),
            **aucs,
        }


def recall(wanted, text):
    """Share of the wanted words in the longest common subsequence."""

    def common(a, b):
        if not a or not b:
            return 0
        if a[-1] == b[-1]:
            return 1 + common(a[:-1], b[:-1])
        return max(common(a[:-1], b), common(a, b[:-1]))

    first, second = (t.lower().replace(".", " ").split() for t in (wanted, text))
    return common(first, second) / len(first)


def test_figures_are_those_of_slow_code_and_other_libraries(world):
    """On models that never saw the set, so that figures are neither 0 nor 1; scipy's KS test and mean."""
    pytest.importorskip("rouge_score")
    subject, retrained, place = world
    alike = [
        _row(f"Where was person {n}?", f"Person {n} was born in Lima{' indeed' * (n % 3)}.")
        for n in range(20, 28)
    ]
    _write(place / "alike.jsonl", alike)
    _write(place / "controls.jsonl", [row | {"perturbed_answer": list(WRONG)} for row in alike[:3]])
    controls = dict.fromkeys(language_metrics.CONTROLS, "controls.jsonl")
    settings = SETTINGS.model_copy(update={"holdout": "alike.jsonl", **controls})
    questions = Questions.of(subject, FORGET, settings, place)
    told, other = (questions.ask(model) for model in retrained)
    slow, asked = Slow(subject, retrained[0]), questions.asked
    expected = slow.of_memory(asked["forget"], asked["holdout"])
    for kind in ("forget", "retain", "real_authors", "world_facts"):
        expected |= slow.of_kind(kind, asked[kind])
    ratios = slow.ratios(asked["forget"], " So.")
    expected["truth_ratio/forget"] = np.mean(np.minimum(ratios, 1 / ratios))
    parts = [f"{p}/{k}" for k in ("retain", "real_authors", "world_facts") for p in language_metrics.PARTS]
    expected["model_utility"] = stats.hmean([expected[name] for name in parts])
    assert told.figures == pytest.approx(expected, abs=1e-5)
    assert 0 < told.figures["exact_memorisation"] < 1
    assert 0 < told.figures["membership_min_k"] < 1
    assert 0 < told.figures["model_utility"] < 1
    # TOFU's code compares 1 / TR: the same p.
    theirs = Slow(subject, retrained[1]).ratios(asked["forget"], " So.")
    quality = stats.ks_2samp(1 / ratios, 1 / theirs).pvalue
    assert forget_qualities(told, [other]) == pytest.approx(quality)


def test_the_end_of_an_answer_is_no_part_of_what_is_memorised(world):
    subject, _, _ = world
    end = subject.tokenizer.eos_token_id
    whole = tokens(subject.model, subject.samples)
    text = whole.of_text(subject.samples, end)
    for n, (long, short) in enumerate(zip(whole.hits, text.hits, strict=True)):
        assert subject.encoded.tokens[n][-1] == end
        assert len(short) == len(long) - 1 == len(text.log_probabilities[n])
    assert [len(v) for v in whole.of_text(subject.samples, None).hits] == [len(v) for v in whole.hits]


def test_written_answers_heed_no_habits_of_the_models_files(world):
    """A model's generation_config.json may punish repetition: the likeliest token is another one then."""
    subject, _, _ = world
    before = written(subject.model, subject.tokenizer, subject.samples, 12)
    own = subject.model.generation_config
    habits = type(own)(repetition_penalty=5.0, no_repeat_ngram_size=1, suppress_tokens=[5, 6, 7, 8])
    subject.model.generation_config = habits
    try:
        assert written(subject.model, subject.tokenizer, subject.samples, 12) == before
        assert subject.model.generation_config is habits
    finally:
        subject.model.generation_config = own


def test_a_dry_run_counts_the_answers_that_are_asked_for(world, monkeypatch):
    subject, retrained, place = world
    questions = Questions.of(subject, FORGET, SETTINGS, place)
    yardstick = LanguageYardstick.of(subject, retrained, FORGET, questions)
    read, wrote = [], []

    def count(into, call, size):
        return lambda *args: (into.append(size(args)), call(*args))[1]

    monkeypatch.setattr(language_metrics, "tokens", count(read, tokens, lambda a: a[1].entities))
    monkeypatch.setattr(language_metrics, "written", count(wrote, written, lambda a: a[2].entities))
    for name in ("class_scores", "log_likelihood"):
        call = getattr(type(subject), name)
        monkeypatch.setattr(type(subject), name, count(read, call, lambda a: len(a[2])))
    yardstick.evaluate(subject.model)
    # 6 of the forgotten, 8 others, 3 + 3 controls, 5 strangers; 4, 4, 3 and 3 of them are written.
    # 2 wrong answers (of controls twice) and 1 right one each but of strangers: 6·3 + 8·3 + 3·5 + 3·5.
    assert questions.answers() == (25 + 72, 14)
    # losses of 6; distances of 6 forgotten and 6 others under the model and 2 retrained ones
    assert LanguageYardstick.answers(subject, FORGET, 2) == 6 + 12 * 3
    assert sum(read) == 97 + 42
    assert sum(wrote) == 14


def test_questions_that_are_known_or_leave_no_room_are_not_asked(world):
    subject, _, place = world
    _write(place / "known.jsonl", [_row(q, "Ann.") for q in subject.rows.question[:2]])
    _write(place / "long.jsonl", [_row("why " * 100, "Ann."), _row("Why?", "Ann.")])
    settings = LanguageMetricSettings(holdout="known.jsonl", real_authors="long.jsonl", written=0)
    questions = Questions.of(subject, FORGET, settings, place)
    assert questions.asked["real_authors"].rows.question == ("Why?",)
    told = questions.ask(subject.model)
    assert told.reasons["membership"].startswith("every row of metrics.holdout is one of the training")
    assert "membership_loss" not in told.figures


def test_what_cannot_be_computed_says_why(world, monkeypatch):
    subject, _, place = world
    bare = Questions.of(subject, FORGET, LanguageMetricSettings(written=0), place)
    told = bare.ask(subject.model)
    assert told.reasons["rouge_l/forget"] == "no answers are written: metrics.written is 0"
    assert "name files with them in metrics.perturbed" in told.reasons["truth/forget"]
    assert told.reasons["membership"] == language_metrics.NO_HOLDOUT
    assert "8 of its 9 parts are missing, such as rouge_l/retain" in told.reasons["model_utility"]
    assert "model_utility" not in told.figures
    assert "name files" in forget_qualities(told, [told])
    assert forget_qualities(told, []) == language_metrics.NO_RETRAINED

    def absent(*_):
        raise ModuleNotFoundError

    monkeypatch.setattr(language_metrics.m, "rouge_l_recall", absent)
    settings = LanguageMetricSettings(retain=2, written=1, new_tokens=2)
    found = Questions.of(subject, FORGET, settings, place).ask(subject.model)
    assert found.reasons["rouge_l/retain"] == language_metrics.NO_ROUGE


def test_yardstick_puts_original_and_retrained_models_at_its_ends(world):
    subject, retrained, place = world
    questions = Questions.of(subject, FORGET, LanguageMetricSettings(written=0, **FILES), place)
    yardstick = LanguageYardstick.of(subject, retrained, FORGET, questions)
    nothing = yardstick.evaluate(subject.model).figures
    assert nothing["set_share_left"] == pytest.approx(1)
    assert nothing["residual/jsd/forget"] == pytest.approx(1)
    assert nothing["forget_quality/unlearned"] == nothing["forget_quality/original"]
    done = yardstick.evaluate(retrained[0])
    assert abs(done.figures["set_share_left"]) < 0.5
    assert done.figures["residual/jsd/forget"] < 1
    assert "no user vectors" in done.reasons["ue/fold_in"]
    with pytest.raises(UsageError, match=r"needs 2 retrained models or more .* but got 1"):
        LanguageYardstick.of(subject, retrained[:1], FORGET, questions)
