"""CUD of probed rows that are held out one by one, against what unlearning did to them.

    python benchmarks/tofu_held_out.py --config configs/tofu-smollm2.toml --data FOLDER [--model FILE]
        [--count 10]

Reads what ``tofu score`` stored. Anchors are chosen among all other rows of the probe, ``--count`` a side, so
no row has a part in its own score. Prints one JSON line a similarity: Spearman of CUD with the mean rank over
methods of how little the loss rose, its p, the same with each method and with loss before; spread of CUD.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from scipy.stats import rankdata, spearmanr

from recunlearn.difficulty.anchors import choose_anchors
from recunlearn.difficulty.cud import score
from recunlearn.difficulty.outcomes import hardness, part
from recunlearn.foundation.records import Outcomes, load_record
from recunlearn.foundation.settings import SimilaritySettings, make_settings, read_toml
from recunlearn.studies.language_keys import language_keys
from recunlearn.studies.stored import stored_run
from recunlearn.subjects.tofu.settings import LanguageSettings

WAYS = {
    "whitened edges (default)": {},
    "standardised edges": {"edges": "standardised"},
    "raw edges": {"edges": "raw"},
    "as published": {"preset": "paper"},
    "Jaccard": {"measure": "jaccard"},
}


def held_out(circuits, outcomes, anchors, similarity):
    """CUD of every probed row, ``[n]``."""
    n = len(outcomes.entities)
    row = {entity: k for k, entity in enumerate(circuits.entities.tolist())}
    found = np.empty(n)
    for one in range(n):
        others = part(outcomes, rows=np.delete(np.arange(n), one))
        own = circuits.take(np.array([row[outcomes.entities[one]]]))
        chosen = choose_anchors(others, anchors)
        found[one] = score(own, chosen, similarity, reference=circuits, draws=0).cud[0]
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--model")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--count", type=int)
    asked = parser.parse_args()
    values = read_toml(asked.config) | ({} if asked.model is None else {"model": asked.model})
    run = stored_run(language_keys(make_settings(LanguageSettings, values, str(asked.config)), asked.data))
    outcomes, anchors = load_record(Outcomes, run.keys.probe), run.keys.settings.anchors
    anchors = anchors.model_copy(update={} if asked.count is None else {"count": asked.count})
    by_method = hardness(outcomes, anchors.outcome).mean(1)
    increase = rankdata(by_method, axis=1).mean(0)
    for name, way in WAYS.items():
        cud = held_out(run.circuits, outcomes, anchors, SimilaritySettings(**way))
        rho, p = spearmanr(cud, increase)
        line = {"similarity": name, "rows": len(cud), "rho": round(rho, 2), "p": round(p, 3)}
        each = zip(outcomes.methods, by_method, strict=True)
        line |= {method: round(spearmanr(cud, spared)[0], 2) for method, spared in each}
        line |= {"loss": round(spearmanr(cud, outcomes.loss_before)[0], 2), "spread": round(cud.std(), 4)}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
