"""Refuse what cannot be attributed, in one sentence."""

from numbers import Integral
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from recunlearn.circuits.baselines import Baseline
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
    check_whole(n_steps=n_steps)
    if n_steps < LEAST_STEPS:
        raise UsageError(f"A path needs at least {LEAST_STEPS} steps, but got n_steps={n_steps}.")
    check_at_least_one(internal_batch_size=internal_batch_size)


def check_whole(**given: Any) -> None:
    """Refuse what is no whole number."""
    for option, value in given.items():
        if not isinstance(value, Integral):
            raise UsageError(f"{option} must be a whole number, but got {value!r}.")


def check_at_least_one(**given: int | None) -> None:
    """Refuse what is neither absent nor a whole number from 1."""
    for option, value in given.items():
        if value is None:
            continue
        check_whole(**{option: value})
        if value < 1:
            raise UsageError(f"{option} must be at least 1, but got {value}. Leave it out for the default.")


def check_baseline(baseline: str) -> None:
    """Refuse an unknown baseline."""
    names = get_args(Baseline)
    if baseline not in names:
        hint = near_miss(str(baseline), names)
        raise UsageError(f"Unknown baseline '{baseline}'.{hint} Choose one of: {', '.join(names)}.")


def check_plan(model: nn.Module, plan: ComponentPlan) -> None:
    """Refuse the plan of another model."""
    have = {name for name, _ in model.named_modules()}
    missing = [name for name in plan.modules if name not in have]
    if missing:
        raise UsageError(
            f"The plan is of another model: {type(model).__name__} has no module '{missing[0]}'. Call "
            "discover with this model."
        )


def check_granularity(**given: str) -> None:
    """Refuse an unknown granularity of sources or sinks."""
    for option, value in given.items():
        if value not in GRANULARITIES:
            hint = near_miss(str(value), GRANULARITIES)
            raise UsageError(f"Unknown {option} '{value}'.{hint} Choose one of: {', '.join(GRANULARITIES)}.")


def check_batch(model: nn.Module, batch: Batch) -> None:
    """Refuse an empty batch, another device, and dropout that is on."""
    if not len(batch):
        raise UsageError("The batch is empty: there is nothing to attribute. Give at least one sample.")
    check_place(model, batch)
    for name, module in model.named_modules():
        if isinstance(module, _DropoutNd) and module.training and module.p > 0:
            raise UsageError(
                f"Dropout is on ('{name}', p={module.p}): edges would be those of random parts of the model. "
                "Call model.eval() first."
            )


def check_place(model: nn.Module, batch: Batch) -> None:
    """Refuse a batch on another device, columns of other lengths, and where nothing can be computed."""
    place = next((p.device for p in model.parameters()), batch.entity.device)
    if place.type == "meta":
        raise UsageError(
            "The model is on the device 'meta', where nothing is computed. Load its weights first."
        )
    for name, column in batch.columns.items():
        if column.device != place:
            raise UsageError(
                f"The model is on {place}, but the column '{name}' of the batch on {column.device}. Move one "
                f"of them: batch.to('{place}')."
            )
        if len(column) != len(batch):
            raise UsageError(
                f"The batch has {len(batch)} samples, but its column '{name}' {len(column)} rows. Give one "
                "row a sample."
            )
    if torch.is_inference_mode_enabled():
        raise UsageError(
            "torch.inference_mode is on, and there are no gradients in it. Leave it; torch.no_grad may stay."
        )


def check_shapes(plan: ComponentPlan, leaves: list[Tensor | None]) -> None:
    """Refuse outputs that the plan would split into other parts than it names."""
    for component, leaf in zip(plan.components, leaves, strict=True):
        if leaf is not None and not component.fits(tuple(leaf.shape[1:])):
            raise UsageError(
                f"The component '{component.name}' has shape {tuple(leaf.shape[1:])} in this batch, but "
                f"{component.shape} in the plan, which has parts of it. Call discover with such a batch, "
                "with granularity='module', or give sequences of one length."
            )


def refuse_heads(plan: ComponentPlan, who: str, instead: str) -> None:
    """Refuse a plan with layers that are split into the terms of their heads."""
    if plan.by_head:
        raise UsageError(
            f"{who} does not know the terms of attention heads, but the plan has them "
            f"('{next(iter(plan.by_head))}'). Choose {instead}."
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
