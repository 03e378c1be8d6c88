"""One HTML file that a team can forward: tables and figures, nothing loaded from elsewhere."""

import base64
from collections.abc import Mapping

import jinja2

from recunlearn import __version__
from recunlearn.report.benchmark_table import MEANINGS, Told, grids, notes, signed
from recunlearn.studies.benchmark.table import MAIN, PAPER

CAPTIONS = {
    "trade-off": "Forgetting against the quality that is left, each point a mean over all sets, bars one "
    "standard deviation. Right and high is good; the star is what retraining itself reaches.",
    "by-set": "UE on easy, random and hard sets, bars one standard deviation over draws and seeds: 100 is as "
    "forgotten as by retraining, too much lowers it like too little.",
    "cost": "What unlearning costs beside retraining.",
}


def html(told: Told, images: Mapping[str, bytes]) -> str:
    """Whole page; images are inlined."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("recunlearn.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    shown = [c for c in MAIN if c in set(told.summary["column"])]
    return environment.get_template("benchmark.html").render(
        facts=told.facts,
        headlines=headlines(told),
        grids=grids(told),
        figures=[(name, CAPTIONS[name], base64.b64encode(png).decode()) for name, png in images.items()],
        meanings={name: MEANINGS[name] for name in shown},
        notes=[line.removeprefix("- ").replace("**", "") for line in notes().splitlines()],
        version=__version__,
    )


def headlines(told: Told) -> list[str]:
    """What a reader should know first, a sentence a model and stratum."""
    found = []
    for model in dict.fromkeys(c.model for c in told.contrasts):
        for stratum, paper in PAPER.items():
            here = [c for c in told.contrasts if c.model == model and c.stratum == stratum]
            if not here:
                continue
            lowest, highest = (pick(here, key=lambda c: c.difference) for pick in (min, max))
            sure, clipped = sum(c.p_holm < 0.05 for c in here), [c.clipped for c in here]
            found.append(
                f"{model}: UE on {stratum} sets minus random sets is {signed(lowest.difference)} "
                f"({lowest.method}) to {signed(highest.difference)} ({highest.method}); {sure} of "
                f"{len(here)} methods differ at 5\N{NO-BREAK SPACE}% after Holm. Without counting "
                f"over-forgetting, as in the paper, it is {signed(min(clipped))} to {signed(max(clipped))}; "
                f"there {signed(paper)}."
            )
    return found
