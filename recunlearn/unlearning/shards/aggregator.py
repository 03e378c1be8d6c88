"""RecEraser's aggregator: one model whose vectors are an attentive mixture of the shards' vectors."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from recunlearn.subjects.contract import Batch, Subject
from recunlearn.subjects.parts import Rows, Vectors

SIDES = ("entity", "item")
Dropout = tuple[float, torch.Generator]
"""Probability that a candidate is left out of a row's mixture, and where the draws come from."""


class Translation(nn.Module):
    """W_m and b_m of every shard: ``[P, d] -> [P, d]``, the rows of shard 0 first, then those of 1, ..."""

    def __init__(self, shards: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(width).repeat(shards, 1, 1))
        self.bias = nn.Parameter(torch.zeros(shards, width))

    def forward(self, vectors: Tensor, sizes: list[int]) -> Tensor:
        """Translate; ``sizes`` are the numbers of rows of each shard."""
        pieces = zip(self.bias, vectors.split(sizes), self.weight, strict=True)
        return torch.cat([torch.addmm(bias, piece, weight) for bias, piece, weight in pieces])


class Attention(nn.Module):
    """Mixture over shards of translated vectors.

    e~^m = e^m W_m + b_m;  alpha^m = softmax_m(h . ReLU(W_A e~^m + b_A));  e = sum_m alpha^m e~^m.

    Source: RecEraser, arXiv 2201.06820, section 4.3. Deviations: W_m begins as the identity, and a shard that
    never saw a row is no candidate for it (a row that none saw takes all), which saves most of the work where
    a user is in one shard.

    Args:
        stacked: ``[k, n, d]`` vectors of the shards; the attention has d / 2 units.
        seen: ``[k, n]`` bool, which shard has a sample of which row.
    """

    vectors: Tensor
    row: Tensor

    def __init__(self, stacked: Tensor, seen: Tensor) -> None:
        super().__init__()
        self.count, width = stacked.shape[1:]
        units = max(1, width // 2)
        self.hidden = nn.Linear(width, units)
        self.score = nn.Linear(units, 1, bias=False)
        used = (seen | ~seen.any(0)).to(stacked.device)
        self.sizes: list[int] = used.sum(1).tolist()
        self.register_buffer("vectors", stacked[used], persistent=False)
        self.register_buffer("row", used.nonzero()[:, 1], persistent=False)

    def forward(self, translation: nn.Module, dropout: Dropout | None = None) -> Tensor:
        """``[n, d]``; with ``dropout`` some candidates are left out, but never all of a row."""
        translated: Tensor = translation(self.vectors, self.sizes)
        weight = self.score(torch.relu(self.hidden(translated))).squeeze(-1)
        if dropout is not None:
            weight = weight.masked_fill(~self._kept(dropout), -torch.inf)
        alpha = softmax_within(weight, self.row, self.count)
        mixed = translated.new_zeros(self.count, translated.shape[1])
        return mixed.index_add(0, self.row, alpha[:, None] * translated)

    def _kept(self, dropout: Dropout) -> Tensor:
        rate, generator = dropout
        kept = (torch.rand(len(self.row), generator=generator) >= rate).to(self.row.device)
        left = torch.zeros(self.count, device=self.row.device).index_add(0, self.row, kept.float())
        return kept | (left == 0)[self.row]


def softmax_within(values: Tensor, group: Tensor, count: int) -> Tensor:
    """Softmax of ``[P]`` values among those of the same group ``[P]`` in [0, count)."""
    highest = values.new_full((count,), -torch.inf)
    highest = highest.scatter_reduce(0, group, values.detach(), "amax")
    part = (values - highest[group]).exp()
    total = part.new_zeros(count).index_add(0, group, part)
    return part / total[group]


class Aggregator(nn.Module):
    """Model of the subject's form whose vectors are computed from those of frozen sub-models.

    Everything that is no vector of an entity or item (layers of NeuMF, feature tables of DeepFM) is shared,
    begins as the mean over the sub-models and is trained here; BPR and graph models have nothing of the kind.

    Args:
        subject: whose log-likelihood is the base loss.
        parts: vectors of the sub-models, all of one form.
        seen_entities, seen_items: ``[k, n]`` bool, which shard has samples of which row.
        seed: of the attention's weights.
    """

    def __init__(
        self,
        subject: Subject,
        parts: Sequence[Vectors],
        seen_entities: Tensor,
        seen_items: Tensor,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.rows = {side: _rows_of(parts[0], side) for side in SIDES}
        self.template = _Scored(subject, _mean_model([p.model for p in parts]))
        seen = dict(zip(SIDES, (seen_entities, seen_items), strict=True))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._build(parts, {side: seen[side] for side, rows in self.rows.items() if rows})

        _freeze_vectors(self.template.model, parts[0])

    def _build(self, parts: Sequence[Vectors], seen: Mapping[str, Tensor]) -> None:
        self.translation = nn.ModuleDict()
        self.attention = nn.ModuleDict()
        for side, mask in seen.items():
            stacked = torch.stack([side_by_side(p.model, _rows_of(p, side)) for p in parts])
            width = stacked.shape[2]
            self.attention[side] = Attention(stacked, mask)
            if str(width) not in self.translation:
                self.translation[str(width)] = Translation(len(parts), width)
        self.to(next(parts[0].model.parameters()).device)

    def vectors(self, side: str, dropout: Dropout | None = None) -> Tensor:
        """Aggregated vectors of "entity" or "item": ``[n, d]``."""
        attention: Any = self.attention[side]
        mixed: Tensor = attention(self.translation[str(attention.vectors.shape[1])], dropout)
        return mixed

    def tables(self, dropout: Dropout | None = None) -> dict[str, Tensor]:
        """Every parameter of the model that holds vectors, with the aggregated ones in their places."""
        parameters = dict(self.template.model.named_parameters())
        found: dict[str, Tensor] = {}
        for side in self.attention:
            widths = [parameters[r.parameter].shape[1] for r in self.rows[side]]
            for rows, values in zip(
                self.rows[side], self.vectors(side, dropout).split(widths, 1), strict=True
            ):
                table = found.get(rows.parameter, parameters[rows.parameter])
                end = rows.first + rows.count
                found[rows.parameter] = torch.cat([table[: rows.first], values, table[end:]])
        return found

    def log_likelihood(self, batch: Batch, dropout: Dropout | None = None) -> Tensor:
        """``[B]``, differentiable with respect to the aggregator's own parameters."""
        tables = {f"model.{name}": value for name, value in self.tables(dropout).items()}
        found: Tensor = functional_call(self.template, tables, (batch,))
        return found

    def plain(self) -> nn.Module:
        """Model of the subject's form with the aggregated vectors as its tables; nothing of the shards."""
        model = copy.deepcopy(self.template.model)
        parameters = dict(model.named_parameters())
        with torch.no_grad():
            for name, value in self.tables().items():
                parameters[name].copy_(value)
        return model.requires_grad_(True).eval()


class _Scored(nn.Module):
    """Log-likelihood of a model as a module, so that its tables can be computed ones."""

    def __init__(self, subject: Subject, model: nn.Module) -> None:
        super().__init__()
        self.subject, self.model = subject, model

    def forward(self, batch: Batch) -> Tensor:
        """``[B]``."""
        return self.subject.log_likelihood(self.model, batch)


def _rows_of(part: Vectors, side: str) -> tuple[Rows, ...]:
    return part.entities if side == "entity" else part.items


def _freeze_vectors(model: nn.Module, part: Vectors) -> None:
    """Tables that hold vectors and nothing else are computed, so they need no training."""
    covered: dict[str, list[int]] = {}
    for rows in (*part.entities, *part.items):
        covered.setdefault(rows.parameter, []).append(rows.count)
    for name, parameter in model.named_parameters():
        counts = covered.get(name, [])
        # Every field of a table may have one row that stands for nothing.
        parameter.requires_grad_(not counts or len(parameter) > sum(counts) + len(counts))


def own_parameters(part: Vectors, shards: int) -> int:
    """Numbers that an aggregator of so many sub-models of this form trains."""
    parameters = dict(part.model.named_parameters())
    copied = copy.deepcopy(part.model)
    _freeze_vectors(copied, part)
    total = sum(p.numel() for p in copied.parameters() if p.requires_grad)
    widths = [
        sum(parameters[r.parameter].shape[1] for r in rows) for rows in (part.entities, part.items) if rows
    ]
    total += sum(shards * (width * width + width) for width in set(widths))
    return total + sum(max(1, width // 2) * (width + 2) for width in widths)


def side_by_side(model: nn.Module, rows: tuple[Rows, ...]) -> Tensor:
    """Vectors of all entities or items, of several tables side by side: ``[n, d]``."""
    parameters = dict(model.named_parameters())
    return torch.cat([parameters[r.parameter].detach()[r.first : r.first + r.count] for r in rows], 1)


def _mean_model(models: Sequence[nn.Module]) -> nn.Module:
    """Copy of the first model with the mean of all models' parameters."""
    mean = copy.deepcopy(models[0])
    with torch.no_grad():
        for name, parameter in mean.named_parameters():
            stacked = torch.stack([m.get_parameter(name) for m in models])
            parameter.copy_(stacked.mean(0))
    return mean
