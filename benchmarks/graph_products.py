"""Training steps of graph models with RecBole's sparse products, and with ours by rows.

    python benchmarks/graph_products.py [--models LightGCN NGCF] [--steps 15] [--repeats 5]

Prints one JSON line a model: milliseconds of processor time of a training step (loss and gradients, RecBole's
own batches of ml-100k) either way, medians of interleaved runs on one thread, their ratio, and whether all
losses and gradients were equal to the bit.
"""

import argparse
import json
import statistics
import time
from itertools import islice

import torch

from recunlearn.data.catalogue import load_interactions
from recunlearn.foundation.settings import ScoreSettings
from recunlearn.subjects.recbole.bundle import make_bundle
from recunlearn.subjects.recbole.graphs import Graph
from recunlearn.subjects.recbole.training import prepare


def as_recbole_has_them(model: torch.nn.Module) -> torch.nn.Module:
    """The same model with plain sparse matrices."""
    for name, value in vars(model).items():
        if isinstance(value, Graph):
            plain = torch.sparse_coo_tensor(
                value._indices(), value._values(), value.shape, check_invariants=True
            )
            setattr(model, name, plain)
    return model


def step(model: torch.nn.Module, batch, seed: int) -> tuple[float, list[torch.Tensor]]:
    """Seconds of one step, and its loss and gradients."""
    torch.manual_seed(seed)
    model.zero_grad()
    began = time.process_time()
    found = model.calculate_loss(batch)
    loss = sum(found) if isinstance(found, tuple) else found
    loss.backward()
    seconds = time.process_time() - began
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return seconds, [loss.detach(), *gradients]


def measure(name: str, steps: int, repeats: int) -> dict[str, object]:
    settings = ScoreSettings(model=name)
    bundle = make_bundle(load_interactions("ml-100k"), settings)
    ours, loader = prepare(bundle)
    theirs = as_recbole_has_them(prepare(bundle)[0])
    batches = list(islice(iter(loader), steps))
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    equal = True
    for repeat in range(repeats + 1):
        for number, batch in enumerate(batches):
            sides = {"ours": step(ours, batch, number), "theirs": step(theirs, batch, number)}
            equal &= all(torch.equal(a, b) for a, b in zip(sides["ours"][1], sides["theirs"][1], strict=True))
            if repeat:  # the first round warms up
                for side, (seconds, _) in sides.items():
                    times[side].append(1e3 * seconds)
    medians = {side: statistics.median(values) for side, values in times.items()}
    ratio = statistics.median(t / o for o, t in zip(times["ours"], times["theirs"], strict=True))
    return {
        "model": name,
        "ms_by_rows": round(medians["ours"], 1),
        "ms_recbole": round(medians["theirs"], 1),
        "ratio": round(ratio, 2),
        "equal": equal,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["LightGCN", "NGCF"])
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for model in asked.models:
        print(json.dumps(measure(model, asked.steps, asked.repeats)), flush=True)


if __name__ == "__main__":
    main()
