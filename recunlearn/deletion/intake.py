"""Requests against the data: which can be carried out, which are done already, and which name nobody."""

from collections.abc import Sequence
from dataclasses import replace

from recunlearn.data.catalogue import load_interactions
from recunlearn.data.interactions import Interactions
from recunlearn.data.tombstones import is_deleted, survivors
from recunlearn.deletion import states
from recunlearn.deletion.ledger import Ledger
from recunlearn.deletion.request import AUTOMATIC, Request
from recunlearn.foundation.errors import UsageError, near_miss

MOST_NAMED = 10
MOST_SECONDS = 1e11
"""Year 5138 in seconds since 1970; year 1973 in milliseconds."""


def check_known(
    dataset: str, requests: Sequence[Request], ledger: Ledger
) -> tuple[list[Request], list[Request], list[Request]]:
    """Requests that can be carried out, those whose users were deleted already, and unknown ones.

    Raises:
        UsageError: a period in another unit than the times of the data.
    """
    data = load_interactions(dataset)
    _check_unit(data, requests)
    users, items = set(data.users.tolist()), set(data.items.tolist())
    fine, gone, unknown = [], [], []
    for request in requests:
        there = (request.user is None or request.user in users) and (
            request.item is None or request.item in items
        )
        if there and (request.scope == "user" or request.erasure.rows(data).any()):
            fine.append(request)
        elif _is_gone(dataset, request, ledger):
            gone.append(request)
        else:
            unknown.append(request)
    return fine, gone, unknown


def _check_unit(data: Interactions, requests: Sequence[Request]) -> None:
    """Refuse seconds where the data count in milliseconds or less: from a day on, everything would go."""
    if data.time is None or not len(data.time) or data.time.min() < MOST_SECONDS:
        return
    for request in requests:
        for time in (request.since, request.until):
            if time is not None and 0 < time < MOST_SECONDS:
                raise UsageError(
                    f"The period of {request.reference} is in seconds, but the times of '{data.name}' are "
                    f"not (the first is {data.time.min():.0f}). Write 'from' and 'to' in that unit."
                )


def _is_gone(dataset: str, request: Request, ledger: Ledger) -> bool:
    if ledger.erased(dataset, ledger.who(dataset, request)) is not None:
        return True
    return request.user is not None and is_deleted(dataset, request.user, ledger.keys.of_user(dataset))


def renewed(dataset: str, requests: Sequence[Request], ledger: Ledger) -> list[Request]:
    """Requests of users who came back after their deletion get a reference of their own.

    Raises:
        UsageError: such a request was given its old reference.
    """
    users = set(load_interactions(dataset).users.tolist())
    found = []
    for request in requests:
        row = ledger.find(request.reference)
        returns = row is not None and row.state == states.CLOSED and row.who == ledger.who(dataset, request)
        if not returns or request.user not in users or request.scope != "user":
            found.append(request)
        elif not request.reference.startswith(AUTOMATIC):
            raise UsageError(
                f"The request {request.reference} is closed, but its user is in '{dataset}' again. Give the "
                "new request a new reference."
            )
        else:
            numbers = (f"{request.reference}-{n}" for n in range(2, 10**6))
            found.append(replace(request, reference=next(n for n in numbers if _is_free(n, ledger))))
    return found


def _is_free(reference: str, ledger: Ledger) -> bool:
    row = ledger.find(reference)
    return row is None or row.state != states.CLOSED


def check_left(dataset: str, requests: Sequence[Request]) -> None:
    """Refuse requests that leave nothing.

    Raises:
        DataError: no interaction would be left.
    """
    if requests:
        survivors(load_interactions(dataset), [r.erasure for r in requests])


def unknown_sentence(unknown: Sequence[Request], dataset: str) -> str:
    """Name what the data set does not have."""
    data = load_interactions(dataset)
    first, hint, users = unknown[0], "", data.users.tolist()
    if first.user is not None and len(unknown) == 1:
        hint = (
            " The user is there, but not with this." if first.user in users else near_miss(first.user, users)
        )
    if first.user is not None and first.user[:1] in "=+@" and not hint:
        hint = " The first looks like a formula of a spreadsheet: export the ids as text."
    what = "1 request names" if len(unknown) == 1 else f"{len(unknown)} requests name"
    return (
        f"{what} nothing that the data set '{dataset}' has: {shown([_id(r) for r in unknown])}.{hint} "
        "Correct the list, or add --on-missing skip. Nothing was entered into the ledger."
    )


def shown(texts: Sequence[str]) -> str:
    """Some texts, quoted."""
    more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return ", ".join(repr(t) for t in texts[:MOST_NAMED]) + more


def _id(request: Request) -> str:
    return " / ".join(v for v in (request.user, request.item) if v is not None)
