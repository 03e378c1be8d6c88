"""``explain-user``: a stored run read back, or made, and one user's score taken apart."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from recunlearn.data.catalogue import list_data_sets, load_interactions
from recunlearn.difficulty.explanation import Explanation, explain, sentence
from recunlearn.foundation.errors import UsageError, near_miss
from recunlearn.foundation.records import CircuitGraph
from recunlearn.foundation.settings import ScoreSettings
from recunlearn.studies.scoring import Listener, UserScores, is_stored
from recunlearn.studies.stored import scored_run


@dataclass(frozen=True)
class ExplainedUser:
    """One user's score taken apart.

    Args:
        row: the user's row of the score table.
        rank, scored: place in the table (1 = hardest) and number of scored users.
        told: what every edge adds.
        edges, graph: names of the edges, and what they join.
        sentence, sentence_without_id: the reason in plain words.
        scores: the run that the user belongs to.
    """

    row: Mapping[str, Any]
    rank: int
    scored: int
    told: Explanation
    edges: tuple[str, ...]
    graph: CircuitGraph
    sentence: str
    sentence_without_id: str
    scores: UserScores


def explained_user(
    user: str, settings: ScoreSettings, *, checkpoint: Path | None = None, listener: Listener | None = None
) -> ExplainedUser:
    """Explain the score of ``user``; the run is read from the store (without torch), or made first.

    Raises:
        UsageError: the user is unknown, filtered out, or has no score.
        RecunlearnError: in one sentence, what to do.
    """
    if not is_stored(settings, checkpoint):
        _check_known(user, settings.dataset)  # before anything is trained
    run = scored_run(settings, checkpoint=checkpoint, listener=listener)
    scores, circuits = run.scores, run.circuits
    scored = scores.table[scores.table["cud"].notna()].reset_index(drop=True)
    place = scored.index[scored["user_id"] == user]
    if not len(place):
        raise UsageError(_without_score(user, scores.table, settings.dataset))
    rank = int(place[0])
    row = {str(column): value for column, value in scored.iloc[rank].items()}
    told = explain(circuits, run.anchors, user, settings.similarity)
    others = max(len(scored) - 1, 1)
    standing = {
        "band": row["band"],
        "below": float((scored["cud"] < row["cud"]).sum() / others),
        "above": float((scored["cud"] > row["cud"]).sum() / others),
    }
    return ExplainedUser(
        row=row,
        rank=rank + 1,
        scored=len(scored),
        told=told,
        edges=circuits.edges,
        graph=run.graph,
        sentence=sentence(f"User {user}", told, run.graph, standing),
        sentence_without_id=sentence("This user", told, run.graph, standing),
        scores=scores,
    )


def _check_known(user: str, dataset: str) -> None:
    known = load_interactions(dataset).users.tolist()
    if user not in set(known):
        raise UsageError(_unknown(user, known, dataset))


def _unknown(user: str, known: list[str], dataset: str) -> str:
    others = [d.name for d in list_data_sets() if d.name != dataset]
    elsewhere = f" Other data sets to name with --dataset: {', '.join(others)}." if others else ""
    plain = user.strip().lstrip("0")
    as_text = f" Ids are text: '{user}' and '{plain}' are two users." if plain in known else ""
    return (
        f"User '{user}' is not in the data set '{dataset}', which has {len(known):,} users."
        f"{near_miss(user, known)}{as_text}{elsewhere}"
    )


def _without_score(user: str, table: pd.DataFrame, dataset: str) -> str:
    """Say why a user is not among the scored ones."""
    rows = table[table["user_id"] == user]
    if not len(rows):
        known = load_interactions(dataset).users.tolist()
        if user not in set(known):
            return _unknown(user, known, dataset)
        return (
            f"User '{user}' of '{dataset}' has no score: the minimum rating leaves it without an "
            "interaction. Lower --min-rating, or name another user."
        )
    if rows["n_interactions"].iloc[0]:
        return (
            f"User '{user}' has no score: it is the only anchor on its side, so there is nothing to compare "
            "it with. Raise count of [anchors], or name another user."
        )
    return (
        f"User '{user}' of '{dataset}' has no score: none of its interactions is in the training part. Name "
        "another user."
    )
