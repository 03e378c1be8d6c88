"""Edge scores against exact ablation: pieces of the path, coarse edges, and the raw score as metric.

One JSON line per model, grouping, metric and score.
"""

import argparse
import copy
import json
from dataclasses import asdict

import torch

from recunlearn.circuits.rankings import gradient_scores, window
from recunlearn.circuits.tracing import tracer
from recunlearn.evaluation.faithfulness import agreement, areas, circuit_sizes, faithfulness, top_edges
from recunlearn.foundation.settings import CircuitSettings, ScoreSettings
from recunlearn.studies.circuit_check import sampled
from recunlearn.studies.circuit_measures import Runs
from recunlearn.studies.keys import keys_for
from recunlearn.studies.score_stages import trained
from recunlearn.studies.scoring import Listener

STARTS = (0.0, 0.25, 0.5, 0.75, 0.9)
STEPS = 16


def with_raw_score(subject):
    """The subject with the score before log sigma or log softmax as metric."""

    def raw(model, batch):
        scores = subject.class_scores(model, batch)
        if subject.family != "softmax":
            return scores[:, 1] - scores[:, 0]
        return scores.gather(1, batch.columns["item_id"][:, None]).squeeze(1)

    twin = copy.copy(subject)
    twin.log_likelihood = raw
    return twin


def rated(runs, exact, scores):
    found = asdict(agreement(exact, scores, resamples=0))
    f = faithfulness(runs.kept(top_edges(scores, circuit_sizes(exact.shape[1]))), runs.full, runs.empty)
    cpr = None if isinstance(f, str) else round(areas(circuit_sizes(exact.shape[1]), f)[0], 3)
    names = ("spearman", "per_sample", "pearson", "sign")
    return {**{k: round(found[k], 3) for k in names}, "cpr": cpr}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["NeuMF", "DeepFM", "BPR", "LightGCN", "SASRec"])
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1, help="of the drawn users")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for model in options.models:
        subject = trained(keys_for(ScoreSettings(model=model)), Listener())
        for metric, groups in (("log-likelihood", None), ("log-likelihood", 1), ("raw score", None)):
            chosen = with_raw_score(subject) if metric == "raw score" else subject
            run = tracer(chosen, CircuitSettings(groups=groups), 0)
            runs = Runs.of(run, sampled(chosen, options.samples, options.seed))
            exact = runs.joined(lambda p: p.single())
            points = {f"[{s:g}, 1]": window(s, STEPS) for s in STARTS} | {"eap": [(1.0, 1.0)]}
            scores = {k: runs.joined(lambda p, at=at: gradient_scores(p, at)) for k, at in points.items()}
            for name, values in {**scores, "exact": exact}.items():
                line = {"model": model, "metric": metric, "groups": groups, "edges": exact.shape[1]}
                print(json.dumps({**line, "score": name, **rated(runs, exact, values)}), flush=True)


if __name__ == "__main__":
    main()
