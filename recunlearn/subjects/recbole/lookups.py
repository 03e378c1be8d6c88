"""Which embedding tables a model reads, and with which ids: found by watching one small batch."""

import copy
import re
from dataclasses import dataclass
from inspect import signature
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from recunlearn.subjects.contract import COMPUTED, Batch, IntArray, PlanHints
from recunlearn.subjects.population import mean_of_others
from recunlearn.subjects.recbole.scoring import clear_caches, log_likelihood


@dataclass(frozen=True)
class LookUp:
    """One look-up of rows.

    Args:
        table: name of the parameter, None for a tensor that the model computes (graph models).
        ids: ``[B, ...]`` rows that were read.
        size: number of rows.
    """

    table: str | None
    ids: Tensor
    size: int


class _Recorder(TorchFunctionMode):
    def __init__(self, names: dict[int, str]) -> None:
        super().__init__()
        self.names = names
        self.found: list[LookUp] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.embedding:
            self._note(args[1], args[0])
        elif func is torch.Tensor.__getitem__ and isinstance(args[1], Tensor):
            self._note(args[0], args[1])
        return func(*args, **(kwargs or {}))

    def _note(self, table: Tensor, ids: Any) -> None:
        if not ids.is_floating_point() and ids.dtype != torch.bool and table.dim() == 2:
            self.found.append(LookUp(self.names.get(id(table)), ids.detach().clone(), len(table)))


def find_lookups(objective: str, model: nn.Module, batch: Batch) -> list[LookUp]:
    """Every look-up that the log-likelihood of ``batch`` makes."""
    names = {id(p): name for name, p in model.named_parameters()}
    with torch.no_grad(), _Recorder(names) as recorder:
        log_likelihood(objective, model, batch.columns)
    clear_caches(model)
    return recorder.found


def tables_at(lookups: list[LookUp], batch: Batch, column: str) -> dict[str | None, int]:
    """Tables read at the rows that ``column`` names -> row that stands for its id 0 (padding)."""
    ids, found = batch.columns[column], {}
    for look in lookups:
        if look.ids.dim() > 0 and len(look.ids) == len(ids):
            columns = look.ids.reshape(len(ids), -1)
            apart = columns - ids[:, None]
            same = (apart == apart[:1]).all(0) & (apart[0] >= 0)
            if same.any():
                found[look.table] = int(apart[0, same][0])
    return found


def with_population_rows(
    model: nn.Module, tables: dict[str | None, int], entities: IntArray, count: int
) -> nn.Module:
    """Copy of ``model`` in which the users' rows are the mean over all other users' rows.

    Args:
        model: original.
        tables: as from :func:`tables_at` for the users; None stands for a table that ``forward`` computes.
        entities: users to replace (0-based).
        count: number of users.
    """
    other = copy.deepcopy(model)
    inside = torch.zeros(count, dtype=torch.bool)
    inside[torch.as_tensor(np.asarray(entities), dtype=torch.long)] = True
    parameters = dict(other.named_parameters())
    for name, offset in tables.items():
        if name is None:
            other.__dict__["forward"] = _MeanRows(other, inside)
            continue
        with torch.no_grad():
            rows = parameters[name][offset + 1 : offset + 1 + count]
            place = inside.to(rows.device)
            rows[place] = mean_of_others(rows, place)
    clear_caches(other)
    return other


class _MeanRows:
    """``forward`` of a graph model that computes user vectors: the users' rows become the others' mean."""

    def __init__(self, model: nn.Module, inside: Tensor) -> None:
        self.model, self.inside = model, inside

    def __call__(self, *args: Any) -> Any:
        outputs = type(self.model).forward(self.model, *args)
        return tuple(map(self._replace, outputs)) if isinstance(outputs, tuple) else outputs

    def _replace(self, table: Any) -> Any:
        if not _is_user_table(table, len(self.inside)):
            return table
        inside = self.inside.to(table.device)
        rows = torch.where(inside[:, None], mean_of_others(table[1:], inside), table[1:])
        return torch.cat([table[:1], rows])


def user_vectors(model: nn.Module, tables: dict[str | None, int], count: int) -> Tensor | None:
    """Every user's rows of all tables side by side: ``[count, d]``; None without a table."""
    parameters = dict(model.named_parameters())
    found = []
    for name, offset in tables.items():
        if name is not None:
            found.append(parameters[name].detach()[offset + 1 : offset + 1 + count])
            continue
        outputs = _propagated(model)
        found += [t[1:] for t in outputs if _is_user_table(t, count)]
    return torch.cat(found, dim=1) if found else None


def with_free_rows(
    model: nn.Module, tables: dict[str | None, int], entities: IntArray, count: int
) -> tuple[nn.Module, list[nn.Parameter]] | None:
    """Copy of ``model`` in which only the users' rows can be trained; they begin as the others' mean.

    None where no table holds a vector of each user.

    Args:
        model, tables, entities, count: as for :func:`with_population_rows`.
    """
    other = with_population_rows(model, tables, entities, count)
    for parameter in other.parameters():
        parameter.requires_grad_(False)
    rows = torch.as_tensor(np.asarray(entities), dtype=torch.long)
    parameters = dict(other.named_parameters())
    free: list[nn.Parameter] = []
    for name, offset in tables.items():
        if name is None:
            continue
        table = parameters[name]
        table.requires_grad_(True)
        mask = torch.zeros(len(table), 1, device=table.device)
        mask[rows + offset + 1] = 1.0
        table.register_hook(mask.mul)
        free.append(table)
    if None in tables:
        forward = _FreeRows(other, rows, count)
        if forward.vectors:
            other.__dict__["forward"] = forward
        free += forward.vectors.values()
    return (other, free) if free else None


def _propagated(model: Any) -> tuple[Any, ...]:
    """What the ``forward`` of a graph model returns; empty where it needs arguments."""
    parameters = list(signature(type(model).forward).parameters.values())[1:]
    if any(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return ()
    clear_caches(model)
    with torch.no_grad():
        outputs = model.forward()
    clear_caches(model)
    return outputs if isinstance(outputs, tuple) else (outputs,)


class _FreeRows:
    """``forward`` of a graph model whose users' propagated rows are parameters of their own.

    Nothing else is trained, so the propagation is done once.
    """

    def __init__(self, model: nn.Module, rows: Tensor, count: int) -> None:
        self.outputs = _propagated(model)
        self.rows = rows
        self.vectors = {
            i: nn.Parameter(t[1:][rows.to(t.device)].clone())
            for i, t in enumerate(self.outputs)
            if _is_user_table(t, count)
        }

    def __call__(self, *args: Any) -> Any:
        outputs = list(self.outputs)
        for i, vectors in self.vectors.items():
            outputs[i] = outputs[i].index_copy(0, self.rows.to(vectors.device) + 1, vectors)
        return tuple(outputs) if len(outputs) > 1 else outputs[0]


def _is_user_table(value: Any, count: int) -> bool:
    return isinstance(value, Tensor) and value.dim() == 2 and len(value) == count + 1


def plan_hints(model: nn.Module, lookups: list[LookUp], batch: Batch) -> PlanHints:
    """Fields, row ranges, padding and names of every table that was read."""
    fields, rows, padding, called = {}, {}, {COMPUTED: 0}, {}
    modules = dict(model.named_modules())
    ids = [v for k, v in batch.columns.items() if not v.is_floating_point() and k != "item_length"]
    for look in lookups:
        path = (look.table or "").removesuffix(".weight")
        module = modules.get(path)
        if not isinstance(module, nn.Embedding):
            continue
        names = _field_names(modules, path)
        if names is not None:
            ends = np.cumsum([0, *names[1]])
            fields[path] = tuple(names[0])
            rows[path] = tuple((int(a) + 1, int(b)) for a, b in pairwise(ends))
        elif module.padding_idx is not None:
            padding[path] = int(module.padding_idx)
        elif "token_seq_embedding_table" in path or any(
            v.shape == look.ids.shape and torch.equal(v, look.ids) for v in ids
        ):
            padding[path] = 0
        if (name := _called(modules, path)) is not None:
            called[path] = name
    entities = _entity_tables(model) - rows.keys() - padding.keys()
    padding |= dict.fromkeys(entities, 0)
    pairs = tuple(n for n, m in modules.items() if type(m).__name__ == "BaseFactorizationMachine")
    return PlanHints(fields, rows, padding, called, _stacked(model), pairs)


def _entity_tables(model: Any) -> set[str]:
    """Tables and biases with a row for every user or item, row 0 for none, however they are read."""
    sizes = {getattr(model, kind, None) for kind in ("n_users", "n_items")}
    paths = {name.removesuffix(".weight") for name, p in model.named_parameters() if sizes & {*p.shape[:1]}}
    return {path for path in paths if "position" not in path}


def _called(modules: dict[str, Any], path: str) -> str | None:
    """Name of a table of features: its field; ``linear`` before it for first-order weights."""
    table = re.fullmatch(
        r"(.*?)(token_embedding_table|token_seq_embedding_table)(?:\.(user|item))?\.(\w+)", path
    )
    if table is None:
        return None
    holder, kind, side, last = table.groups()
    owner = modules[holder.removesuffix(".")]
    first = "linear" if "first_order" in holder else ""
    if kind == "token_embedding_table":
        return ".".join(p for p in (first, f"{side}.fields" if side else "" if first else "fields") if p)
    names = owner.token_seq_field_names
    return ".".join(p for p in (first, (names[side] if side else names)[int(last)]) if p)


def _stacked(model: Any) -> tuple[str, ...]:
    """Fields in the order in which RecBole's context-aware models stack their vectors: FFM in its own."""
    kinds = ("token_seq", "token", "float_seq", "float")
    if type(model).__name__ == "FFM":
        kinds = ("token", "float", "token_seq", "float_seq")
    lists = [getattr(model, f"{kind}_field_names", ()) for kind in kinds]
    return tuple(n for names in lists if isinstance(names, list) for n in names)


def _field_names(modules: dict[str, Any], path: str) -> tuple[list[str], list[int]] | None:
    """Token fields of RecBole's FMEmbedding and FFM's tables: their owner keeps names and sizes."""
    holder = path.rpartition(".")[0]
    owner: Any = modules.get(path.partition(".token_embeddings.")[0])
    if type(owner).__name__ == "FieldAwareFactorizationMachine":
        return list(owner.token_feature_names), [int(s) for s in owner.token_feature_dims]
    if type(modules.get(holder)).__name__ != "FMEmbedding":
        return None
    owner = modules[holder.rpartition(".")[0]]
    names, sizes = getattr(owner, "token_field_names", None), getattr(owner, "token_field_dims", None)
    if isinstance(owner, nn.ModuleDict):
        side, parent = holder.rpartition(".")[2], modules[holder.rpartition(".")[0].rpartition(".")[0]]
        names, sizes = parent.token_field_names[side], parent.token_field_dims[side]
    return (list(names), [int(s) for s in sizes]) if names and sizes else None
