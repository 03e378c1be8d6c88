"""What can be traced: a model with a metric; every subject, and any module."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor, nn

from recunlearn.foundation.errors import UsageError, near_miss
from recunlearn.subjects.contract import COMPUTED, Batch, PlanHints

Metric = Callable[[nn.Module, Batch], Tensor]


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


def traced_metric(metric: Metric, hints: PlanHints) -> Metric:
    """The metric by the shortcut of the hints, if there is one."""
    shortcut = hints.shortcut
    if shortcut is None:
        return metric

    def shorter(model: nn.Module, batch: Batch) -> Tensor:
        with shortcut(model, batch):
            return metric(model, batch)

    return shorter


@dataclass(frozen=True)
class ModuleSubject:
    """Any module with a metric of one value a sample.

    Args:
        model: reads at least one embedding table.
        metric: ``metric(model, batch) -> [B]``.
        known: names, row ranges and padding of the embedding tables.
    """

    model: nn.Module
    metric: Metric
    known: PlanHints = field(default_factory=PlanHints)

    def __post_init__(self) -> None:
        """Refuse hints about tables and rows that are not there: they would be overlooked."""
        tables = dict(self.model.named_parameters())
        tables |= {n: m.weight for n, m in self.model.named_modules() if isinstance(m, nn.Embedding)}
        self._refuse_unknown_components()
        named = {k: v for k, v in self.known.names.items() if k not in self.known.components}
        for name in {**self.known.fields, **self.known.rows, **self.known.padding, **named}:
            if name not in tables and not name.startswith(COMPUTED):
                raise UsageError(
                    f"The hints are about the table '{name}', which the model does not have."
                    f"{near_miss(name, tables)} A table is named by the path of its module."
                )
        spans = [(n, a, b) for n, ranges in self.known.rows.items() for a, b in ranges]
        spans += [(n, row, row + 1) for n, row in self.known.padding.items()]
        for name, first, end in spans:
            if name in tables and not 0 <= first < end <= len(tables[name]):
                raise UsageError(
                    f"The hints name the rows from {first} up to {end} (exclusive) of the table '{name}', "
                    f"which has {len(tables[name])} rows."
                )

    def _refuse_unknown_components(self) -> None:
        modules = {name for name, _ in self.model.named_modules() if name}
        for name in (*self.known.components, *self.known.heads):
            if name not in modules:
                raise UsageError(
                    f"The hints name the component '{name}', but the model has no such module."
                    f"{near_miss(name, modules)} A component is named by the path of its module."
                )
        for name in self.known.heads:
            if name not in self.known.components:
                raise UsageError(
                    f"The hints give '{name}' heads, but it is none of the components they name."
                )

    def log_likelihood(self, model: nn.Module, batch: Batch) -> Tensor:
        """``[B]``: the metric."""
        return self.metric(model, batch)

    def hints(self) -> PlanHints:
        """What is known about the tables."""
        return self.known
