"""Low-rank adapters (LoRA) on linear layers and embedding tables, by torch's own parametrisation.

The adapted weight is W + (alpha / rank) P Q wherever a model reads it, also where it reads ``table.weight``
instead of calling the table: docs/decisions/0006-lora.md.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from recunlearn.foundation.errors import UsageError
from recunlearn.subjects.contract import IntArray, Subject


class LowRank(nn.Module):
    """W ↦ W + scale · P Q, on all rows of W or on some.

    Args:
        weight: ``[n, d]``.
        rank: of the change, lowered to what the weight can have.
        scale: alpha / rank.
        rows: ``[m]`` rows that may change; None: all.
        gaussian: whether Q starts from a normal distribution (tables) or uniformly (linear layers); P starts
            at zero, so that nothing has changed yet. Source: arXiv 2106.09685 and its implementation in peft.
        generator: of Q.
    """

    def __init__(
        self,
        weight: Tensor,
        rank: int,
        scale: float,
        rows: Tensor | None,
        *,
        gaussian: bool,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        count, size = len(weight) if rows is None else len(rows), weight.shape[1]
        rank = max(1, min(rank, count, size))
        self.scale = scale
        self.rows: Tensor | None
        self.register_buffer("rows", rows)
        self.p = nn.Parameter(weight.new_zeros(count, rank))
        q = torch.empty(rank, size)
        if gaussian:
            q.normal_(generator=generator)
        else:
            nn.init.kaiming_uniform_(q, a=math.sqrt(5), generator=generator)
        self.q = nn.Parameter(q.to(weight))

    def forward(self, weight: Tensor) -> Tensor:
        """``[n, d] -> [n, d]``."""
        change = self.scale * (self.p @ self.q)
        return weight + change if self.rows is None else weight.index_add(0, self.rows, change)


def add_adapters(
    model: nn.Module, *, rank: int, alpha: float, seed: int, frozen: Mapping[str, Tensor]
) -> nn.Module:
    """Freeze ``model`` and put an adapter on every linear layer and embedding table that was trainable.

    Args:
        model: changed in place.
        rank, alpha: of the adapters.
        seed: of their start.
        frozen: parameter name -> ``[n]`` bool, rows that must not change.

    Raises:
        UsageError: there is nothing that an adapter fits.
    """
    generator = torch.Generator().manual_seed(seed)
    places = [(name, m) for name, m in _places(model) if m.get_parameter("weight").requires_grad]
    if not places:
        raise UsageError(
            f"{type(model).__name__} has no trainable linear layer or embedding table that an adapter fits, "
            "so E2URec cannot be used. Name another method."
        )
    model.requires_grad_(False)
    for name, module in places:
        weight = module.get_parameter("weight")
        kept = frozen.get(f"{name}.weight" if name else "weight")
        rows = None if kept is None or not kept.any() else (~kept).nonzero().squeeze(1)
        is_table = isinstance(module, nn.Embedding)
        low = LowRank(weight, rank, alpha / rank, rows, gaussian=is_table, generator=generator)
        parametrize.register_parametrization(module, "weight", low)
    return model


def merge_adapters(model: nn.Module) -> nn.Module:
    """Write the adapted weights over the original ones and drop the adapters."""
    for module in list(model.modules()):
        if parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
    return model


def other_rows(subject: Subject, forget: IntArray) -> dict[str, Tensor]:
    """Rows of parameters that belong to entities other than ``forget``: parameter name -> ``[n]`` bool.

    They are the rows that population means replace for everybody, but not for ``forget``. Tables that a model
    computes (graph models) have no rows of their own here.
    """
    everyone = np.arange(len(subject.entities), dtype=np.int64)
    mine, all_of_them = (_changed(subject, who) for who in (forget, everyone))
    return {name: rows & ~mine.get(name, torch.zeros_like(rows)) for name, rows in all_of_them.items()}


def _changed(subject: Subject, entities: IntArray) -> dict[str, Tensor]:
    before = dict(subject.model.named_parameters())
    after = dict(subject.population_rows(subject.model, entities).named_parameters())
    tables = {name: (p != after[name]) for name, p in before.items() if p.dim() == 2}
    return {name: changed.any(1) for name, changed in tables.items() if changed.any()}


def _places(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            yield name, module
