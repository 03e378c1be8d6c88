"""Metrics of language models after unlearning, by the conventions of TOFU and open-unlearning.

Source: Maini et al. 2024 (TOFU, arXiv 2401.06121) and the open-unlearning suite, except where a function
says otherwise. "Likelihood" of an answer is everywhere the geometric mean probability of its tokens.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from recunlearn.evaluation.ranking import auc

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Hits = Sequence[NDArray[np.bool_]]
MIN_K = 0.4
"""Share of an answer's tokens, the least likely ones, that min-k reads; open-unlearning's."""
ATTACKS = ("loss", "zlib", "min_k")


def probability(loss: Floats) -> Array:
    """exp(−loss) of mean negative log-likelihoods: ``[...] -> [...]``, 0 to 1."""
    return np.asarray(np.exp(-np.asarray(loss, dtype=np.float64)))


def probability_among(loss: Floats, wrong: Floats) -> Array:
    """Probability of the right answer among the offered ones: ``[n], [n, k] -> [n]``.

    p / (p + Σ p_wrong): what stands for the probability on real authors and world facts, whose answers the
    model was never trained to give word by word.

    >>> probability_among(np.log([2.0]), np.log([[4.0, 4.0]]))  # .5 / (.5 + .25 + .25)
    array([0.5])
    """
    values = -np.column_stack([np.asarray(loss, dtype=np.float64), wrong])
    scaled = np.exp(values - values.max(1, keepdims=True))  # a model that is wrecked gives each answer 0
    return np.asarray(scaled[:, 0] / scaled.sum(1))


def truth_ratio(wrong: Floats, right: Floats) -> Array:
    """TR = exp(−mean_j loss(wrong_j)) / exp(−loss(right)): ``[n, k], [n] -> [n]``.

    Above 1 a model prefers wrong answers. ``right`` is a paraphrase of the answer where there is one, so that
    knowing the facts and not the wording counts; infinite where the right answer is impossible.
    """
    apart = np.asarray(right, dtype=np.float64) - np.asarray(wrong, dtype=np.float64).mean(1)
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(apart))


def forget_quality(unlearned: Floats, retrained: Floats) -> float:
    """p of the two-sample Kolmogorov-Smirnov test between truth ratios: ``[n], [m]``, 0 to 1.

    High: the unlearned model cannot be told from the retrained one by them. NaN without values.
    """
    first, second = (np.asarray(v, dtype=np.float64) for v in (unlearned, retrained))
    first, second = first[~np.isnan(first)], second[~np.isnan(second)]
    if not len(first) or not len(second):
        return float("nan")
    return float(stats.ks_2samp(first, second).pvalue)


def knows_better(ratio: Floats) -> float:
    """Mean max(0, 1 − TR): the truth ratio's part of model utility; NaN without values."""
    values = np.asarray(ratio, dtype=np.float64)
    return float(np.maximum(0.0, 1 - values).mean()) if values.size else float("nan")


def model_utility(parts: Mapping[str, float]) -> float:
    """Harmonic mean of the parts, 0 where one of them is 0; NaN without a part or with one that is NaN.

    TOFU's nine parts: {retain, real authors, world facts} x {probability, ROUGE-L recall, max(0, 1 − TR)}.
    """
    values = np.array(list(parts.values()), dtype=np.float64)
    if not values.size or np.isnan(values).any():
        return float("nan")
    return 0.0 if (values <= 0).any() else float(stats.hmean(values))


def exact_memorisation(hits: Hits) -> Array:
    """Share of an answer's tokens that are the likeliest ones given what stands before them: ``[n]``.

    Here and in :func:`extraction_strength` the token that ends an answer is left out by the caller, as
    open-unlearning leaves it out.
    """
    return np.array([h.mean() for h in hits], dtype=np.float64)


def extraction_strength(hits: Hits) -> Array:
    """1 − k / L, k the shortest start of an answer from which the rest follows greedily: ``[n]``.

    Source: Carlini et al. 2021; teacher-forced, as open-unlearning computes it. Deviation: 0 and not 1/L
    where even the last token is wrong.

    >>> extraction_strength([np.array([True, False, True, True]), np.array([True, False])])
    array([0.5, 0. ])
    """
    return np.array([_tail(h) / len(h) for h in hits], dtype=np.float64)


def _tail(hits: NDArray[np.bool_]) -> int:
    """Length of the run of hits at the end."""
    misses = np.flatnonzero(~hits)
    return len(hits) - (int(misses[-1]) + 1 if len(misses) else 0)


def attack_scores(
    loss: Floats, log_probabilities: Sequence[Floats], texts: Sequence[str], share: float = MIN_K
) -> dict[str, Array]:
    """Scores that are high for answers a model was trained on, ``[n]`` by name of the attack.

    ``loss``: −loss (Yeom et al. 2018); ``zlib``: −loss / bytes of the compressed answer (Carlini et al.
    2021); ``min_k``: mean log-probability of the least likely tokens (Shi et al. 2024, arXiv 2310.16789).

    Args:
        loss: ``[n]`` of the answers, with the token that ends them.
        log_probabilities: of the tokens of every answer, without the one that ends it, as open-unlearning has
            it for min-k alone.
        texts: the answers.
        share: of the tokens that min-k reads, at least one.
    """
    means = -np.asarray(loss, dtype=np.float64)
    size = np.array([len(zlib.compress(t.encode("utf-8"))) for t in texts], dtype=np.float64)
    least = [np.sort(v)[: max(1, int(share * len(v)))].mean() for v in log_probabilities]
    return {"loss": means, "zlib": means / size, "min_k": np.array(least, dtype=np.float64)}


def attack_aucs(members: Mapping[str, Array], strangers: Mapping[str, Array]) -> dict[str, float]:
    """Probability that a row of the forget set scores above one that no model saw, by attack.

    .5: as if never seen, as far as both kinds of rows are alike; the aim is the retrained model's value.
    """
    found = {}
    for name, values in members.items():
        labels = np.concatenate([np.ones(len(values)), np.zeros(len(strangers[name]))])
        found[name] = auc(np.concatenate([values, strangers[name]]), labels)
    return found


def rouge_l_recall(written: Sequence[str], wanted: Sequence[str]) -> Array:
    """ROUGE-L recall with stemming of generated texts, by the library rouge-score: ``[n]``.

    Raises:
        ModuleNotFoundError: rouge-score is not installed.
    """
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"], use_stemmer=True)
    pairs = zip(wanted, written, strict=True)
    return np.array([scorer.score(w, g)["rougeL"].recall for w, g in pairs], dtype=np.float64)
