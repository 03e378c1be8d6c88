"""Metrics of language models on a tiny Llama that knows its rows, against slow computations."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

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
