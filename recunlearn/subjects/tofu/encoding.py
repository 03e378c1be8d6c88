"""Rows as tokens: prompt, answer, and the token that ends it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recunlearn.foundation.errors import DataError, UsageError
from recunlearn.subjects.tofu.data import Rows
from recunlearn.subjects.tofu.settings import TextSettings

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Encoded:
    """Tokens of every row.

    Args:
        tokens: ``[n]`` arrays: prompt, answer and end of text.
        prompt: ``[n]`` tokens of the prompt; the answer's begin there.
        cut: rows whose answer was cut.
    """

    tokens: tuple[Ints, ...]
    prompt: Ints
    cut: int = 0

    @property
    def length(self) -> Ints:
        """``[n]`` tokens of each row."""
        return np.array([len(t) for t in self.tokens], dtype=np.int64)


def encode(
    rows: Rows, tokenizer: Any, text: TextSettings, context: int | None, vocabulary: int | None = None
) -> Encoded:
    """Tokens of the rows; prompt and answer are tokenised apart, so that the border is exact.

    Args:
        tokenizer: of transformers; one without an end or a padding token will do.
        text: prompt, longest row and what to do with longer ones.
        context: most tokens that the model reads; None: any.
        vocabulary: tokens that the model knows; None: any.

    Raises:
        DataError: rows that are too long (and how many), or an answer or prompt without tokens.
        UsageError: a chat template was asked for and the tokenizer has none, or the tokenizer is of a larger
            model.
    """
    limit = longest(text, context)
    ends = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    tokens, prompts = [], []
    for name, question, answer in zip(rows.ids, rows.question, rows.answer, strict=True):
        before = prompt_tokens(tokenizer, text, question)
        after = tokenizer(answer if text.chat else f" {answer}", add_special_tokens=False)["input_ids"]
        if not before or not after:
            what = "answer" if before else "prompt"
            raise DataError(f"The {what} of the row {name} has no tokens. Correct the row, or the tokenizer.")
        tokens.append(np.array([*before, *after, *ends], dtype=np.int64))
        prompts.append(len(before))
    largest = max((int(t.max()) for t in tokens), default=0)
    if vocabulary is not None and largest >= vocabulary:
        raise UsageError(
            f"The tokenizer has tokens up to {largest:,} in these rows, but the model knows {vocabulary:,} "
            "(vocab_size). Name the model's own tokenizer, or leave vocab_size out of [architecture]."
        )
    return _within(Encoded(tuple(tokens), np.array(prompts, dtype=np.int64)), rows, text, limit)


def longest(text: TextSettings, context: int | None) -> int | None:
    """Most tokens of a row; None: any."""
    return min((n for n in (text.max_length, context) if n is not None), default=None)


def prompt_tokens(tokenizer: Any, text: TextSettings, question: str) -> list[int]:
    """What stands before an answer."""
    if not text.chat:
        return list(tokenizer(text.prompt.replace("{question}", question))["input_ids"])
    if not getattr(tokenizer, "chat_template", None):
        raise UsageError("The tokenizer has no chat template. Set text.chat = false.")
    talk = [{"role": "user", "content": question}]
    words = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(words, add_special_tokens=False)["input_ids"])


def _within(found: Encoded, rows: Rows, text: TextSettings, limit: int | None) -> Encoded:
    """Refuse, or cut, rows that do not fit; an answer keeps at least one token."""
    if limit is None or (found.length <= limit).all():
        return found
    over = np.flatnonzero(found.length > limit)
    largest = int(found.length.argmax())
    hopeless = over[found.prompt[over] >= limit]
    if text.too_long == "refuse" or len(hopeless):
        few = f"{len(over):,} of {len(rows):,} rows are longer than {limit} tokens"
        most = f"the longest, {rows.ids[largest]}, has {found.length[largest]}"
        way = "Set text.too_long = 'truncate' to cut their answers, or take a model with a longer context."
        if len(hopeless):
            way = (
                f"In {len(hopeless):,} of them the question alone fills it: delete them, or raise "
                "text.max_length or the model's context."
            )
        raise DataError(f"{few} ({most}), what the model's context or text.max_length allows. {way}")
    tokens = tuple(t[:limit] for t in found.tokens)
    return Encoded(tokens, found.prompt, len(over))


__all__ = ["Encoded", "encode", "longest", "prompt_tokens"]
