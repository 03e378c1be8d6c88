"""Events of the ledger, each sealed with the one before it."""

import json
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from recunlearn.deletion.signing import KeyRing, canonical

FIRST = "0" * 64


class Chain:
    """Events in the order in which they happened.

    Every event's seal is the keyed hash of its contents and of the seal before it, so that nobody without
    the key can change, drop or insert one unseen. Cutting off the end leaves rows that are ahead of their
    events, which :meth:`Ledger.problems` finds.

    Args:
        base: connection of the ledger; the caller's transaction holds.
        keys: of the seals.
    """

    def __init__(self, base: sqlite3.Connection, keys: KeyRing) -> None:
        self._base, self._keys = base, keys

    def add(self, kind: str, name: str, state: str, detail: Mapping[str, Any]) -> None:
        """Append an event about a request or a job; ``detail`` holds no id."""
        last = self._base.execute("SELECT number, seal FROM events ORDER BY number DESC LIMIT 1").fetchone()
        number, before = (1, FIRST) if last is None else (last["number"] + 1, last["seal"])
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        values = (number, at, kind, name, state, canonical(dict(detail)).decode())
        self._base.execute(
            "INSERT INTO events (number, at, kind, name, state, detail, seal) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*values, self._seal(before, values)),
        )

    def of(self, name: str) -> list[dict[str, Any]]:
        """Time and state of everything that happened to a request or job."""
        found = self._base.execute("SELECT at, state FROM events WHERE name = ? ORDER BY number", (name,))
        return [dict(r) for r in found]

    def latest(self, kind: str) -> dict[str, str]:
        """Name -> digest of the row at its last event."""
        found = self._base.execute("SELECT name, detail FROM events WHERE kind = ? ORDER BY number", (kind,))
        return {r["name"]: json.loads(r["detail"]).get("digest", "") for r in found}

    def problems(self) -> list[str]:
        """First event whose seal does not hold, or whose predecessor is missing."""
        before, expected = FIRST, 1
        for event in self._base.execute("SELECT * FROM events ORDER BY number"):
            if event["number"] != expected:
                return [f"Event {expected} is missing."]
            values = tuple(event[c] for c in ("number", "at", "kind", "name", "state", "detail"))
            if event["seal"] != self._seal(before, values):
                return [f"Event {expected} ({event['name']}, {event['state']}) was changed."]
            before, expected = event["seal"], expected + 1
        return []

    def _seal(self, before: str, values: tuple[Any, ...]) -> str:
        return self._keys.keyed_hash("event", before, canonical(list(values)).decode())
