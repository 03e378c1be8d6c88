"""What can be traced: a model with a metric; every subject, and any module."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor, nn

from recunlearn.subjects.contract import Batch, PlanHints


class Traceable(Protocol):
    """The part of :class:`recunlearn.subjects.contract.Subject` that circuits need."""

    @property
    def model(self) -> nn.Module:
        """The module that is cut into components."""
        ...

    def log_likelihood(self, model: nn.Module, batch: Batch) -> Tensor:
        """``[B]``: the value that edges explain."""
        ...

    def hints(self) -> PlanHints:
        """Names, row ranges and padding of the embedding tables."""
        ...


@dataclass(frozen=True)
class ModuleSubject:
    """Any module with a metric of one value a sample.

    Args:
        model: reads at least one embedding table.
        metric: ``metric(model, batch) -> [B]``.
        known: names, row ranges and padding of the embedding tables.
    """

    model: nn.Module
    metric: Callable[[nn.Module, Batch], Tensor]
    known: PlanHints = field(default_factory=PlanHints)

    def log_likelihood(self, model: nn.Module, batch: Batch) -> Tensor:
        """``[B]``: the metric."""
        return self.metric(model, batch)

    def hints(self) -> PlanHints:
        """What is known about the tables."""
        return self.known
