"""How completeness and edges of a language model's circuits depend on the number of path points.

    python benchmarks/tofu_steps.py --checkpoint FOLDER --data FOLDER [--rows 6] [--steps 5 16 48]
        [--baselines counterfactual mean]

``--checkpoint``: what ``tofu train`` or ``tofu score`` stored. Prints one JSON line a start of the path and
number of points: completeness gap (|sum of the edges that leave the embedding - change of the mean
log-likelihood| over |change|) of every row, and the median cosine of the rows' edges with those of the most
points.
"""

import argparse
import json
from pathlib import Path

import torch
from torch.nn.functional import cosine_similarity

from recunlearn.circuits.attribution import EdgeAttribution
from recunlearn.circuits.discovery import discover
from recunlearn.subjects.tofu.data import read_rows
from recunlearn.subjects.tofu.manifest import read_manifest
from recunlearn.subjects.tofu.settings import LanguageSettings
from recunlearn.subjects.tofu.store import load_subject


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=6)
    parser.add_argument("--steps", type=int, nargs="+", default=[5, 16, 48])
    parser.add_argument("--baselines", nargs="+", default=["counterfactual"])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    settings = LanguageSettings.model_validate(read_manifest(asked.checkpoint)["settings"])
    rows = read_rows(settings.files, asked.data, per_author=settings.rows_per_author)
    subject = load_subject(asked.checkpoint, rows, settings)
    chosen = subject.samples.rows(torch.linspace(0, len(rows) - 1, asked.rows).long().numpy())
    batch = subject.samples.batch(chosen)
    plan = discover(subject, batch, granularity=settings.circuits.granularity)
    for baseline in asked.baselines:
        engine = EdgeAttribution(subject, plan, baseline=baseline, seed=settings.seed)
        found = {
            steps: engine.explain(batch, n_steps=steps, internal_batch_size=1)
            for steps in sorted(asked.steps)
        }
        most = found[max(found)].edges
        for steps, told in found.items():
            gaps = (told.delta.abs() / told.change.abs()).tolist()
            line = {"baseline": baseline, "steps": steps, "gaps": [round(g, 3) for g in sorted(gaps)]}
            line["cosine"] = round(float(cosine_similarity(told.edges, most, dim=1).median()), 3)
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
