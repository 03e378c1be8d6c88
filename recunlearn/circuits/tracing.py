"""Circuits of entities: the signed mean over their samples' edges, streamed."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np
import torch

from recunlearn.circuits.attribution import EdgeAttribution, EdgeAttributions
from recunlearn.circuits.discovery import SAMPLES, discover
from recunlearn.circuits.plan import ComponentPlan
from recunlearn.circuits.trust import check_trust
from recunlearn.foundation.errors import TraceError
from recunlearn.foundation.records import Circuits
from recunlearn.foundation.settings import CircuitSettings
from recunlearn.subjects.contract import Batch, IntArray, Subject

TILE_BYTES = 48 * 2**20
"""Memory of one tile's components: about what fits a core's share of the last-level cache."""
GPU_SHARE = 40
"""A tile's components get this part of a GPU's free memory: ten times as much is kept beside them."""
Advance = Callable[[int], None]


@dataclass(frozen=True)
class Tracer:
    """A subject's plan and engine, ready to attribute batches."""

    subject: Subject
    settings: CircuitSettings
    engine: EdgeAttribution
    chunk: int
    workers: int = 1
    """Batches attributed side by side, each by one thread and with its own copy of the model."""

    @property
    def plan(self) -> ComponentPlan:
        """Components and edges."""
        return self.engine.plan

    def attribute(self, batch: Batch) -> EdgeAttributions:
        """Edges of every sample of a batch, chunked."""
        return self.explain(self.engine, batch)

    def explain(self, engine: EdgeAttribution, batch: Batch) -> EdgeAttributions:
        """The same with a copy of the engine."""
        options = self.settings
        return engine.explain(
            batch, n_steps=options.steps, method=options.score, internal_batch_size=self.chunk
        )


def tracer(subject: Subject, settings: CircuitSettings, seed: int = 0) -> Tracer:
    """Discover the plan of a subject's model and choose chunk and engine.

    Raises:
        TraceError: the model cannot be attributed.
    """
    first = next(subject.batches(batch_size=SAMPLES, per_entity=1, seed=seed), None)
    if first is None:
        raise TraceError("There are no training interactions to trace. Check the data set and its split.")
    if len(first) == 1:
        first = first.tile(2)
    plan = discover(
        subject, first, groups=settings.groups, granularity=settings.granularity, sinks=settings.sinks
    )
    on_cpu = all(p.device.type == "cpu" for p in subject.model.parameters())
    room = {} if on_cpu else {"tile": max(TILE_BYTES, torch.cuda.mem_get_info()[0] // GPU_SHARE)}
    chunk, large = chunk_size(plan, settings.steps, **room), tile_bytes(plan, settings.steps) > TILE_BYTES
    tried = EdgeAttribution(subject, plan, baseline=settings.baseline, seed=seed)
    check_trust(tried, first, settings.steps, large=large)
    engine = _engine_class(settings.path)(subject, plan, baseline=settings.baseline, seed=seed)
    workers = (os.cpu_count() or 1) if on_cpu else 1
    return Tracer(subject, settings, engine, settings.internal_batch or chunk, workers)


def _engine_class(path: str) -> type[EdgeAttribution]:
    if path == "chunked":
        return EdgeAttribution
    from recunlearn.circuits.captum_path import CaptumEdgeAttribution  # captum takes seconds to import

    return CaptumEdgeAttribution


def chunk_size(plan: ComponentPlan, steps: int, tile: int = TILE_BYTES) -> int:
    """Samples whose whole path fits ``tile`` bytes: 16 to 4,096, or what fits where one alone is large."""
    each = tile_bytes(plan, steps)
    return max(1, tile // each) if each > TILE_BYTES else int(np.clip(tile // each, 16, 4096))


def tile_bytes(plan: ComponentPlan, steps: int) -> int:
    """Memory of one sample's components at all path points: value, gradient and one more."""
    floats = sum(int(np.prod(c.shape)) for c in plan.components)
    return 4 * 3 * max(floats, 1) * steps


def trace(
    run: Tracer, entities: IntArray | None = None, *, seed: int = 0, advance: Advance | None = None
) -> Circuits:
    """Trace every (or ``per_user``) training sample of ``entities`` and average per entity.

    Never holds the sample circuits of more than ``run.workers + 1`` batches.

    Args:
        entities: numbers of entities; None: all.
        advance: called with the number of samples done, for progress.

    Returns:
        circuits of ``entities``, in their order; entities without samples have NaN rows.
    """
    subject = run.subject
    rows = np.arange(len(subject.entities)) if entities is None else np.asarray(entities)
    place = torch.full((len(subject.entities),), -1, dtype=torch.int64)
    place[torch.from_numpy(rows)] = torch.arange(len(rows))
    sums = torch.zeros(len(rows), len(run.plan.edges), dtype=torch.float64)
    tallies = torch.zeros(3, len(rows), dtype=torch.float64)
    for batch, found in side_by_side(run, _batches(run, rows, seed)):
        at = place[batch.entity.cpu()]
        owners, own = torch.unique(at, return_inverse=True)
        part = torch.zeros(len(owners), sums.shape[1]).index_add_(0, own, found.edges.float().cpu())
        sums[owners] += part  # float32 within a batch, float64 over batches
        ones = torch.ones(len(batch), dtype=torch.float64)
        measures = (ones, found.delta.abs().double().cpu(), found.change.abs().double().cpu())
        for tally, measure in zip(tallies, measures, strict=True):
            tally.index_add_(0, at, measure)
        if advance is not None:
            advance(len(batch))
    count, gap, change = tallies.numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        values = (sums / tallies[0][:, None]).numpy().astype(np.float32)
        relative = np.where(count > 0, gap / np.maximum(change, 1e-12), np.nan)
    return Circuits(
        entities=np.asarray(subject.entities)[rows],
        edges=run.plan.edges,
        values=values,
        gap=relative.astype(np.float32),
        n_samples=count.astype(np.int64),
        settings={**run.settings.model_dump(), "seed": seed},
        graph=run.plan.graph,
    )


def side_by_side(run: Tracer, batches: Iterable[Batch]) -> Iterator[tuple[Batch, EdgeAttributions]]:
    """Attribute batches in order, ``run.workers`` at a time; at most one more is waiting.

    One thread a batch scales better than two threads inside every operation, and changes no figure.
    """
    if run.workers == 1:
        for batch in batches:
            yield batch, run.attribute(batch)
        return
    engines: SimpleQueue[EdgeAttribution] = SimpleQueue()
    for _ in range(run.workers):
        engines.put(run.engine.copy())

    def work(batch: Batch) -> EdgeAttributions:
        engine = engines.get()
        try:
            return run.explain(engine, batch)
        finally:
            engines.put(engine)

    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(run.workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            pending: deque[tuple[Batch, Future[EdgeAttributions]]] = deque()
            for batch in batches:
                pending.append((batch, pool.submit(work, batch)))
                if len(pending) > run.workers:
                    done, future = pending.popleft()
                    yield done, future.result()
            for done, future in pending:
                yield done, future.result()
    finally:
        torch.set_num_threads(threads)


def _batches(run: Tracer, rows: IntArray, seed: int) -> Iterator[Batch]:
    size = min(run.chunk * run.settings.steps, 65_536)
    return run.subject.batches(rows, batch_size=size, per_entity=run.settings.per_user, seed=seed)
