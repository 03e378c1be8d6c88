"""Which recommenders get circuits, how complete they are and what they cost.

    python benchmarks/coverage.py [--models LightGCN ...] [--out coverage.jsonl] [--keep FOLDER] [--limit 300]
    python benchmarks/coverage.py --table docs/results/coverage.md [--out coverage.jsonl]

Trains every model briefly on the first --rows interactions of ml-100k (the file is in random order), one
process and one thread each, and appends one JSON line a model; models that have a line are not run again.
``--keep`` holds trained models. ``--table`` writes the lines as a page instead.

Gap: sum over 64 samples of |edges that leave the sources - change of the score| / sum of |change|, at 16
steps, and where that is 1 % or more at 64, 256 and 1,024. Ratio: edge attribution against the same number
of bare forward + backward passes to the sources, each at its own best chunk. ``bare`` is plain autograd with
embedding outputs as leaves, through RecBole's model as it is; for sources that are no embedding (graph
models, input rows) it is the uncut pass with the sources given, which spares it the propagation too.
"""

import argparse
import json
import os
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from circuits import seconds
from torch import Tensor, nn

from recunlearn.circuits.interception import frozen
from recunlearn.circuits.path import Path as StepPath
from recunlearn.circuits.tracing import Tracer, tracer
from recunlearn.data.catalogue import load_interactions
from recunlearn.data.interactions import Interactions
from recunlearn.data.splits import take_rows
from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.settings import CircuitSettings, ScoreSettings, TrainingSettings
from recunlearn.subjects.contract import Batch
from recunlearn.subjects.recbole.bundle import make_bundle
from recunlearn.subjects.recbole.names import list_models, untrainable_models
from recunlearn.subjects.recbole.store import load_subject, save_subject
from recunlearn.subjects.recbole.subject import RecBoleSubject
from recunlearn.subjects.recbole.training import fit

STEPS = (16, 64, 256, 1024)
SAMPLES, TARGET = 64, 0.01
REPEATS = 5
MOST_SAMPLES = 4096
MORE_EPOCHS = {"GRU4RecCPR": 12, "SASRecCPR": 12, "STAMP": 12}
"""Models whose scores hardly differ after two epochs: their gap would be that of float32."""


def trained(model: str, data: Interactions, keep: Path) -> RecBoleSubject:
    """The briefly trained model, from ``keep`` if it is there."""
    folder = keep / model
    if (folder / "manifest.json").is_file():
        return load_subject(folder, data)
    epochs = MORE_EPOCHS.get(model, 2)
    bundle = make_bundle(data, ScoreSettings(model=model, training=TrainingSettings(epochs=epochs)))
    fitted = fit(bundle, epochs=epochs, patience=None)
    subject = RecBoleSubject(
        bundle, fitted.model, epochs=epochs, metrics={}, popularity_metrics={}, weights_hash=""
    )
    save_subject(subject, folder)
    return subject


def completeness(run: Tracer, batch: Batch) -> dict[str, object]:
    """Gap at the fewest steps of STEPS that reach the target, else at the most."""
    for steps in STEPS:
        chunk = max(run.chunk * 16 // steps, 1)
        found = run.engine.explain(batch, n_steps=steps, internal_batch_size=chunk)
        gap = float(found.delta.abs().sum() / found.change.abs().sum())
        if steps == STEPS[0]:
            first = gap
        if gap < TARGET:
            break
    return {"gap": gap, "steps": steps, "gap_16": first}


def bare(run: Tracer, batch: Batch) -> Callable[[int], None]:
    """Forward and backward to the sources for every path point of every sample."""
    engine, steps = run.engine, STEPS[0]
    tables = {id(m.weight) for m in engine.model.modules() if isinstance(m, nn.Embedding)}
    with frozen(engine.model), torch.no_grad():
        top = engine.replay(batch)
    plain = all(id(top.lookups[i].weight) in tables for i in engine.plan.sources)
    return _by_hooks(run, batch, steps) if plain else _uncut(run, batch, steps)


def _by_hooks(run: Tracer, batch: Batch, steps: int) -> Callable[[int], None]:
    leaves: list[Tensor] = []
    model, clones = run.engine.model, bool(run.plan.written)

    def leaf(_m: nn.Module, _i: object, out: Tensor) -> Tensor:
        leaves.append(out.detach().requires_grad_())
        return leaves[-1].clone() if clones else leaves[-1]

    def passes(chunk: int) -> None:
        handles = [m.register_forward_hook(leaf) for m in model.modules() if isinstance(m, nn.Embedding)]
        with frozen(model):
            for at in range(0, len(batch), chunk):
                leaves.clear()
                value = run.engine.metric(model, batch[at : at + chunk].tile(steps))
                torch.autograd.grad(value.sum(), leaves, allow_unused=True)
        for handle in handles:
            handle.remove()

    return passes


def _uncut(run: Tracer, batch: Batch, steps: int) -> Callable[[int], None]:
    engine = run.engine
    path = StepPath.of("eap-ig", steps, torch.float32, torch.device("cpu"))

    def passes(chunk: int) -> None:
        with frozen(engine.model):
            ends = engine.ends(batch)
            for at in range(0, len(batch), chunk):
                rows = slice(at, at + chunk)
                given = {
                    i: path.points(start[rows], start[rows] + ends.changes[i][rows]).requires_grad_()
                    for i, start in ends.starts.items()
                }
                value = engine.replay(batch[rows].tile(steps), given).value
                torch.autograd.grad(value.sum(), list(given.values()), allow_unused=True)

    return passes


def cost(run: Tracer, budget: float) -> dict[str, object]:
    """Seconds per 1,000 interactions and the ratio to bare passes, at the best chunk of each side."""
    first = next(run.subject.batches(batch_size=MOST_SAMPLES))
    run.engine.explain(first[: run.chunk], internal_batch_size=run.chunk)
    began = time.perf_counter()
    run.engine.explain(first[: run.chunk], internal_batch_size=run.chunk)
    taken = (time.perf_counter() - began) / min(run.chunk, len(first))
    batch = first[: int(np.clip(budget / taken, 32, MOST_SAMPLES))]
    sides = {
        "ours": lambda chunk: run.engine.explain(batch, n_steps=STEPS[0], internal_batch_size=chunk),
        "bare": bare(run, batch),
    }
    chunks = sorted({int(np.clip(run.chunk * f, 4, len(batch))) for f in (0.25, 0.5, 1, 2, 4)})
    best, best_times = {}, {}
    for name, side in sides.items():
        side(chunks[0])
        times = {c: min(seconds(side, c) for _ in range(2)) for c in chunks}
        best[name] = min(times, key=times.__getitem__)
        best_times[name] = []
    for _ in range(REPEATS):
        for name, side in sides.items():
            best_times[name].append(seconds(side, best[name]))
    pairs = zip(best_times["ours"], best_times["bare"], strict=True)
    return {
        "seconds_per_1000": statistics.median(best_times["ours"]) / len(batch) * 1000,
        "ratio": statistics.median(a / b for a, b in pairs),
        "samples": len(batch),
        "best_chunk": best,
    }


def measure(model: str, data: Interactions, keep: Path, budget: float) -> dict[str, object]:
    """One line of the table."""
    row: dict[str, object] = {"model": model, "family": list_models()[model]}
    try:
        subject = trained(model, data, keep)
        run = tracer(subject, CircuitSettings())
        row |= {"components": len(run.plan.components), "edges": len(run.plan.edges)}
        row |= completeness(run, next(subject.batches(batch_size=SAMPLES, per_entity=1)))
        return {**row, **cost(run, budget), "threads": torch.get_num_threads(), "torch": torch.__version__}
    except RecunlearnError as error:
        return {**row, "reason": str(error)}


def in_a_process(model: str, limit: int, write: Callable[[dict[str, object]], None], work: object) -> None:
    """Run ``work()`` in a child that is stopped after ``limit`` seconds."""
    child = os.fork()
    if child == 0:
        signal.alarm(limit)
        write(work())
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        family = list_models()[model]
        write(
            {"model": model, "family": family, "reason": f"stopped after {limit} s of training and tracing"}
        )


def table(rows: list[dict[str, object]]) -> str:
    """The page of docs/results."""
    good = [r for r in rows if r.get("gap", 1) < TARGET]
    large = [r for r in rows if r.get("components", 0) >= 10 and "ratio" in r]
    dear = [r for r in large if r["ratio"] > 1.5]
    at_16 = sum(r["gap_16"] < TARGET for r in good)
    lines = [
        "# Circuits of every recommender",
        "",
        f"{len(good)} of {len(rows)} models trained here have circuits with a completeness gap under 1 % "
        f"({at_16} of them at the default 16 steps). Of {len(large)} models with at least 10 components, "
        f"{len(large) - len(dear)} cost at most 1.5 times the bare passes.",
        "",
        "Made by `benchmarks/coverage.py` (its first lines say what is measured): two epochs on 20,000 rows "
        "of ml-100k, default settings, one thread. The bare passes run RecBole's model as it is: some ratios "
        "are below 1, because tracing leaves out positions that no score reads ([methods/circuits.md]"
        "(../methods/circuits.md)) and integrates affine layers in closed form.",
        "",
        "| model | family | components | edges | gap (16) | gap (steps) | s per 1,000 | ratio to bare |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in sorted(rows, key=lambda r: (r["family"], r["model"])):
        if "gap" not in r:
            lines.append(f"| {r['model']} | {r['family']} | {r['reason']} | | | | | |")
            continue
        lines.append(
            f"| {r['model']} | {r['family']} | {r['components']} | {r['edges']} | {r['gap_16']:.2%} | "
            f"{r['gap']:.2%} ({r['steps']}) | {r['seconds_per_1000']:.2f} | {r['ratio']:.2f} |"
        )
    lines += ["", "Not trained here, so without circuits:", "", "| model | why |", "| --- | --- |"]
    lines += [f"| {name} | {why} |" for name, why in sorted(untrainable_models().items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--models", nargs="+", default=list(list_models()))
    options.add_argument("--out", type=Path, default=Path("coverage.jsonl"))
    options.add_argument("--keep", type=Path, default=Path("coverage-models"))
    options.add_argument("--rows", type=int, default=20_000)
    options.add_argument("--limit", type=int, default=600, help="seconds a model")
    options.add_argument("--budget", type=float, default=1.0, help="seconds of one timed run")
    options.add_argument("--table", type=Path)
    given = options.parse_args()
    lines = given.out.read_text().splitlines() if given.out.is_file() else []
    rows = [json.loads(line) for line in lines]
    if given.table:
        given.table.write_text(table(rows))
        return
    torch.set_num_threads(1)
    data = take_rows(load_interactions("ml-100k"), np.arange(given.rows))

    def write(row: dict[str, object]) -> None:
        with given.out.open("a") as out:
            out.write(json.dumps(row) + "\n")

    for model in [m for m in given.models if m not in {r["model"] for r in rows}]:
        in_a_process(model, given.limit, write, lambda m=model: measure(m, data, given.keep, given.budget))


if __name__ == "__main__":
    main()
