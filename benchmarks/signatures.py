"""Signatures of several models side by side, as Markdown: verdicts first, then every table.

    python benchmarks/signatures.py [--dataset ml-100k] [--seed 0] [MODEL ...]

Prints what docs/results/signatures.md shows below its text. Runs that are not stored are scored first.
"""

import argparse

import numpy as np

from recunlearn.difficulty.signatures import SIGNATURES
from recunlearn.foundation.settings import ScoreSettings
from recunlearn.report.signature_table import markdown
from recunlearn.studies.circuit_signatures import SignatureReport, circuit_signatures
from recunlearn.studies.stored import scored_run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=["NeuMF", "DeepFM", "BPR", "SASRec"])
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    reports = {
        model: circuit_signatures(
            scored_run(ScoreSettings(dataset=asked.dataset, model=model, seed=asked.seed))
        )
        for model in asked.models
    }
    versions = next(iter(reports.values())).facts["versions"]
    print(f"Versions: {', '.join(f'{k} {v}' for k, v in versions.items())}.\n")
    for number, title in enumerate(("Anchors", "Fifths of CUD")):
        print(f"## {title}: verdict (Cliff's delta)\n")
        print(table(reports, lambda report, key, n=number: verdict(report, n, key)))
    for target in ("measured hardness", "CUD"):
        print(f"## Partial correlation with {target} (95 %)\n")
        print(table(reports, lambda report, key, t=target: partial(report, t, key)))
    for model, report in reports.items():
        print(f"## {model}\n\n{markdown(report)}\n")


def table(reports: dict[str, SignatureReport], cell) -> str:
    lines = [f"| | {' | '.join(reports)} |", "| --- " * (len(reports) + 1) + "|"]
    for signature in SIGNATURES:
        cells = [cell(report, signature.key) for report in reports.values()]
        if any(cells):
            lines.append(f"| {signature.title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def verdict(report: SignatureReport, comparison: int, key: str) -> str:
    found = [s for s in report.comparisons[comparison].signatures if s.key == key]
    if not found or np.isnan(found[0].p):
        return found[0].verdict if found else ""
    return f"{found[0].verdict} ({found[0].delta:+.2f})"


def partial(report: SignatureReport, target: str, key: str) -> str:
    found = [a for a in report.associations if (a.key, a.target) == (key, target)]
    if not found or np.isnan(found[0].partial):
        return ""
    return f"{found[0].partial:+.2f} ({found[0].low:+.2f} to {found[0].high:+.2f})"


if __name__ == "__main__":
    main()
