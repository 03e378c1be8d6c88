"""``explain-user``: a stored run read back, or made, and one user's score taken apart."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from recunlearn.data.catalogue import list_data_sets, load_interactions
from recunlearn.difficulty.explanation import Explanation, explain, sentence
from recunlearn.foundation.errors import UsageError, near_miss
from recunlearn.foundation.records import CircuitGraph
from recunlearn.foundation.settings import ScoreSettings
from recunlearn.studies.columns import columns_in
from recunlearn.studies.keys import Keys
from recunlearn.studies.scoring import Listener, UserScores, is_stored
from recunlearn.studies.stored import ScoredRun, scored_run, stored_run

USERS = {"entity": "user", "entities": "users", "samples": "items"}
"""What is explained, where a summary does not say; ``samples`` are what becomes likelier."""


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
        words: what one of its kind, several of them and their samples are called.
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
    words: Mapping[str, str] = field(default_factory=lambda: USERS)


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
    table = run.scores.table
    if user not in set(table["user_id"][table["cud"].notna()]):
        raise UsageError(_without_score(user, table, settings.dataset))
    return _taken_apart(user, run)


def explained_row(row: str, keys: Keys, listener: Listener | None = None) -> ExplainedUser:
    """Explain the score of one row or author of a language model's data; see :func:`explained_user`.

    Raises:
        UsageError: the row is unknown, or has no score.
        RecunlearnError: in one sentence, what to do.
    """
    from recunlearn.studies.language_keys import entities_of

    what = keys.settings.entity
    known = entities_of(keys)
    if row not in set(known):
        raise UsageError(
            f"There is no {what} '{row}' among the {len(known):,} of {keys.settings.dataset}, such as "
            f"'{known[0]}'.{near_miss(row, known)}"
        )
    run = stored_run(keys, listener)
    table = columns_in(run.scores.table).plain(run.scores.table)
    if row not in set(table["user_id"][table["cud"].notna()]):
        raise UsageError(
            f"The {what} '{row}' has no score: it is the only anchor on its side, so there is nothing to "
            f"compare it with. Raise count of [anchors], or name another {what}."
        )
    return _taken_apart(row, run)


def _taken_apart(user: str, run: ScoredRun) -> ExplainedUser:
    """Explanation of somebody who has a score."""
    scores, circuits = run.scores, run.circuits
    words = scores.summary.get("words", USERS)
    table = columns_in(scores.table).plain(scores.table)
    scored = table[table["cud"].notna()].reset_index(drop=True)
    rank = int(scored.index[scored["user_id"] == user][0])
    row = {str(column): value for column, value in scored.iloc[rank].items()}
    told = explain(circuits, run.anchors, user, run.keys.settings.similarity)
    others = max(len(scored) - 1, 1)
    standing = {
        "band": row["band"],
        "below": float((scored["cud"] < row["cud"]).sum() / others),
        "above": float((scored["cud"] > row["cud"]).sum() / others),
    }
    name, called = words["entity"], (words["entity"], words["entities"])
    return ExplainedUser(
        row=row,
        rank=rank + 1,
        scored=len(scored),
        told=told,
        edges=circuits.edges,
        graph=run.graph,
        sentence=sentence(f"{name.capitalize()} {user}", told, run.graph, standing, called),
        sentence_without_id=sentence(f"This {name}", told, run.graph, standing, called),
        scores=scores,
        words=words,
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
