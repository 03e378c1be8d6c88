"""Refuse what cannot be attributed, in one sentence."""

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from recunlearn.circuits.path import METHODS, Method
from recunlearn.circuits.plan import GRANULARITIES, ComponentPlan
from recunlearn.foundation.errors import TraceError, UsageError, near_miss
from recunlearn.subjects.contract import Batch

LEAST_STEPS = 2


def check_options(method: Method, n_steps: int, internal_batch_size: int | None) -> None:
    """Refuse unknown edge scores, too few steps and an empty tile."""
    if method not in METHODS:
        hint = near_miss(str(method), METHODS)
        raise UsageError(f"Unknown edge score '{method}'.{hint} Choose one of: {', '.join(METHODS)}.")
    if n_steps < LEAST_STEPS:
        raise UsageError(f"A path needs at least {LEAST_STEPS} steps, but got n_steps={n_steps}.")
    if internal_batch_size is not None and internal_batch_size < 1:
        raise UsageError(
            f"internal_batch_size must be at least 1, but got {internal_batch_size}. Leave it out for the "
            "whole batch at once."
        )


def check_granularity(**given: str) -> None:
    """Refuse an unknown granularity of sources or sinks."""
    for option, value in given.items():
        if value not in GRANULARITIES:
            hint = near_miss(value, GRANULARITIES)
            raise UsageError(f"Unknown {option} '{value}'.{hint} Choose one of: {', '.join(GRANULARITIES)}.")


def check_batch(model: nn.Module, batch: Batch) -> None:
    """Refuse an empty batch, another device, and dropout that is on."""
    if not len(batch):
        raise UsageError("The batch is empty: there is nothing to attribute. Give at least one sample.")
    place = next((p.device for p in model.parameters()), batch.entity.device)
    for name, column in batch.columns.items():
        if column.device != place:
            raise UsageError(
                f"The model is on {place}, but the column '{name}' of the batch on {column.device}. Move one "
                f"of them: batch.to('{place}')."
            )
    for name, module in model.named_modules():
        if isinstance(module, _DropoutNd) and module.training and module.p > 0:
            raise UsageError(
                f"Dropout is on ('{name}', p={module.p}): edges would be those of random parts of the model. "
                "Call model.eval() first."
            )


def refuse_not_finite(plan: ComponentPlan, leaves: list[Tensor | None], edges: Tensor) -> None:
    """Name the first component, or else the first edge, that is not a finite number.

    Args:
        leaves: components at the path points of a sample that has such an edge.
        edges: ``[B, E]``.
    """
    for component, leaf in zip(plan.components, leaves, strict=True):
        if leaf is not None and not torch.isfinite(leaf).all():
            raise TraceError(
                f"The output of the component '{component.name}' is not a finite number somewhere between "
                "baseline and input. Check the model's weights, or choose another baseline."
            )
    column = int((~torch.isfinite(edges)).any(0).nonzero()[0])
    raise TraceError(
        f"The gradient along the edge '{plan.edges[column]}' is not a finite number. Check the model's "
        "weights, or choose another baseline."
    )
