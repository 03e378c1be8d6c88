"""Records of a scored run: read back without torch, or made first."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recunlearn.data.tombstones import is_tombstone
from recunlearn.difficulty.anchors import choose_anchors
from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.records import Anchors, CircuitGraph, Circuits, Outcomes, load_record
from recunlearn.foundation.settings import ScoreSettings
from recunlearn.studies.keys import Keys, keys_for
from recunlearn.studies.scoring import Listener, UserScores, scored


@dataclass(frozen=True)
class ScoredRun:
    """What ``score-users`` stored.

    Args:
        keys: settings and folders of the run.
        scores: the score table.
        circuits, anchors: what the scores were made from; circuits have a row for each user of the table.
        graph: what the circuits' columns join.
    """

    keys: Keys
    scores: UserScores
    circuits: Circuits
    anchors: Anchors
    graph: CircuitGraph


def scored_run(
    settings: ScoreSettings, *, checkpoint: Path | None = None, listener: Listener | None = None
) -> ScoredRun:
    """Read the run of these settings from the store; what is absent or damaged is made first.

    Raises:
        RecunlearnError: in one sentence, what to do; stored circuits that hold no graph are named.
    """
    return stored_run(keys_for(settings, checkpoint), listener)


def stored_run(keys: Keys, listener: Listener | None = None) -> ScoredRun:
    """Read a run from the store, whatever kind of model was scored: see :func:`scored_run`."""
    told = listener or Listener()
    scores = scored(keys, told)
    try:
        circuits, anchors = _read(keys)
    except RecunlearnError:
        from recunlearn.studies.score_stages import compute

        compute(keys, told)
        circuits, anchors = _read(keys)
    if circuits.graph is None:
        raise RecunlearnError(
            f"The circuits in {keys.circuits} were stored before circuits carried their graph. Delete that "
            "folder and run the command again."
        )
    return ScoredRun(keys, scores, circuits, anchors, circuits.graph)


def _read(keys: Keys) -> tuple[Circuits, Anchors]:
    stored = load_record(Circuits, keys.circuits)
    # Deleted users have a number in the model, and no row in the score table.
    circuits = stored.take(np.flatnonzero([not is_tombstone(user) for user in stored.entities.tolist()]))
    if keys.settings.anchors.source == "bilevel":
        return circuits, load_record(Anchors, keys.probe)
    return circuits, choose_anchors(load_record(Outcomes, keys.probe), keys.settings.anchors)
