"""Metrics of language models on a forget set: what each of them needs, and why it cannot be computed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from recunlearn.evaluation import language as m
from recunlearn.foundation.seeds import uniform
from recunlearn.studies.language_asked import Asked, Tokens, first, taken, tokens, written
from recunlearn.subjects.contract import IntArray
from recunlearn.subjects.tofu.data import Rows, read_rows
from recunlearn.subjects.tofu.encoding import longest, prompt_tokens
from recunlearn.subjects.tofu.model import context_of
from recunlearn.subjects.tofu.settings import LanguageMetricSettings
from recunlearn.subjects.tofu.subject import LanguageSubject

Array = NDArray[np.float64]
CONTROLS = ("real_authors", "world_facts")
UTILITY = ("retain", *CONTROLS)
PARTS = ("probability", "rouge_l", "truth")
"""``truth``: mean max(0, 1 − TR), TR the truth ratio."""
NO_RETRAINED = "no model that was retrained without the set was given"
NO_HOLDOUT = "no rows that no model was trained on: name a file with metrics.holdout"
NO_ROUGE = "the library rouge-score is not installed: pip install recunlearn[llm]"


@dataclass(frozen=True)
class Told:
    """What one model says.

    Args:
        figures: name -> value.
        ratio: truth ratios of the forget set's rows that have one, ``[m]``.
        reasons: figures that are absent -> why.
    """

    figures: Mapping[str, float]
    ratio: Array
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Questions:
    """Everything a model is asked about one forget set, prepared once for every model.

    Args:
        subject: whose tokenizer and rows they are.
        settings: how much is asked.
        asked: ``forget``, ``retain``, ``real_authors``, ``world_facts``, ``holdout``, where there are some.
        absent: those that there are not -> why.
    """

    subject: LanguageSubject
    settings: LanguageMetricSettings
    asked: Mapping[str, Asked]
    absent: Mapping[str, str]

    @staticmethod
    def of(
        subject: LanguageSubject,
        forget: IntArray,
        settings: LanguageMetricSettings,
        place: Path,
        *,
        seed: int = 0,
        online: bool = False,
    ) -> "Questions":
        """Read and encode the questions.

        Args:
            subject: with the rows of the training.
            forget: forgotten entities.
            settings: files and numbers of rows.
            place: folder of the files.
            seed: of the choice of kept rows.
            online: whether missing files may be fetched.

        Raises:
            RecunlearnError: a file that cannot be read.
        """
        others: dict[str, Mapping[str, Any]] = {}
        for name in settings.perturbed:
            more = read_rows([name], place, fetch=online)
            others |= dict(zip(more.question, more.more, strict=True))
        gone = np.isin(subject.samples.owner, forget)
        kept = _some(np.flatnonzero(~gone), subject, others, settings.retain, seed)
        chosen = {"forget": taken(subject.rows, np.flatnonzero(gone)), "retain": taken(subject.rows, kept)}
        asked = {name: Asked.of(subject, rows, others) for name, rows in chosen.items()}
        absent = {}
        for name in (*CONTROLS, "holdout"):
            file = getattr(settings, name)
            if file is None:
                absent[name] = f"no file was named: metrics.{name}"
                continue
            rows = _askable(subject, _unknown(read_rows([file], place, fetch=online), subject.rows))
            if len(rows):
                asked[name] = Asked.of(subject, rows, {})
            else:
                absent[name] = (
                    f"every row of metrics.{name} is one of the training, or fills the context alone"
                )
        return Questions(subject, settings, asked, absent)

    def answers(self) -> tuple[int, int]:
        """Answers whose tokens one model is asked for, and answers that it writes."""
        read = wrote = 0
        for name, asked in self.asked.items():
            read += len(asked.rows)
            if name != "holdout":
                times = 1 + (2 if name in CONTROLS else 1) * len(asked.wrong)
                read += len(asked.among) * times * bool(asked.wrong)
                wrote += min(self.settings.written, len(asked.rows))
        return read, wrote

    def ask(self, model: nn.Module) -> Told:
        """Figures of one model; ``model`` is put into eval mode for it and back."""
        training = model.training
        model.eval()
        figures: dict[str, float] = {}
        reasons: dict[str, str] = {}
        ratio = np.zeros(0)
        seen: dict[str, Tokens] = {}
        for name, asked in self.asked.items():
            seen[name] = tokens(model, asked.samples)
            if name == "holdout":
                continue
            found = _ratios(model, asked, name, reasons)
            self._answers(model, name, seen[name], found, figures, reasons)
            ratio = found if name == "forget" else ratio
        self._memory(seen, figures, reasons)
        self._utility(figures, reasons)
        model.train(training)
        return Told({k: v for k, v in figures.items() if not np.isnan(v)}, ratio, reasons)

    def _answers(
        self,
        model: nn.Module,
        name: str,
        seen: Tokens,
        ratio: Array,
        figures: dict[str, float],
        reasons: dict[str, str],
    ) -> None:
        """Probability, ROUGE-L and truth ratio of one kind of rows."""
        asked = self.asked[name]
        chance = m.probability(seen.loss)
        if name in CONTROLS and asked.wrong:
            losses = np.column_stack([tokens(model, w).loss for w in asked.wrong])
            chance = m.probability_among(seen.loss[asked.among], losses)
        figures[f"probability/{name}"] = float(chance.mean())
        if len(ratio):
            # Of the forgotten the question is whether the ratio is near 1, of the others whether it is low.
            if name == "forget":
                figures["truth_ratio/forget"] = float(np.minimum(ratio, 1 / np.maximum(ratio, 1e-300)).mean())
            figures[f"truth/{name}"] = m.knows_better(ratio)
        found = self._rouge(model, asked)
        if isinstance(found, str):
            reasons[f"rouge_l/{name}"] = found
        else:
            figures[f"rouge_l/{name}"] = found

    def _rouge(self, model: nn.Module, asked: Asked) -> float | str:
        """Mean ROUGE-L recall of written answers, or why there is none."""
        if not self.settings.written:
            return "no answers are written: metrics.written is 0"
        some = first(asked.samples, self.settings.written)
        texts = written(model, self.subject.tokenizer, some, self.settings.new_tokens)
        try:
            return float(m.rouge_l_recall(texts, asked.rows.answer[: some.entities]).mean())
        except ModuleNotFoundError:
            return NO_ROUGE

    def _memory(self, seen: Mapping[str, Tokens], figures: dict[str, float], reasons: dict[str, str]) -> None:
        """Memorisation of the forget set, and membership inference against rows that nobody saw."""
        end = self.subject.tokenizer.eos_token_id
        text = {name: told.of_text(self.asked[name].samples, end) for name, told in seen.items()}
        hits = text["forget"].hits
        figures["exact_memorisation"] = float(m.exact_memorisation(hits).mean())
        figures["extraction_strength"] = float(m.extraction_strength(hits).mean())
        if "holdout" not in seen:
            reasons["membership"] = NO_HOLDOUT if self.settings.holdout is None else self.absent["holdout"]
            return
        scores = [
            m.attack_scores(seen[name].loss, text[name].log_probabilities, self.asked[name].rows.answer)
            for name in ("forget", "holdout")
        ]
        figures |= {f"membership_{attack}": value for attack, value in m.attack_aucs(*scores).items()}

    def _utility(self, figures: dict[str, float], reasons: dict[str, str]) -> None:
        wanted = [f"{part}/{name}" for name in UTILITY for part in PARTS]
        missing = [name for name in wanted if name not in figures]
        if not missing:
            figures["model_utility"] = m.model_utility({name: figures[name] for name in wanted})
            return
        kind = missing[0].split("/")[1]
        why = self.absent.get(kind) or reasons.get(missing[0], "")
        reasons["model_utility"] = (
            f"{len(missing)} of its {len(wanted)} parts are missing, such as {missing[0]} ({why})"
        )


def forget_qualities(unlearned: Told, retrained: Sequence[Told]) -> float | str:
    """Forget quality, mean over the retrained models, or why it cannot be computed."""
    if not retrained:
        return NO_RETRAINED
    if not len(unlearned.ratio):
        return unlearned.reasons.get("truth/forget", "no truth ratio of the set is a number")
    values = [m.forget_quality(unlearned.ratio, other.ratio) for other in retrained]
    return float(np.mean(values)) if not np.isnan(values).any() else "no truth ratio of the set is a number"


def _ratios(model: nn.Module, asked: Asked, name: str, reasons: dict[str, str]) -> Array:
    """Truth ratio of the rows that have wrong answers: ``[m]``."""
    if asked.right is None or not asked.wrong:
        way = "" if name in CONTROLS else ": name files with them in metrics.perturbed"
        reasons[f"truth/{name}"] = f"none of the rows has wrong answers (perturbed_answer){way}"
        return np.zeros(0)
    wrong = np.column_stack([tokens(model, w).loss for w in asked.wrong])
    with np.errstate(invalid="ignore"):  # a wrecked model may rule out right and wrong answers alike
        return m.truth_ratio(wrong, tokens(model, asked.right).loss)


def _some(
    kept: IntArray, subject: LanguageSubject, others: Mapping[str, Any], most: int, seed: int
) -> IntArray:
    """Kept rows to ask: those with other answers first, then by lot; ascending."""
    known = np.array([subject.rows.question[n] not in others for n in kept])
    lot = uniform(kept.astype(np.uint64), seed)
    return np.sort(kept[np.lexsort((lot, known))[:most]]).astype(np.int64)


def _askable(subject: LanguageSubject, rows: Rows) -> Rows:
    """Rows whose questions leave room for an answer."""
    text, tokenizer = subject.settings.text, subject.tokenizer
    most = longest(text, context_of(subject.model))
    if most is None:
        return rows
    lengths = [len(prompt_tokens(tokenizer, text, question)) for question in rows.question]
    return taken(rows, np.flatnonzero(np.array(lengths) < most))


def _unknown(rows: Rows, trained: Rows) -> Rows:
    """Rows whose questions are not among those of the training."""
    known = set(trained.question)
    return taken(rows, np.array([n for n, q in enumerate(rows.question) if q not in known], dtype=np.int64))


__all__ = ["Questions", "Told", "forget_qualities"]
