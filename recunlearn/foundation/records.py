"""Records between stages: frozen, checked, saved as safetensors or parquet with a JSON manifest."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.store import (
    atomic_folder,
    content_hash,
    read_json,
    seal_holds,
    write_json,
    write_seal,
)

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class CircuitGraph:
    """The graph whose edges are the columns of a circuit.

    Args:
        nodes: names of the components in order of execution, "output" last.
        kinds: "source" (look-up, input row), "module", "product" or "output" of each node.
        attention: whether a node belongs to an attention (queries, keys, values, their products).
        depths: longest path from a source, in edges; sources have 0.
        source, sink: nodes that each column joins, ``[E]``.
        source_group, sink_group: part of the source and of the sink, such as ``[3]``; "" where it is whole.
    """

    nodes: tuple[str, ...]
    kinds: tuple[str, ...]
    attention: tuple[bool, ...]
    depths: tuple[int, ...]
    source: tuple[int, ...]
    sink: tuple[int, ...]
    source_group: tuple[str, ...]
    sink_group: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check that there is one of everything for each node and each column."""
        nodes = {len(v) for v in (self.nodes, self.kinds, self.attention, self.depths)}
        columns = {len(v) for v in (self.source, self.sink, self.source_group, self.sink_group)}
        if len(nodes) > 1 or len(columns) > 1:
            raise ValueError("the parts of a circuit's graph have different lengths")

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> "CircuitGraph":
        """Read back what JSON made of ``vars(graph)``."""
        return CircuitGraph(**{k: tuple(v) for k, v in plain.items()})


@dataclass(frozen=True)
class Circuits:
    """Signed edge strengths of every entity: the mean over its samples' circuits.

    Args:
        entities: external ids, ``[n]``.
        edges: edge names such as ``"user.mf[3] -> gmf"``, ``[E]``.
        values: ``[n, E]`` float32; rows of untraced entities (no samples) are NaN.
        gap: ``[n]`` completeness gap: sum |gap of a sample| / sum |change of the metric|.
        n_samples: ``[n]`` traced samples.
        settings: everything that made the circuits.
        graph: what the edges join; None where nobody knows.
    """

    entities: NDArray[np.str_]
    edges: tuple[str, ...]
    values: Floats
    gap: Floats
    n_samples: Ints
    settings: Mapping[str, Any] = field(default_factory=dict)
    graph: CircuitGraph | None = None

    def __post_init__(self) -> None:
        """Check shapes."""
        n = len(self.entities)
        if (
            self.values.shape != (n, len(self.edges))
            or self.gap.shape != (n,)
            or self.n_samples.shape != (n,)
        ):
            raise ValueError(
                f"Circuits of {n} entities and {len(self.edges)} edges need values [{n}, {len(self.edges)}], "
                f"gap [{n}] and n_samples [{n}], but got {self.values.shape}, {self.gap.shape} and "
                f"{self.n_samples.shape}."
            )

    def take(self, rows: Ints) -> "Circuits":
        """Circuits of some entities."""
        return Circuits(
            self.entities[rows],
            self.edges,
            self.values[rows],
            self.gap[rows],
            self.n_samples[rows],
            self.settings,
            self.graph,
        )


@dataclass(frozen=True)
class Outcomes:
    """What unlearning did to probed entities; every loss is the mean over the entity's deleted samples.

    Args:
        entities: external ids of the probe pool, ``[n]``.
        methods: names of the unlearning methods, ``[M]``.
        seeds: seeds of the unlearning runs, ``[S]``.
        loss_before: ``[n]`` under the original model.
        loss_after: ``[M, S, n]`` after unlearning.
        loss_retrained: ``[R, n]`` under models retrained without the pool, R seeds.
        loss_population: ``[n]`` under the original model with population-mean vectors.
        budgets: steps of each method's first run.
        noise: standard deviation of ``loss_retrained`` over seeds, pooled over entities.
        settings: everything that made the outcomes.
    """

    entities: NDArray[np.str_]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    loss_before: Floats
    loss_after: Floats
    loss_retrained: Floats
    loss_population: Floats
    budgets: Mapping[str, int] = field(default_factory=dict)
    noise: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check shapes."""
        n, m, s = len(self.entities), len(self.methods), len(self.seeds)
        if self.loss_after.shape != (m, s, n) or self.loss_before.shape != (n,):
            raise ValueError(
                f"Outcomes of {m} methods, {s} seeds and {n} entities need loss_after [{m}, {s}, {n}] and "
                f"loss_before [{n}], but got {self.loss_after.shape} and {self.loss_before.shape}."
            )


@dataclass(frozen=True)
class Anchors:
    """Entities known to be easy or hard to unlearn.

    Args:
        entities: external ids of the pool that the anchors were chosen from, ``[n]``.
        hardness: ``[n]`` mean rank in [0, 1], 1 = hardest; NaN where not measurable.
        easy, hard: rows of the pool, ``[k]`` each.
        measurable: ``[n]`` bool.
        agreement: figures about methods and seeds, such as ``kendall_w_methods``.
        settings: everything that made the choice.
    """

    entities: NDArray[np.str_]
    hardness: Floats
    easy: Ints
    hard: Ints
    measurable: NDArray[np.bool_]
    agreement: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ForgetSet:
    """Entities to unlearn together.

    Args:
        entities: external ids, ``[n]``.
        n_interactions: ``[n]`` training interactions of each.
        stratum: "easy", "hard", "random", "core", "edge", or "own" for a list that somebody brought.
        draw: number of the draw, from 0.
        seed: of the draws.
        settings: facts such as ``matched``, ``mean_cud``, ``anchors`` and ``probed`` (users that are).
    """

    entities: NDArray[np.str_]
    n_interactions: Ints
    stratum: str
    draw: int = 0
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Stratum and draw, such as ``easy-0``."""
        return f"{self.stratum}-{self.draw}"

    @property
    def hash(self) -> str:
        """Content hash of the ids, whatever their order."""
        return content_hash(sorted(self.entities.tolist()))


@dataclass(frozen=True)
class Evaluation:
    """How far a model has forgotten a set, measured against models retrained without it.

    Args:
        entities: external ids of the forget set, ``[n]``.
        loss_original, loss_unlearned: ``[n]`` mean loss of each entity's deleted samples.
        loss_retrained: ``[R, n]`` under the retrained models; their rows of the set are the population mean.
        share_left: ``[n]`` of the rows as they are; NaN where not measurable.
        share_left_reset, share_left_fold_in: ``[n]`` with the population's and with fitted rows; all NaN
            where the model has none.
        figures: name -> value, such as ``ue``, ``ndcg@10/retain/unlearned``: docs/metrics/forgetting.md.
        reasons: figures that are absent -> why.
        flags: what is wrong, such as ``over-forgetting (loss)``.
        settings: everything that made the evaluation.
    """

    entities: NDArray[np.str_]
    loss_original: Floats
    loss_unlearned: Floats
    loss_retrained: Floats
    share_left: Floats
    share_left_reset: Floats
    share_left_fold_in: Floats
    figures: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


RECORDS: dict[str, type[Any]] = {c.__name__: c for c in (Circuits, Outcomes, Anchors, ForgetSet, Evaluation)}


def save_record(record: Any, folder: Path) -> None:
    """Write a record into ``folder``: arrays as safetensors, the rest as JSON; whole or not at all."""
    arrays, plain = {}, {}
    for name, value in vars(record).items():
        if isinstance(value, np.ndarray) and value.dtype.kind not in "OUS":
            arrays[name] = np.ascontiguousarray(value)
        else:
            plain[name] = value.tolist() if isinstance(value, np.ndarray) else _plain(value)
    with atomic_folder(folder) as temporary:
        save_file(arrays, temporary / "arrays.safetensors")
        write_json(temporary / "manifest.json", {"record": type(record).__name__, **plain})
        write_seal(temporary)


def _plain(value: Any) -> Any:
    return vars(value) if isinstance(value, CircuitGraph) else value


def load_record(kind: type[Any], folder: Path) -> Any:
    """Read back what :func:`save_record` wrote; a damaged folder is named in the error."""
    if not seal_holds(folder):
        raise _damaged(folder, "its files are not as they were written")
    manifest = read_json(folder / "manifest.json")
    if not isinstance(manifest, dict) or manifest.pop("record", None) != kind.__name__:
        raise RecunlearnError(f"{folder} does not hold {kind.__name__}. Delete it and run the command again.")
    try:
        arrays = load_file(folder / "arrays.safetensors")
    except Exception as error:
        raise _damaged(folder, f"arrays.safetensors: {error}") from None
    try:
        if "entities" in manifest:
            manifest["entities"] = np.array(manifest["entities"], dtype=str)
        if manifest.get("graph") is not None:
            manifest["graph"] = CircuitGraph.from_plain(manifest["graph"])
        for name in ("edges", "methods", "seeds", "flags"):
            if name in manifest:
                manifest[name] = tuple(manifest[name])
        return kind(**manifest, **arrays)
    except (TypeError, ValueError, AttributeError) as error:
        raise _damaged(folder, str(error)) from None


def _damaged(folder: Path, why: str) -> RecunlearnError:
    return RecunlearnError(
        f"The stored result {folder} is damaged ({why}). Delete it and run the command again."
    )
