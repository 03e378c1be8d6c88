"""What RecEraser and SISA share: sub-models of shards, of which a deletion retrains the touched ones."""

import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.settings import Settings
from recunlearn.subjects.contract import IntArray, Subject
from recunlearn.subjects.parts import PartSubject
from recunlearn.unlearning.contract import Cost, History, Progress, Unlearned
from recunlearn.unlearning.loop import peak_memory
from recunlearn.unlearning.request import check_family, checked, rest_of
from recunlearn.unlearning.shards.submodels import Part, load_part, make_parts, train_parts

NOBODY: IntArray = np.zeros(0, dtype=np.int64)
OF_ORIGINAL = " of the original"
"""In what progress is told about; a deletion may have to train the original first."""


class ShardSettings(Settings):
    """How the training data are cut and the shards trained."""

    shards: int = Field(default=10, ge=2, le=1000)
    """Number of shards."""
    partition_seed: int = Field(default=0, ge=0, lt=2**31)
    """Of the partition, which is the same for all seeds of training."""
    effort: float = Field(default=2.0, gt=0, le=1000)
    """Epochs of a sub-model, as a multiple of the original model's."""
    batch: float = Field(default=0.5, gt=0, le=1)
    """Samples in a step of a sub-model, as a share of the original's: else a shard makes too few steps."""
    processes: int | None = Field(default=None, ge=1, le=256)
    """Most processes; None: one a core where shards are large enough to be worth it, else none besides."""


@dataclass(frozen=True)
class Request:
    """One state of the data: all of it, or all but the forgotten.

    Args:
        subject: with the whole data.
        forget: rows of the forgotten; none for the original.
        owner, item: ``[n]`` entity and item of each sample.
        parts: shards with samples left.
        seed: of all draws.
        folder: of stored results.
        progress: told what is under way.
    """

    subject: PartSubject
    forget: IntArray
    owner: IntArray
    item: IntArray
    parts: list[Part]
    seed: int
    folder: Path
    progress: Progress | None

    @property
    def absent(self) -> IntArray:
        """Entities without samples: the forgotten, and those that never had any."""
        everyone = np.arange(len(self.subject.entities), dtype=np.int64)
        present = rest_of(self.subject, self.forget)
        return np.setdiff1d(everyone, present)

    def models(self) -> list[nn.Module]:
        """Trained sub-models."""
        return [load_part(self.subject, part, self.folder) for part in self.parts]

    def seen(self, row: IntArray, count: int) -> NDArray[np.bool_]:
        """Which part has a sample of which row: ``[parts, count]``; ``row`` is owner or item."""
        found = np.zeros((len(self.parts), count), dtype=bool)
        for place, part in enumerate(self.parts):
            found[place, row[part.kept]] = True
        return found


@dataclass(frozen=True)
class Combined:
    """One model of all sub-models.

    Args:
        model: in eval mode.
        steps, parameters, seconds: of what was trained to put them together.
        diverged: whether its loss stopped being a number.
        history: of its loss.
    """

    model: nn.Module
    steps: int = 0
    parameters: int = 0
    seconds: float = 0.0
    diverged: bool = False
    history: History = field(default_factory=dict)


class Sharded(ABC):
    """A method whose original model is put together from one sub-model a shard.

    Args:
        settings: of the method.
    """

    name: ClassVar[str]
    settings_type: ClassVar[type[ShardSettings]]
    plain: ClassVar[bool] = True

    def __init__(self, settings: Any = None) -> None:
        """Take settings; none: the defaults."""
        self.settings: Any = self.settings_type() if settings is None else settings

    @abstractmethod
    def partition(self, subject: PartSubject, owner: IntArray, item: IntArray) -> IntArray:
        """Shard of each sample: ``[n]``."""

    @abstractmethod
    def combine(self, request: Request, before: Request | None) -> Combined:
        """One model of the sub-models; ``before`` is the original's state where it may be started from."""

    @abstractmethod
    def combining(self, subject: PartSubject, forget: IntArray) -> tuple[str, int, int]:
        """What :meth:`combine` adds to a deletion: words for the sentence, parameters and steps."""

    @property
    def starts_from_original(self) -> bool:
        """Tell whether combining after a deletion starts from the original's combination."""
        return False

    def original(
        self, subject: Subject, *, seed: int = 0, folder: Path | None = None, progress: Progress | None = None
    ) -> nn.Module:
        """Model of all shards, trained here once and read back from ``folder`` afterwards."""
        known = self._known(subject)
        shard = self.partition(known, *known.pairs())
        with _working_folder(folder) as place:
            request = self._request(known, shard, NOBODY, seed, place, progress)
            self._train(request, request.parts, OF_ORIGINAL)
            return self.combine(request, None).model

    def cost(self, subject: Subject, forget: IntArray) -> Cost:
        """Touched shards, exact for the partition of the settings, and what combining adds."""
        known, forget = self._known(subject), checked(subject, forget)
        owner, item = known.pairs()
        shard = self.partition(known, owner, item)
        gone = np.isin(owner, forget)
        touched = np.unique(shard[gone])
        left = int((np.isin(shard, touched) & ~gone).sum())
        words, added, steps = self.combining(known, forget)
        parameters = len(touched) * sum(p.numel() for p in subject.model.parameters()) + added
        sentence = (
            f"{self.name} retrains {len(touched)} of {self.settings.shards} shards ({left:,} of "
            f"{len(owner):,} interactions) without the {int(gone.sum()):,} interactions of "
            f"{len(forget):,} forgotten users{words}."
        )
        return Cost(sentence, parameters, steps or None, shards=float(len(touched)))

    def unlearn(
        self,
        subject: Subject,
        forget: IntArray,
        *,
        seed: int = 0,
        folder: Path | None = None,
        progress: Progress | None = None,
    ) -> Unlearned:
        """Retrain the touched shards and put all together again.

        What the original model has in ``folder`` is read; what is missing is trained first and is no part of
        ``seconds`` (``parts`` has it as "preparation").
        """
        known, forget = self._known(subject), checked(subject, forget)
        shard = self.partition(known, *known.pairs())
        with _working_folder(folder) as place:
            before = self._request(known, shard, NOBODY, seed, place, progress)
            after = self._request(known, shard, forget, seed, place, progress)
            touched = _touched(before, after)
            prepared = self._prepare(before, [p for p in before.parts if p.shard not in touched])
            trained = self._train(after, [p for p in after.parts if p.shard in touched], "")
            made = self.combine(after, before if self.starts_from_original else None)
        numbers = sum(p.numel() for p in subject.model.parameters())
        retrained = [part for part in after.parts if part.shard in touched]
        return Unlearned(
            made.model,
            self.name,
            self.settings.model_dump(mode="json"),
            seed,
            len(forget),
            made.steps,
            trained + made.seconds,
            peak_memory(next(subject.model.parameters()).device),
            len(retrained) * numbers + made.parameters,
            diverged=made.diverged,
            history=made.history,
            shards=len(touched),
            parts={"preparation": prepared, "shards": trained, "combination": made.seconds},
        )

    def _known(self, subject: Subject) -> PartSubject:
        check_family(self.name, subject)
        if not isinstance(subject, PartSubject):
            raise UsageError(
                f"{self.name} trains on parts of the data, which this kind of model does not offer. "
                "Name another method, or retrain."
            )
        return subject

    def _request(
        self,
        subject: PartSubject,
        shard: IntArray,
        forget: IntArray,
        seed: int,
        folder: Path,
        progress: Progress | None,
    ) -> Request:
        owner, item = subject.pairs()
        gone = np.isin(owner, forget)
        s = self.settings
        parts = make_parts(subject, shard, gone, seed=seed, effort=s.effort, batch=s.batch)
        return Request(subject, forget, owner, item, parts, seed, folder, progress)

    def _prepare(self, before: Request, untouched: list[Part]) -> float:
        began = time.perf_counter()
        if self.starts_from_original:
            self._train(before, before.parts, OF_ORIGINAL)
            self.combine(before, None)
        else:
            self._train(before, untouched, OF_ORIGINAL)
        return time.perf_counter() - began

    def _train(self, request: Request, parts: list[Part], which: str) -> float:
        def told(done: int, count: int) -> None:
            if request.progress is not None:
                request.progress(f"{self.name}: shards{which}", done, count)

        return train_parts(
            request.subject, parts, request.folder, processes=self.settings.processes, told=told
        )


def _touched(before: Request, after: Request) -> set[int]:
    """Shards whose samples differ."""
    keys = {part.key for part in after.parts}
    return {part.shard for part in before.parts if part.key not in keys}


@contextmanager
def _working_folder(folder: Path | None) -> Iterator[Path]:
    """``shards`` in the folder, or a folder that is deleted at the end."""
    if folder is not None:
        yield Path(folder) / "shards"
        return
    with tempfile.TemporaryDirectory(prefix="recunlearn-shards-") as name:
        yield Path(name)
