"""Requests and jobs as the ledger holds them."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recunlearn.deletion.request import Request
from recunlearn.foundation.errors import RecunlearnError


@dataclass(frozen=True)
class Row:
    """A request as the ledger knows it; ``request`` is None once it is closed or refused."""

    reference: str
    dataset: str
    who: str
    scope: str
    state: str
    requested_at: str
    received_at: str
    closed_at: str
    job: str
    reason: str
    receipt: str
    request: Request | None = field(repr=False)

    def plain(self) -> dict[str, str]:
        """Everything but the ids."""
        return {k: v for k, v in vars(self).items() if k != "request"}


@dataclass(frozen=True)
class Job:
    """Requests that are unlearned together."""

    name: str
    dataset: str
    state: str
    facts: Mapping[str, Any]


def row_of(found: sqlite3.Row) -> Row:
    """Request of a row of the table."""
    names = ("reference", "dataset", "who", "scope", "state", "requested_at", "received_at", "closed_at")
    values = {n: found[n] for n in (*names, "job", "reason", "receipt")}
    request = None
    if found["user_id"] is not None or found["item_id"] is not None:
        columns = ("reference", "user_id", "item_id", "since", "until", "requested_at")
        request = Request(*(found[c] for c in columns))
    return Row(**values, request=request)


def job_of(found: sqlite3.Row) -> Job:
    """Job of a row of the table.

    Raises:
        RecunlearnError: its facts were edited into no JSON.
    """
    try:
        facts = json.loads(found["facts"])
    except ValueError:
        raise RecunlearnError(
            f"The ledger's row of the job {found['name']} was edited and cannot be read. Restore the ledger "
            "from a backup."
        ) from None
    return Job(found["name"], found["dataset"], found["state"], facts)
