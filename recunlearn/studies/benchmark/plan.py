"""Which cells a benchmark has, in which order, and under which names their results are stored."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recunlearn.data.catalogue import data_hash, load_interactions
from recunlearn.difficulty.forget_sets import check_strata
from recunlearn.foundation.errors import UsageError, near_miss
from recunlearn.foundation.settings import Settings, make_settings
from recunlearn.foundation.store import content_hash
from recunlearn.foundation.words import Words
from recunlearn.studies.benchmark.settings import BenchmarkSettings, Block
from recunlearn.studies.keys import Keys, keys_for
from recunlearn.unlearning.registry import find, known
from recunlearn.unlearning.stepwise import LoopSettings

if TYPE_CHECKING:
    from recunlearn.studies.benchmark.material import Material
    from recunlearn.studies.benchmark.rehearsal import Rehearsal

FORMAT = 2
"""Raised when the same settings would no longer make the same table."""
PACKAGES = ("recunlearn", "recbole", "torch", "numpy")
REFERENCE_SEEDS = 1000
"""Seeds of retrained references lie this far above those of the originals."""


@dataclass(frozen=True, order=True)
class Cell:
    """One method on one forget set of one trained model.

    Args:
        model, method: names.
        stratum, draw: of the forget set.
        seed: of the original's training and of the unlearning run.
    """

    model: str
    method: str
    stratum: str
    draw: int
    seed: int

    @property
    def set_name(self) -> str:
        """Such as ``hard-0``."""
        return f"{self.stratum}-{self.draw}"


@dataclass(frozen=True)
class Task:
    """What one process does at a time.

    Args:
        kind: "original", "membership", "reference", "own", "budget" or "cells".
        model: name.
        method: name, for "own" and "budget"; with a set, "reference" is of the method's own kind.
        set_name: forget set of a reference or of cells.
        seed: of an original or of cells; number of a reference.
        cells: methods on one set that share its measurements.
    """

    kind: str
    model: str
    method: str = ""
    set_name: str = ""
    seed: int = 0
    cells: tuple[Cell, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A benchmark and the folder of its results; this one is of recommenders.

    Args:
        settings: names in them are known.
        out: folder of the results.
    """

    settings: Any
    out: Path

    @cached_property
    def identity(self) -> str:
        """Hash of everything that the table depends on."""
        packages = {p: version(p) for p in self.packages}
        return content_hash(FORMAT, self.settings.model_dump(mode="json"), self.data_hash(), packages)

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages whose versions the table depends on."""
        return PACKAGES

    @property
    def words(self) -> Words:
        """What sentences call those who are forgotten."""
        return Words()

    def data_hash(self) -> str:
        """Content hash of the data."""
        return data_hash(self.settings.dataset)

    def material(self) -> "Material":
        """What its cells are made of."""
        from recunlearn.studies.benchmark.material import Material

        return Material(self)

    def rehearsal(self) -> "Rehearsal":
        """What a dry run times."""
        from recunlearn.studies.benchmark.rehearsal import Rehearsal

        return Rehearsal(self)

    def values(self, method: str) -> dict[str, Any]:
        """Settings of a method that differ from its defaults."""
        return dict(self.settings.methods.get(method, {}))

    def names(self, block: Any) -> tuple[str, ...]:
        """Models of a block of cells."""
        return tuple(block.models)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell once: a model after the other, and all methods of one set together."""
        found = {cell: None for grid in self.settings.grid for cell in self._cells(grid)}
        models = {model: place for place, model in enumerate(self.models)}
        strata = {stratum: place for place, stratum in enumerate(self.strata)}
        methods = {method: place for place, method in enumerate(self.methods)}
        order = lambda c: (models[c.model], c.draw, c.seed, strata[c.stratum], methods[c.method])  # noqa: E731
        return tuple(sorted(found, key=order))

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Models, as they are named first."""
        return tuple(dict.fromkeys(m for grid in self.settings.grid for m in self.names(grid)))

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """Methods, as they are named first."""
        return tuple(dict.fromkeys(m for grid in self.settings.grid for m in grid.methods or known()))

    @cached_property
    def strata(self) -> tuple[str, ...]:
        """Strata of forget sets, as they are named first."""
        return tuple(dict.fromkeys(s for grid in self.settings.grid for s in grid.sets))

    def of(self, model: str) -> list[Cell]:
        """Cells of one model."""
        return [cell for cell in self.cells if cell.model == model]

    def draws(self, model: str) -> int:
        """Most draws of a stratum."""
        return 1 + max(cell.draw for cell in self.of(model))

    def keys(self, model: str) -> Keys:
        """Stored stages of the model's first training and of its scores."""
        return keys_for(self.settings.scored(model))

    def path(self, cell: Cell) -> Path:
        """File of a cell's result, named by what makes it."""
        return self.out / "cells" / f"{content_hash(self.identity, vars(cell))}.json"

    def budget_path(self, model: str, method: str) -> Path:
        """File of a method's tuned budget on a model."""
        return self.out / "budgets" / f"{content_hash(self.identity, model, method)}.json"

    def tasks(self) -> list[Task]:
        """Everything there is to do, what others wait for first."""
        return [task for model in self.models for task in _tasks(self, model)]

    def _cells(self, block: Block) -> Iterator[Cell]:
        for model in self.names(block):
            for method in block.methods or known():
                for stratum in block.sets:
                    for draw in range(block.draws):
                        for number in range(block.seeds):
                            yield Cell(model, method, stratum, draw, self.settings.seed + number)


def check_names(settings: BenchmarkSettings, where: str) -> None:
    """Refuse unknown models, methods, settings of methods, and sets, before anything is trained.

    Raises:
        UsageError: one of them, with the near miss and the list.
    """
    for model in dict.fromkeys(m for grid in settings.grid for m in grid.models):
        keys_for(settings.scored(model))
    check_methods(settings.grid, settings.methods, where)
    named = {m for grid in settings.grid for m in grid.models}
    for model in settings.models:
        if model not in named:
            raise UsageError(
                f"[models.{model}] of {where} is of no model in a grid.{near_miss(model, named)} "
                f"There: {', '.join(sorted(named))}."
            )
    check_fraction(settings.fraction, len(load_interactions(settings.dataset).users), "users", where)


def check_methods(blocks: Sequence[Block], methods: Mapping[str, Mapping[str, Any]], where: str) -> None:
    """Refuse unknown sets, methods and settings of methods."""
    for block in blocks:
        check_strata(block.sets)
        for method in block.methods:
            find(method)
    for method, values in methods.items():
        kind = find(method).settings_type
        make_settings(kind, dict(values), f"[methods.{method}] of {where}")
        refuse_tuned(kind, values, f"[methods.{method}] of {where}")


def refuse_tuned(kind: type[Settings], values: Mapping[str, Any], where: str) -> None:
    """Refuse what a budget would lay its own values over."""
    found = [name for name in ("steps", "until", "target") if name in values]
    if found and issubclass(kind, LoopSettings):
        raise UsageError(
            f"{found[0]} in {where} is tuned by the benchmark and cannot be set. Leave it out; most_steps "
            "bounds the steps."
        )


def check_fraction(fraction: float, count: int, entities: str, where: str) -> None:
    """Refuse sets of nobody, or of so many of ``count`` that none fits, before anything is trained."""
    size = round(fraction * count)
    if not 1 <= size <= count // 2:
        raise UsageError(
            f"fraction = {fraction:g} in {where} means sets of {size} of {count} {entities}, but sets of "
            f"1 to {count // 2} can be drawn."
        )


def as_plain(cell: Cell) -> Mapping[str, Any]:
    """Columns of a cell, as the tidy table has them."""
    return {
        "model": cell.model,
        "method": cell.method,
        "set": cell.stratum,
        "draw": cell.draw,
        "seed": cell.seed,
    }


def _tasks(plan: Plan, model: str) -> list[Task]:
    cells, references = plan.of(model), plan.settings.references
    seeds = sorted({c.seed for c in cells})
    methods = list(dict.fromkeys(c.method for c in cells))
    sets = list(dict.fromkeys(c.set_name for c in cells))
    tasks = [Task("original", model, seed=s) for s in seeds if s != plan.settings.seed]
    tasks += [Task("membership", model)] if plan.settings.membership else []
    tasks += [
        Task("reference", model, set_name=s, seed=r) for s in ("tuning", *sets) for r in range(references)
    ]
    # Methods that take steps forget from the model itself.
    others = [c for c in cells if not issubclass(find(c.method).settings_type, LoopSettings)]
    pairs = list(dict.fromkeys((c.method, c.seed) for c in others))
    tasks += [Task("own", model, method, seed=seed) for method, seed in pairs]
    tasks += [Task("budget", model, method) for method in methods]
    owned = list(dict.fromkeys((c.method, c.set_name) for c in others))
    tasks += [Task("reference", model, m, s, r) for m, s in owned for r in range(references)]
    return tasks + [
        Task("cells", model, set_name=g[0].set_name, seed=g[0].seed, cells=g) for g in _groups(cells)
    ]


def _groups(cells: Sequence[Cell]) -> list[tuple[Cell, ...]]:
    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.set_name, cell.seed), []).append(cell)
    return [tuple(group) for group in groups.values()]
