"""The ledger: one row per request and per job, and a chain of events that shows any later change."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recunlearn.deletion import database, states
from recunlearn.deletion.chain import Chain
from recunlearn.deletion.request import Request
from recunlearn.deletion.rows import Job, Row, job_of, row_of
from recunlearn.deletion.signing import KeyRing, canonical
from recunlearn.foundation import paths
from recunlearn.foundation.errors import RecunlearnError, UsageError

JOB_STATES = (states.SCORED, states.UNLEARNED, states.ESCALATED, states.VERIFIED, states.PURGED)
"""States of a job that is under way."""


class Ledger:
    """Requests, jobs and events in one SQLite file.

    Args:
        path: of the file; made where it is missing.
        keys: of keyed hashes and of the chain.
        only_read: open the file without writing: a copy on a medium or of an owner that forbids it will do.

    Raises:
        RecunlearnError: written by a newer version, with other keys, or no ledger.
    """

    def __init__(self, path: Path, keys: KeyRing, *, only_read: bool = False) -> None:
        self.path, self.keys = path, keys
        self._base = (database.connect_to_read if only_read else database.connect)(path, keys)
        self._stamp = database.stamp(path) if only_read and database.is_whole(path) else None
        self._chain = Chain(self._base, keys)

    @staticmethod
    def default_path() -> Path:
        """In the home folder."""
        return paths.home() / "ledger" / "ledger.sqlite"

    def __enter__(self) -> "Ledger":
        """Use as a context."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close the file; what SQLite could not do is said in one sentence."""
        self._base.close()
        if self._stamp is not None and self._stamp != database.stamp(self.path):
            raise RecunlearnError(
                f"The ledger {self.path} was written while it was read. Run the command again."
            )
        for error in raised:
            if isinstance(error, sqlite3.Error):
                with database.explained(self.path):
                    raise error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with database.transaction(self._base, self.path):
            yield

    def receive(self, dataset: str, requests: Sequence[Request]) -> tuple[int, int]:
        """Enter requests; those that are there already are left alone. Returns how many are (new, known).

        Raises:
            UsageError: a reference is there already for something else; nothing is entered.
        """
        new = 0
        with self._writing():
            for request in requests:
                who = self.who(dataset, request)
                known = self.find(request.reference)
                if known is None:
                    self._enter(dataset, request, who)
                    new += 1
                elif (known.dataset, known.who) != (dataset, who):
                    raise UsageError(
                        f"The reference {request.reference} is in the ledger already, for another deletion. "
                        "References name one deletion each: choose another."
                    )
        return new, len(requests) - new

    def who(self, dataset: str, request: Request) -> str:
        """Keyed hash of what a request erases; of the user alone where it erases the whole user."""
        if request.scope == "user":
            return self.keys.of_user(dataset)(str(request.user))
        return self.keys.keyed_hash("part", dataset, *request.identity)

    def rows(
        self, dataset: str | None = None, *, state: str | None = None, job: str | None = None
    ) -> list[Row]:
        """Requests in the order in which they came."""
        wanted = {k: v for k, v in (("dataset", dataset), ("state", state), ("job", job)) if v is not None}
        where = " AND ".join(f"{column} = ?" for column in wanted) or "1"
        found = self._base.execute(
            f"SELECT * FROM requests WHERE {where} ORDER BY number", tuple(wanted.values())
        )
        return [row_of(r) for r in found]

    def row(self, reference: str) -> Row:
        """One request.

        Raises:
            UsageError: no such reference.
        """
        found = self.find(reference)
        if found is None:
            raise UsageError(f"The ledger has no request {reference!r}. See: requests list")
        return found

    def erased(self, dataset: str, who: str) -> Row | None:
        """Closed request that erased the same."""
        found = self._base.execute(
            "SELECT * FROM requests WHERE dataset = ? AND who = ? AND state = ? ORDER BY number LIMIT 1",
            (dataset, who, states.CLOSED),
        ).fetchone()
        return None if found is None else row_of(found)

    def refuse(self, reference: str, reason: str) -> None:
        """Close a request that cannot be carried out; its ids go."""
        self._to(reference, states.REFUSED, reason=reason, forget=True)
        database.scrub(self._base)

    def job_under_way(self, dataset: str) -> Job | None:
        """Job that was begun and is not over."""
        marks = ", ".join("?" * len(JOB_STATES))
        found = self._base.execute(
            f"SELECT * FROM jobs WHERE dataset = ? AND state IN ({marks}) ORDER BY number LIMIT 1",
            (dataset, *JOB_STATES),
        ).fetchone()
        return None if found is None else job_of(found)

    def jobs(self, dataset: str) -> list[Job]:
        """All jobs of a data set, the oldest first."""
        found = self._base.execute("SELECT * FROM jobs WHERE dataset = ? ORDER BY number", (dataset,))
        return [job_of(r) for r in found]

    def job(self, name: str) -> Job:
        """One job by its name."""
        return job_of(self._base.execute("SELECT * FROM jobs WHERE name = ?", (name,)).fetchone())

    def begin(self, dataset: str, references: Sequence[str], facts: Mapping[str, Any]) -> Job:
        """Make a job of received requests, which are then scored and planned."""
        with self._writing():
            number = self._base.execute("SELECT COALESCE(MAX(number), 0) + 1 FROM jobs").fetchone()[0]
            name = f"job-{number:05d}"
            self._base.execute(
                "INSERT INTO jobs (number, name, dataset, state, facts) VALUES (?, ?, ?, ?, ?)",
                (number, name, dataset, states.SCORED, _text(facts)),
            )
            self._chain.add("job", name, states.SCORED, {"digest": self._digest_of_job(name)})
            for reference in references:
                self._move(reference, states.SCORED, job=name)
        return self.job(name)

    def advance(self, job: Job, to: str, facts: Mapping[str, Any], *, reason: str = "") -> Job:
        """Put a job and all its open requests into the next state, with what is known by then."""
        with self._writing():
            self._base.execute(
                "UPDATE jobs SET state = ?, facts = ? WHERE name = ?", (to, _text(facts), job.name)
            )
            self._chain.add("job", job.name, to, {"digest": self._digest_of_job(job.name)})
            for row in self.rows(job=job.name):
                if row.state not in states.OVER:
                    self._move(row.reference, to, reason=reason)
        return self.job(job.name)

    def note(self, job: Job, facts: Mapping[str, Any]) -> Job:
        """Add facts to a job in the state in which it is."""
        with self._writing():
            self._base.execute("UPDATE jobs SET facts = ? WHERE name = ?", (_text(facts), job.name))
            self._chain.add("job", job.name, job.state, {"digest": self._digest_of_job(job.name)})
        return self.job(job.name)

    def close(self, reference: str, receipt: str) -> None:
        """Close a request: of its ids only the keyed hash stays, in no page of the file either."""
        self._to(reference, states.CLOSED, receipt=receipt, forget=True)
        database.scrub(self._base)

    def finish(self, job: Job, facts: Mapping[str, Any]) -> None:
        """Close a job whose requests are closed."""
        with self._writing():
            self._base.execute(
                "UPDATE jobs SET state = ?, facts = ? WHERE name = ?",
                (states.CLOSED, _text(facts), job.name),
            )
            self._chain.add("job", job.name, states.CLOSED, {"digest": self._digest_of_job(job.name)})
        database.rewrite(self._base)

    def retry(self, reference: str) -> None:
        """Put a failed request back to the beginning.

        Raises:
            UsageError: it has not failed.
        """
        row = self.row(reference)
        if row.state != states.FAILED:
            raise UsageError(f"Only failed requests can be retried, but {reference} is {row.state}.")
        self._to(reference, states.RECEIVED, job="")

    def last_receipt(self, dataset: str) -> str:
        """Hash of the receipt that was written last; "" before the first."""
        found = self._base.execute(
            "SELECT receipt FROM requests WHERE dataset = ? AND state = ? "
            "ORDER BY closed_number DESC LIMIT 1",
            (dataset, states.CLOSED),
        ).fetchone()
        return "" if found is None else str(found[0])

    def receipts(self, dataset: str) -> dict[str, str]:
        """Hash of each receipt -> its reference, in the order of closing."""
        found = self._base.execute(
            "SELECT receipt, reference FROM requests WHERE dataset = ? AND state = ? ORDER BY closed_number",
            (dataset, states.CLOSED),
        )
        return {r[0]: r[1] for r in found}

    def events(self, name: str) -> list[dict[str, Any]]:
        """History of a request or a job."""
        return self._chain.of(name)

    def problems(self) -> list[str]:
        """What was edited or is missing: sentences, none where all is as it was written."""
        found = self._chain.problems()
        for kind, digest in (("request", self._digest), ("job", self._digest_of_job)):
            latest = self._chain.latest(kind)
            column, table = ("reference", "requests") if kind == "request" else ("name", "jobs")
            there = [r[0] for r in self._base.execute(f"SELECT {column} FROM {table}")]
            found += [f"The row of the {kind} {n} is missing." for n in latest if n not in set(there)]
            for name in there:
                if name not in latest:
                    found.append(f"The {kind} {name} has no event.")
                elif not self._same(latest[name], digest, name):
                    found.append(f"The row of the {kind} {name} was changed.")
        return found

    @staticmethod
    def _same(sealed: str, digest: Callable[[str], str], name: str) -> bool:
        try:
            return digest(name) == sealed
        except RecunlearnError:
            return False

    def find(self, reference: str) -> Row | None:
        """One request; None where there is none."""
        found = self._base.execute("SELECT * FROM requests WHERE reference = ?", (reference,)).fetchone()
        return None if found is None else row_of(found)

    def _enter(self, dataset: str, request: Request, who: str) -> None:
        self._base.execute(
            "INSERT INTO requests (reference, dataset, who, scope, state, requested_at, received_at, "
            "user_id, item_id, since, until) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(request.reference, dataset, who, request.scope, states.RECEIVED, request.requested_at),
                *(now(), request.user, request.item, request.since, request.until),
            ),
        )
        self._note(request.reference, states.RECEIVED)

    def _to(self, reference: str, to: str, **changes: Any) -> None:
        with self._writing():
            self._move(reference, to, **changes)

    def _move(
        self,
        reference: str,
        to: str,
        *,
        job: str | None = None,
        reason: str = "",
        receipt: str = "",
        forget: bool = False,
    ) -> None:
        row = self.row(reference)
        if to not in states.NEXT[row.state]:
            raise RecunlearnError(f"The request {reference} is {row.state} and cannot become {to}.")
        self._base.execute(
            "UPDATE requests SET state = ?, job = ?, reason = ?, receipt = ? WHERE reference = ?",
            (to, row.job if job is None else job, reason, receipt, reference),
        )
        if forget:
            self._base.execute(
                "UPDATE requests SET user_id = NULL, item_id = NULL, since = NULL, until = NULL, "
                "closed_at = ?, closed_number = (SELECT COALESCE(MAX(closed_number), 0) + 1 FROM requests) "
                "WHERE reference = ?",
                (now(), reference),
            )
        self._note(reference, to)

    def _note(self, reference: str, state: str) -> None:
        self._chain.add("request", reference, state, {"digest": self._digest(reference)})

    def _digest(self, reference: str) -> str:
        """Keyed hash of a row without its ids, which ``who`` stands for."""
        return self.keys.keyed_hash("row", canonical(self.row(reference).plain()).decode())

    def _digest_of_job(self, name: str) -> str:
        return self.keys.keyed_hash("job", canonical(vars(self.job(name))).decode())


def now() -> str:
    """Time in UTC, ISO 8601, whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _text(facts: Mapping[str, Any]) -> str:
    return canonical(dict(facts)).decode()
