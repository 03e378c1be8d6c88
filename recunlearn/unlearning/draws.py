"""Batches of the forgotten and of the others, drawn side by side."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from recunlearn.subjects.contract import Batch, IntArray, Subject


@dataclass(frozen=True)
class Pair:
    """What one step sees.

    Args:
        forget: samples of the forgotten.
        retain: samples of the others with the negatives of training; None where nothing is retained.
        state: of the generator after this draw, so that drawing can go on from here.
    """

    forget: Batch
    retain: Batch | None
    state: Tensor

    def to(self, device: torch.device | str) -> "Pair":
        """Move both batches."""
        kept = None if self.retain is None else self.retain.to(device)
        return replace(self, forget=self.forget.to(device), retain=kept)


@dataclass(frozen=True)
class Draws:
    """Pairs without end; every ``iter`` starts from the seed, or from ``state`` where there is one.

    Args:
        subject: whose training samples are drawn, with replacement.
        forget: entities to forget.
        retain: entities to keep; None: nothing is drawn of them.
        size: samples of each in a step.
        seed: of all draws.
        state: of a generator that was stopped.
        negatives: whether the forgotten's samples come with the negatives of training, too.
    """

    subject: Subject
    forget: IntArray
    retain: IntArray | None
    size: int
    seed: int
    state: Tensor | None = None
    negatives: bool = False

    def __iter__(self) -> Iterator[Pair]:
        """Draw."""
        generator = torch.Generator().manual_seed(self.seed)
        if self.state is not None:
            generator.set_state(self.state)
        while True:
            forget = self.subject.draw(self.forget, self.size, generator, negatives=self.negatives)
            retain = None
            if self.retain is not None:
                retain = self.subject.draw(self.retain, self.size, generator, negatives=True)
            yield Pair(forget, retain, generator.get_state())
