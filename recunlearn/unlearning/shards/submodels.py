"""One model a shard, stored under the hash of everything that makes it: nothing is trained twice."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.store import atomic_file, content_hash
from recunlearn.subjects.parts import PartSubject
from recunlearn.unlearning.shards.parallel import cores, run_tasks

RULES = 1
"""Raised when the same part would no longer give the same model."""
WORTH_PROCESSES = 200_000
"""Samples from which on starting processes (some ten seconds each) pays."""
State = tuple[dict[str, Tensor], float]


@dataclass(frozen=True)
class Part:
    """What one sub-model is trained on.

    Args:
        shard: its number.
        kept: ``[n]`` bool, samples in the order of ``Subject.batches``; some of them are True.
        seed, effort, batch: of its training, as for ``PartSubject.train_on``.
        key: hash of subject, samples and these.
    """

    shard: int
    kept: NDArray[np.bool_]
    seed: int
    effort: float
    batch: float
    key: str

    def path(self, folder: Path) -> Path:
        """File of the trained model."""
        return folder / f"{self.key}.safetensors"


def make_parts(
    subject: PartSubject,
    shard: NDArray[np.int64],
    gone: NDArray[np.bool_],
    *,
    seed: int,
    effort: float = 1.0,
    batch: float = 1.0,
) -> list[Part]:
    """Parts of the shards that have samples left; all begin from the same weights, those of ``seed``.

    Args:
        subject: with the settings of the training.
        shard: ``[n]`` shard of each sample.
        gone: ``[n]`` bool, samples that are forgotten.
        seed, effort, batch: of the training.
    """
    how = (seed, effort, batch)
    facts = dict(subject.describe())
    masks = [(shard == number) & ~gone for number in range(int(shard.max()) + 1)]
    return [
        Part(n, kept, *how, content_hash(RULES, facts, np.packbits(kept), len(kept), how))
        for n, kept in enumerate(masks)
        if kept.any()
    ]


def train_parts(
    subject: PartSubject,
    parts: Sequence[Part],
    folder: Path,
    *,
    processes: int | None = None,
    told: Callable[[int, int], None] | None = None,
) -> float:
    """Train the parts that ``folder`` does not hold yet; a killed run goes on with those that are missing.

    Args:
        subject: as for :func:`make_parts`.
        parts: to train.
        folder: of their files.
        processes: most processes; None: one a core from :data:`WORTH_PROCESSES` samples on, else this one.
        told: called with the number of parts that are done and of all.

    Returns:
        Seconds that training took: now, and in earlier runs for those that were already there.
    """
    began = time.perf_counter()
    held = {p.key: read_state(p.path(folder)) for p in parts}
    missing = sorted((p for p in parts if held[p.key] is None), key=lambda p: -int(p.kept.sum()))
    done = len(parts) - len(missing)

    def count(_: Any) -> None:
        nonlocal done
        done += 1
        if told is not None:
            told(done, len(parts))

    if processes is None:
        processes = cores() if sum(int(p.kept.sum()) for p in missing) >= WORTH_PROCESSES else 1
    numbers = range(len(missing))
    run_tasks(_train, (subject, missing, folder), numbers, processes, count)
    earlier = sum(state[1] for state in held.values() if state is not None)
    return time.perf_counter() - began + earlier


def _train(shared: tuple[PartSubject, list[Part], Path], number: int) -> None:
    subject, parts, folder = shared
    part = parts[number]
    began = time.perf_counter()
    model = subject.train_on(part.kept, seed=part.seed, effort=part.effort, batch=part.batch)
    write_state(part.path(folder), dict(model.state_dict()), time.perf_counter() - began)


def load_part(subject: PartSubject, part: Part, folder: Path) -> nn.Module:
    """Trained model of a part that :func:`train_parts` has seen to, in eval mode.

    Raises:
        RecunlearnError: its file is gone.
    """
    state = read_state(part.path(folder))
    if state is None:
        raise RecunlearnError(f"{part.path(folder)} was removed while it was needed. Run the command again.")
    return subject.load_on(part.kept, state[0]).eval()


def write_state(path: Path, state: dict[str, Tensor], seconds: float) -> None:
    """Write tensors and what they took to train, whole or not at all."""
    plain = {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
    with atomic_file(path) as temporary:
        save_file(plain, temporary, metadata={"seconds": repr(seconds)})


def read_state(path: Path) -> State | None:
    """Tensors and seconds of a file; None where it is missing or cannot be read."""
    try:
        with safe_open(path, framework="pt") as file:
            seconds = float((file.metadata() or {})["seconds"])
            return {name: file.get_tensor(name) for name in file.keys()}, seconds  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, ValueError):
        return None
