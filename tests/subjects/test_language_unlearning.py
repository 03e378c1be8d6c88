"""Unlearning methods on a language model: their losses know nothing of texts, their code is not copied."""

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("transformers")

from tiny_language import settings_of, untrained

from recunlearn.foundation.errors import UsageError
from recunlearn.subjects.tofu.training import fit
from recunlearn.unlearning.methods.undial import undial
from recunlearn.unlearning.registry import make

FORGET = np.arange(6, dtype=np.int64)


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    training = {"epochs": 25, "learning_rate": 1e-2, "batch_size": 12, "accumulate": 1}
    found = untrained(tmp_path_factory.mktemp("rows"), settings_of(training=training), count=24)
    everyone = np.arange(24, dtype=np.int64)
    found.model = fit(found.model, found.samples, everyone, found.settings.training, seed=0).model
    return found


def losses(subject, model):
    with torch.no_grad():
        parts = [-subject.log_likelihood(model, b) for b in subject.batches(batch_size=12)]
    return torch.cat(parts).numpy()


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("GradDiff", {}),
        ("GradDiff", {"retain": "kl"}),
        ("NPO", {"beta": 1.0}),
        ("SimNPO", {"length": "interaction", "gamma": 1.0}),
        ("UNDIAL", {"retain": "kl"}),
        ("E2URec", {"rank": 4, "augment_epochs": 2}),
    ],
)
def test_methods_forget_what_they_are_told(subject, name, more):
    steps = {"until": "steps", "steps": 12, "batch_size": 6, "learning_rate": 2e-3}
    before = losses(subject, subject.model)
    found = make(name, {**steps, **more}).unlearn(subject, FORGET, seed=0)
    rise = losses(subject, found.model) - before
    assert rise[FORGET].mean() > 0.05
    assert rise[FORGET].mean() > 1.3 * rise[6:].mean()


def test_undial_averages_over_answer_tokens_alone(subject):
    """Written out: each token's own logit lowered in the original, prompt and padding nowhere."""
    batch = next(subject.batches(batch_size=3))
    student = copy.deepcopy(subject.model)
    with torch.no_grad():
        for p in student.parameters():
            p.add_(0.05 * torch.sign(p))
        terms = []
        for n in range(3):
            start, end = int(batch.columns["prompt"][n]), int(batch.columns["length"][n])
            tokens = batch.columns["tokens"][n, :end][None]
            own, teacher = (
                m(input_ids=tokens).logits[0, start - 1 : end - 1] for m in (student, subject.model)
            )
            lowered = teacher - 10.0 * F.one_hot(tokens[0, start:], teacher.shape[1])
            terms.append(-(lowered.softmax(1) * own.log_softmax(1)).sum(1))
        expected = torch.cat(terms).mean()
        told = subject.predictions(batch)
        found = undial(
            subject.class_scores(student, batch),
            subject.class_scores(subject.model, batch),
            told.column,
            10.0,
        )
    assert found.item() == pytest.approx(expected.item(), abs=1e-4)


def test_sentences_speak_of_rows(subject):
    method = make("GradDiff", {"batch_size": 4, "steps": 3, "until": "steps"})
    assert "forgets 6 of 24 rows (6 answers) in at most 3 steps" in method.cost(subject, FORGET).sentence
    assert "18 answers of the others" in make("retrain").cost(subject, FORGET).sentence
    stranger = make("GradDiff", {"batch_size": 4, "steps": 3})
    for forget, sentence in (
        (FORGET[:0], "Name one row or more"),
        (np.arange(24), "All rows with training answers are to be forgotten"),
        (np.array([24]), "Numbers of rows to forget must be between 0 and 23"),
        (FORGET, r"The rows to forget have a mean loss of [\d.]+, no lower than strangers have, so"),
    ):
        with pytest.raises(UsageError, match=sentence):
            stranger.unlearn(subject, forget)
