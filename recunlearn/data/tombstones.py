"""Deleting users and single interactions from a data set for good.

A data set keeps keyed hashes of deleted users, never their ids. A model's id map keeps a deleted user's
number as a *tombstone*, so that all others keep theirs and tables keep their size.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recunlearn.data import movielens
from recunlearn.data.catalogue import EMBEDDED, check_known, load_interactions
from recunlearn.data.interactions import Interactions
from recunlearn.data.left_out import keep_rows, read_left_out, write_left_out
from recunlearn.data.storage import read_manifest, write_data_set
from recunlearn.foundation import paths
from recunlearn.foundation.errors import DataError, UsageError

Key = Callable[[str], str]
"""Keyed hash of an external id."""
_MARK = "\tdeleted "
"""No id holds a tab: every reader of logs refuses it."""


def tombstone(number: int) -> str:
    """Stand-in for the id of a deleted user in an id map.

    >>> is_tombstone(tombstone(17)), is_tombstone("deleted 17")
    (True, False)
    """
    return f"{_MARK}{number}"


def is_tombstone(user: str) -> bool:
    """Tell whether an entry of an id map is that of a deleted user."""
    return user.startswith(_MARK)


@dataclass(frozen=True)
class Erasure:
    """Interactions to erase: those that every given part names.

    Args:
        user, item: external ids; None: any.
        start, end: first and last time (both included) in the unit of the data; None: open.
    """

    user: str | None = None
    item: str | None = None
    start: float | None = None
    end: float | None = None

    @property
    def whole_user(self) -> bool:
        """Tell whether everything of a user goes."""
        return self.user is not None and self.item is None and self.start is None and self.end is None

    def rows(self, interactions: Interactions) -> NDArray[np.bool_]:
        """Which interactions are meant: ``[n]``.

        Raises:
            UsageError: it names nothing, or a period of data without times.
        """
        if self == Erasure():
            raise UsageError("An erasure must name a user, an item or a period; all three are missing.")
        chosen = np.ones(len(interactions), dtype=bool)
        if self.user is not None:
            chosen &= (interactions.users == self.user)[interactions.user]
        if self.item is not None:
            chosen &= (interactions.items == self.item)[interactions.item]
        if self.start is None and self.end is None:
            return chosen
        if interactions.time is None:
            raise UsageError(
                f"A period cannot be erased from '{interactions.name}', which has no times. Erase whole "
                "users or items, or import the data again with --time-col."
            )
        low = -np.inf if self.start is None else self.start
        high = np.inf if self.end is None else self.end
        return chosen & (interactions.time >= low) & (interactions.time <= high)


def survivors(interactions: Interactions, erasures: Iterable[Erasure]) -> Interactions:
    """Data set without what is erased; nothing is written.

    What :func:`erase` makes of a data set has the same content and hash.

    Raises:
        DataError: nothing would be left.
    """
    return keep_rows(interactions, ~_checked_rows(interactions, erasures))


def erase(dataset: str, erasures: Sequence[Erasure], key: Key) -> int:
    """Delete interactions from a stored data set for good, and return their number; a second call finds none.

    The record of deleted users is written first: a run killed in between is completed by the same call.
    An imported set is rewritten whole. The packaged ml-100k stays as the package brings it, and the rows are
    left out whenever it is read.

    Args:
        dataset: a name that ``data list`` shows.
        erasures: what goes; users that are gone already are passed over.
        key: keyed hash of an id; only hashes are kept.

    Raises:
        UsageError: unknown data set, or users that neither are nor were in it.
        DataError: nothing would be left.
    """
    check_known(dataset)
    interactions, before = load_interactions(dataset), read_left_out(dataset)
    _check_users(interactions, erasures, set(before.users), key)
    gone = _checked_rows(interactions, erasures)
    hashes = [key(e.user) for e in erasures if e.whole_user and e.user is not None]
    if dataset == EMBEDDED:
        whole = movielens.read_ml_100k()
        there = np.delete(np.arange(len(whole)), list(before.rows))
        write_left_out(dataset, before.adding(hashes, there[gone].tolist(), whole.hash))
        return int(gone.sum())
    write_left_out(dataset, before.adding(hashes))
    if gone.any():
        folder = paths.data_sets() / dataset
        write_data_set(keep_rows(interactions, ~gone), folder, read_manifest(folder).get("settings"))
    return int(gone.sum())


def bury(dataset: str, users: Sequence[str], key: Key) -> int:
    """Delete whole users from a stored data set: see :func:`erase`."""
    return erase(dataset, [Erasure(user) for user in users], key)


def is_deleted(dataset: str, user: str, key: Key) -> bool:
    """Tell whether a user was deleted from a data set (and has not come back by a new import)."""
    known = read_left_out(dataset).users
    return (
        bool(known) and key(user) in set(known) and user not in set(load_interactions(dataset).users.tolist())
    )


def returned(dataset: str, interactions: Interactions, key: Key) -> list[str]:
    """Users of ``interactions`` that were deleted from ``dataset`` before: a new import brings them back."""
    known = set(read_left_out(dataset).users)
    return [user for user in interactions.users.tolist() if key(user) in known] if known else []


def _checked_rows(interactions: Interactions, erasures: Iterable[Erasure]) -> NDArray[np.bool_]:
    gone = np.zeros(len(interactions), dtype=bool)
    whole: list[str] = []
    for erasure in erasures:
        if erasure.whole_user and erasure.user is not None:
            whole.append(erasure.user)
        else:
            gone |= erasure.rows(interactions)
    gone |= np.isin(interactions.users, whole)[interactions.user]
    if gone.all():
        raise DataError(
            f"No interaction of '{interactions.name}' would be left. Remove the data set instead: "
            f"data remove {interactions.name}"
        )
    return gone


def _check_users(
    interactions: Interactions, erasures: Sequence[Erasure], deleted: set[str], key: Key
) -> None:
    known = set(interactions.users.tolist())
    absent = {e.user for e in erasures if e.user is not None} - known
    unknown = [user for user in absent if key(user) not in deleted]
    if unknown:
        raise UsageError(
            f"{len(unknown)} of the users to delete are not in the data set '{interactions.name}', nor were "
            "they deleted from it. Correct the list."
        )
