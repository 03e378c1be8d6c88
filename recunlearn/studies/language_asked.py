"""What a language model says to questions: token by token where the answer is given, or in its own words."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from recunlearn.studies.losses import device_of
from recunlearn.subjects.contract import IntArray
from recunlearn.subjects.tofu.data import Rows
from recunlearn.subjects.tofu.encoding import encode
from recunlearn.subjects.tofu.likelihood import answer_scores, predictions
from recunlearn.subjects.tofu.model import context_of, quiet_transformers, vocabulary_of
from recunlearn.subjects.tofu.samples import MOST_ROWS, Samples
from recunlearn.subjects.tofu.subject import LanguageSubject

Array = NDArray[np.float64]
PARAPHRASED, PERTURBED = "paraphrased_answer", "perturbed_answer"
"""Fields of a row's right answer in other words, and of its wrong ones (a list)."""


@dataclass(frozen=True)
class Tokens:
    """Answers token by token.

    Args:
        log_probabilities: ``[n]`` arrays: of every token of an answer.
        hits: ``[n]`` arrays: whether the token was the likeliest one.
    """

    log_probabilities: list[Array]
    hits: list[NDArray[np.bool_]]

    @property
    def loss(self) -> Array:
        """Mean negative log-likelihood of each answer: ``[n]``."""
        return np.array([-v.mean() for v in self.log_probabilities], dtype=np.float64)

    def of_text(self, samples: Samples, end: int | None) -> "Tokens":
        """Without the token ``end`` that ends an answer: what is memorised is a text."""
        text = [slice(None, -1) if t[-1] == end else slice(None) for t in samples.encoded.tokens]
        parts = zip(self.log_probabilities, self.hits, text, strict=True)
        found = [(chances[cut], hits[cut]) for chances, hits, cut in parts]
        return Tokens([chances for chances, _ in found], [hits for _, hits in found])


@dataclass(frozen=True)
class Asked:
    """Rows that a model is asked, with other answers to the same questions.

    Args:
        rows: with their own answers.
        samples: the same as tokens.
        among: rows that have wrong answers, ``[m]``.
        right: those rows with the right answer in other words, or the answer itself where there are none.
        wrong: those rows with one wrong answer each, as many times as every row has some.
    """

    rows: Rows
    samples: Samples
    among: IntArray
    right: Samples | None
    wrong: tuple[Samples, ...]

    @staticmethod
    def of(subject: LanguageSubject, rows: Rows, others: Mapping[str, Mapping[str, Any]]) -> "Asked":
        """Encode rows for a subject's model; answers that are too long for it are cut.

        Args:
            subject: whose tokenizer and text settings hold.
            rows: to ask.
            others: question -> record with further answers; a row's own fields come first.
        """
        found = [_answers({**others.get(q, {}), **m}) for q, m in zip(rows.question, rows.more, strict=True)]
        among = np.array([n for n, (_, wrong) in enumerate(found) if wrong], dtype=np.int64)
        samples = _encoded(subject, rows)
        if not len(among):
            return Asked(rows, samples, among, None, ())
        some = taken(rows, among)
        least = min(len(found[n][1]) for n in among)
        right = [found[n][0] or rows.answer[n] for n in among]
        wrong = [[found[n][1][k] for n in among] for k in range(least)]
        texts = [_encoded(subject, replace(some, answer=tuple(a))) for a in (right, *wrong)]
        return Asked(rows, samples, among, texts[0], tuple(texts[1:]))


def _answers(record: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Paraphrased and wrong answers of a record; "" and [] where it has none."""
    wrong = record.get(PERTURBED)
    texts = [w for w in wrong if isinstance(w, str) and w.strip()] if isinstance(wrong, list) else []
    return str(record.get(PARAPHRASED) or "").strip(), texts


def taken(rows: Rows, which: IntArray) -> Rows:
    """Some rows."""
    parts = ([part[n] for n in which] for part in (rows.question, rows.answer, rows.more))
    question, answer, more = (tuple(p) for p in parts)
    return Rows(rows.ids[which], rows.authors[which], question, answer, more)


def _encoded(subject: LanguageSubject, rows: Rows) -> Samples:
    text = subject.settings.text.model_copy(update={"too_long": "truncate"})
    encoded = encode(rows, subject.tokenizer, text, context_of(subject.model), vocabulary_of(subject.model))
    return Samples(encoded, np.arange(len(rows), dtype=np.int64), len(rows))


def first(samples: Samples, count: int) -> Samples:
    """The first rows, each its own entity; all of them where there are fewer."""
    e = samples.encoded
    some = type(e)(e.tokens[:count], e.prompt[:count])
    return Samples(some, np.arange(len(some.tokens), dtype=np.int64), len(some.tokens))


@torch.no_grad()
def tokens(model: nn.Module, samples: Samples) -> Tokens:
    """Answers of every row under a model, token by token.

    A probability that is no number any more (a wrecked model) counts as 0.
    """
    found = Tokens([], [])
    device = device_of(model)
    for batch in samples.batches(np.arange(samples.entities, dtype=np.int64), MOST_ROWS):
        moved = batch.to(device)
        told = predictions(moved)
        scores = answer_scores(model, moved).float()
        own = scores.log_softmax(1).gather(1, told.column[:, None])[:, 0].nan_to_num(nan=-torch.inf)
        ends = np.cumsum((batch.columns["length"] - batch.columns["prompt"]).numpy())[:-1]
        found.log_probabilities.extend(np.split(own.double().cpu().numpy(), ends))
        found.hits.extend(np.split((scores.argmax(1) == told.column).cpu().numpy(), ends))
    return found


@torch.no_grad()
def written(model: Any, tokenizer: Any, samples: Samples, most: int) -> list[str]:
    """What a model writes after each prompt, the likeliest token each time: at most ``most`` tokens."""
    texts: list[str] = []
    device, end = device_of(model), tokenizer.eos_token_id
    context = context_of(model)
    with quiet_transformers(), _plainly(model):
        for at in range(0, samples.entities, MOST_ROWS):
            prompts = _prompts(samples, range(at, min(at + MOST_ROWS, samples.entities)))
            width = max(map(len, prompts))
            room = most if context is None else min(most, context - width)
            if room < 1:
                texts.extend("" for _ in prompts)
                continue
            # Filled up at the front, so that every answer begins at the same place.
            ids = np.array([[0] * (width - len(p)) + p for p in prompts])
            mask = np.array([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
            made = model.generate(
                input_ids=torch.from_numpy(ids).to(device),
                attention_mask=torch.from_numpy(mask).to(device),
                max_new_tokens=room,
                do_sample=False,
                pad_token_id=0 if end is None else end,
                eos_token_id=end,
            )
            texts.extend(tokenizer.batch_decode(made[:, width:], skip_special_tokens=True))
    return [t.strip() for t in texts]


@contextmanager
def _plainly(model: Any) -> Iterator[None]:
    """Without what a model's own files say about writing, such as a penalty for repeated tokens."""
    from transformers import GenerationConfig

    own, model.generation_config = model.generation_config, GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = own


def _prompts(samples: Samples, rows: Sequence[int]) -> list[list[int]]:
    e = samples.encoded
    return [e.tokens[n][: e.prompt[n]].tolist() for n in rows]


__all__ = ["Asked", "Tokens", "first", "taken", "tokens", "written"]
