"""Cost of a language model's circuits against the same number of bare forward + backward passes.

    python benchmarks/tofu_circuits.py --model FOLDER_OR_GGUF --data FOLDER [--files forget10] [--rows 4]
        [--steps 5] [--repeats 3] [--chunks 1 2]

Prints one JSON line: medians of interleaved runs in seconds of CPU time (one thread, so that other work
on the machine counts little), each side at its own best chunk of rows. ``bare``: autograd from the answer's
mean log-likelihood to the embedded tokens, nothing intercepted. ``peak_mb``: resident set of the process
after that side's first runs.
"""

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from recunlearn.circuits.attribution import EdgeAttribution
from recunlearn.circuits.discovery import discover
from recunlearn.circuits.interception import frozen
from recunlearn.subjects.contract import Batch
from recunlearn.subjects.tofu.data import read_rows
from recunlearn.subjects.tofu.settings import LanguageSettings
from recunlearn.subjects.tofu.store import untrained_subject
from recunlearn.subjects.tofu.subject import LanguageSubject

Run = Callable[[int], None]


def bare(subject: LanguageSubject, batch: Batch, steps: int) -> Run:
    leaves: list[Tensor] = []

    def leaf(_m: nn.Module, _i: object, out: Tensor) -> Tensor:
        leaves.append(out.detach().requires_grad_())
        return leaves[-1]

    table = subject.model.get_input_embeddings()

    def run(chunk: int) -> None:
        handle = table.register_forward_hook(leaf)
        with frozen(subject.model):
            for at in range(0, len(batch), chunk):
                leaves.clear()
                value = subject.log_likelihood(subject.model, batch[at : at + chunk].tile(steps))
                torch.autograd.grad(value.sum(), leaves)
        handle.remove()

    return run


def cpu_seconds(run: Run, chunk: int) -> float:
    began = time.process_time()
    run(chunk)
    return time.process_time() - began


def peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--files", nargs="+", default=["forget10"])
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--chunks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--attention", choices=["whole", "apart"], default="whole")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    settings = LanguageSettings.model_validate(
        {"files": asked.files, "model": asked.model, "circuits": {"attention": asked.attention}}
    )
    subject = untrained_subject(read_rows(settings.files, asked.data), settings)
    batch = next(subject.batches(batch_size=asked.rows))
    began = time.process_time()
    plan = discover(subject, batch[:2], granularity="head")
    found = time.process_time() - began
    engine = EdgeAttribution(subject, plan, baseline=settings.circuits.baseline)
    sides: dict[str, Run] = {
        "bare": bare(subject, batch, asked.steps),
        "edges": lambda chunk: engine.attribute(batch, n_steps=asked.steps, internal_batch_size=chunk),
    }
    took: dict[tuple[str, int], list[float]] = {}
    peaks: dict[str, int] = {}
    for _ in range(asked.repeats):
        for name, run in sides.items():
            for chunk in asked.chunks:
                took.setdefault((name, chunk), []).append(cpu_seconds(run, chunk))
            peaks.setdefault(name, peak_mb())
    best = {name: min(statistics.median(took[name, chunk]) for chunk in asked.chunks) for name in sides}
    result = engine.explain(batch, n_steps=asked.steps, internal_batch_size=asked.chunks[0])
    print(
        json.dumps(
            {
                "model": type(subject.model).__name__,
                "parameters": sum(p.numel() for p in subject.model.parameters()),
                "edges": len(plan.edges),
                "rows": len(batch),
                "tokens": batch.columns["length"].tolist(),
                "steps": asked.steps,
                "ratio": round(best["edges"] / best["bare"], 3),
                "cpu_seconds_a_row": {name: round(s / len(batch), 2) for name, s in best.items()},
                "by_chunk": {f"{n} {c}": round(statistics.median(s), 2) for (n, c), s in took.items()},
                "peak_mb": peaks,
                "plan_seconds": round(found, 2),
                "gap": [round(float(d / c), 3) for d, c in zip(result.delta, result.change, strict=True)],
                "torch": torch.__version__,
            }
        )
    )


if __name__ == "__main__":
    main()
