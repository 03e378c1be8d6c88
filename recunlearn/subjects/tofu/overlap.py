"""How much of a row's wording stands in other rows too: a trivial score that difficulty is compared with."""

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from recunlearn.subjects.tofu.data import Rows

WORDS = 3


def shared_ngrams(rows: Rows, owner: NDArray[np.int64], words: int = WORDS) -> NDArray[np.float64]:
    """Share of each row's different word n-grams that rows of other entities have too: ``[n]`` in [0, 1].

    Lower case, split at white space; a row of fewer words is one n-gram.
    """
    grams = [_ngrams(f"{q} {a}", words) for q, a in zip(rows.question, rows.answer, strict=True)]
    holders: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for n, own in enumerate(grams):
        for gram in own:
            holders[gram].add(int(owner[n]))
    return np.array([np.mean([len(holders[g]) > 1 for g in own]) for own in grams], dtype=np.float64)


def _ngrams(text: str, words: int) -> set[tuple[str, ...]]:
    found = text.lower().split()
    return {tuple(found[n : n + words]) for n in range(max(1, len(found) - words + 1))}
