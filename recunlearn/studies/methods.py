"""The methods of the probe: forget losses of ``recunlearn.unlearning``, strong enough for single samples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from recunlearn.foundation.errors import UsageError, near_miss
from recunlearn.subjects.contract import Batch, Subject
from recunlearn.unlearning.registry import make

STRENGTHS: Mapping[str, Mapping[str, Any]] = {
    "GradAscent": {},
    "GradDiff": {},
    "NPO": {"beta": 1.0},
    "SimNPO": {"beta": 1.0, "length": "interaction"},
    "UNDIAL": {"beta": 10.0},
}
"""docs/metrics/outcomes.md says where they differ from the papers'."""

Forget = Callable[[Subject, nn.Module, nn.Module, Batch], Tensor]


@dataclass(frozen=True)
class Method:
    """One unlearning method.

    Args:
        name: its name in settings.
        forget: loss of a forget batch under (subject, model, original model, batch).
        retains: whether the training loss of other entities is added.
    """

    name: str
    forget: Forget
    retains: bool = True


def _method(name: str, strengths: Mapping[str, Any]) -> Method:
    unlearner: Any = make(name, strengths)
    return Method(name, unlearner.forget_loss, unlearner.retains())


REGISTRY = {name: _method(name, strengths) for name, strengths in STRENGTHS.items()}


def find(name: str) -> Method:
    """Method by name; an unknown name lists the known ones."""
    if name not in REGISTRY:
        raise UsageError(
            f"Unknown unlearning method {name!r}.{near_miss(name, REGISTRY)} Allowed: {', '.join(REGISTRY)}."
        )
    return REGISTRY[name]
