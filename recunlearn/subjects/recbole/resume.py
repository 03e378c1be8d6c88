"""The journal of a training run: best weights, history, random states, so that a killed run resumes."""

import copy
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from recunlearn.foundation.store import content_hash
from recunlearn.subjects.recbole.scoring import clear_caches
from recunlearn.subjects.state_file import read_state, write_state

_FILE = "last.ckpt"


class Journal:
    """What must survive a kill; written whole after every epoch.

    A resumed run equals an uninterrupted one bit for bit: weights, optimiser, plain counters of the model and
    the states of python's, numpy's, torch's and the loader's generators are kept.
    """

    def __init__(
        self,
        work: Path | None,
        facts: Mapping[str, Any],
        epochs: int,
        model: nn.Module,
        optimiser: Any,
        loader: Any,
    ) -> None:
        self.path = None if work is None else work / _FILE
        self.identity = content_hash(dict(facts), epochs)
        self.model, self.optimiser, self.loader = model, optimiser, loader
        self.epoch = self.best_epoch = self.worse = 0
        self.best_score: float | None = None
        self.best: dict[str, Any] | None = None
        self.losses: list[float] = []
        self.valid: list[dict[str, float]] = []

    def record(self, loss: float, metrics: Mapping[str, float], score: float | None) -> None:
        """Close an epoch; ``score`` None: not evaluated, so the newest weights are the best."""
        self.epoch += 1
        self.losses.append(loss)
        self.valid.append(dict(metrics))
        if score is None and self.best_score is None:
            self.best_epoch = self.epoch
        elif score is not None and (self.best_score is None or score > self.best_score):
            self.best_score, self.best_epoch, self.worse = score, self.epoch, 0
            self.best = _copy(self.model.state_dict())
        elif score is not None:
            self.worse += 1
        self._write()

    def restore_best(self) -> None:
        """Put the best weights back into the model."""
        if self.best is not None:
            self.model.load_state_dict(self.best)
        clear_caches(self.model)

    def resume(self) -> None:
        """Continue where a killed run with the same settings stopped; anything unreadable is ignored."""
        state = None if self.path is None else read_state(self.path, self.identity)
        if state is None:
            return
        self.model.load_state_dict(state["model"])
        for name, value in state["counters"].items():
            setattr(self.model, name, value)
        self.optimiser.load_state_dict(state["optimiser"])
        for name in ("epoch", "best_epoch", "worse", "best_score", "best", "losses", "valid"):
            setattr(self, name, state[name])
        _set_random_states(state["random"], self.loader)

    def _write(self) -> None:
        if self.path is None:
            return
        counters = {k: v for k, v in vars(self.model).items() if type(v) in (int, float)}
        state = {
            "model": self.model.state_dict(),
            "counters": counters,
            "optimiser": self.optimiser.state_dict(),
            "random": _random_states(self.loader),
            **{
                n: getattr(self, n)
                for n in ("epoch", "best_epoch", "worse", "best_score", "best", "losses", "valid")
            },
        }
        write_state(self.path, self.identity, state)


def _copy(state: Mapping[str, Any]) -> dict[str, Any]:
    return {k: copy.deepcopy(v.detach()) if isinstance(v, torch.Tensor) else v for k, v in state.items()}


def _random_states(loader: Any) -> dict[str, Any]:
    state: Any = np.random.get_state()
    _, keys, position, has_gauss, cached = state
    version, internal, gauss = random.getstate()
    return {
        "python": [version, list(internal), gauss],
        "numpy": [torch.from_numpy(keys.astype(np.int64)), int(position), int(has_gauss), float(cached)],
        "torch": torch.get_rng_state(),
        "loader": loader.generator.get_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def _set_random_states(state: Mapping[str, Any], loader: Any) -> None:
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    loader.generator.set_state(state["loader"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


def discard(work: Path) -> None:
    """Delete the journal of a finished run."""
    (work / _FILE).unlink(missing_ok=True)
    if work.is_dir() and not any(work.iterdir()):
        work.rmdir()
