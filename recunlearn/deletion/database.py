"""The ledger's SQLite file: schema, settings, transactions, and what must not stay in its pages."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recunlearn.deletion.signing import KeyRing
from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.store import explain_os_errors

VERSION = 1
APPLICATION = 0x52554C47
"""SQLite's application id: "RULG"."""
WAIT_SECONDS = 60.0

SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE requests (
  number INTEGER PRIMARY KEY,
  reference TEXT NOT NULL UNIQUE,
  dataset TEXT NOT NULL,
  who TEXT NOT NULL,
  scope TEXT NOT NULL,
  state TEXT NOT NULL,
  requested_at TEXT NOT NULL,
  received_at TEXT NOT NULL,
  closed_at TEXT NOT NULL DEFAULT '',
  closed_number INTEGER,
  job TEXT NOT NULL DEFAULT '',
  reason TEXT NOT NULL DEFAULT '',
  receipt TEXT NOT NULL DEFAULT '',
  user_id TEXT, item_id TEXT, since REAL, until REAL
);
CREATE INDEX requests_of ON requests (dataset, state);
CREATE TABLE jobs (
  number INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  dataset TEXT NOT NULL,
  state TEXT NOT NULL,
  facts TEXT NOT NULL
);
CREATE TABLE events (
  number INTEGER PRIMARY KEY,
  at TEXT NOT NULL,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  state TEXT NOT NULL,
  detail TEXT NOT NULL,
  seal TEXT NOT NULL
);
"""


def connect(path: Path, keys: KeyRing) -> sqlite3.Connection:
    """Open the file, or make it with mode 0600.

    Raises:
        RecunlearnError: no ledger, one of a newer version, or one that other keys belong to.
    """
    with explain_os_errors(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except (FileExistsError, IsADirectoryError):
            raise _no_ledger(path) from None
    with explained(path):
        base = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)
        base.row_factory = sqlite3.Row
        try:
            _prepare(base, path, keys)
        except BaseException:
            base.close()
            raise
    return base


def _prepare(base: sqlite3.Connection, path: Path, keys: KeyRing) -> None:
    base.execute(f"PRAGMA busy_timeout = {int(WAIT_SECONDS * 1000)}")
    version = base.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise RecunlearnError(
            f"The ledger {path} was written by a newer version (schema {version}, here {VERSION}). Update "
            "recunlearn; nothing was changed."
        )
    base.execute("PRAGMA journal_mode = WAL")
    # A request counts as received or closed only once it is on the disk.
    base.execute("PRAGMA synchronous = FULL")
    base.execute("PRAGMA secure_delete = ON")
    mark = keys.keyed_hash("ledger")
    with transaction(base, path):
        if base.execute("PRAGMA user_version").fetchone()[0] == 0:
            _create(base, path, mark)
    found = base.execute("SELECT value FROM meta WHERE name = 'keys'").fetchone()
    if base.execute("PRAGMA application_id").fetchone()[0] != APPLICATION or found is None:
        raise _no_ledger(path)
    if found["value"] != mark:
        raise RecunlearnError(
            f"The ledger {path} was written with other keys. Name their folder with --keys, or restore them "
            "from a backup."
        )
    scrub(base)


def _create(base: sqlite3.Connection, path: Path, mark: str) -> None:
    if base.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
        raise _no_ledger(path)
    for statement in SCHEMA.split(";"):
        base.execute(statement)
    base.execute("INSERT INTO meta VALUES ('keys', ?)", (mark,))
    base.execute(f"PRAGMA application_id = {APPLICATION}")
    base.execute(f"PRAGMA user_version = {VERSION}")


def _no_ledger(path: Path) -> RecunlearnError:
    return RecunlearnError(f"{path} is no ledger of recunlearn. Move it away, or restore the ledger.")


@contextmanager
def transaction(base: sqlite3.Connection, path: Path) -> Iterator[None]:
    """All or nothing; one writer at a time, others wait."""
    with explained(path):
        base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            base.execute("ROLLBACK")
            raise
        base.execute("COMMIT")


def scrub(base: sqlite3.Connection) -> None:
    """Empty the write-ahead log: earlier versions of pages lie in it.

    Freed bytes of the file itself are overwritten by ``secure_delete``. With a reader in another process the
    log is emptied the next time.
    """
    base.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def rewrite(base: sqlite3.Connection) -> None:
    """Rewrite the file without gaps and empty the log; while others read, the next job does it."""
    with suppress(sqlite3.OperationalError):
        base.execute("VACUUM")
    scrub(base)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into one sentence."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if "full" in text:
            raise RecunlearnError(
                f"The disk is full: the ledger {path} could not be written. The last step was not "
                "noted; free space and run the command again."
            ) from None
        if "readonly" in text or "unable to open" in text:
            raise RecunlearnError(f"The ledger {path} cannot be written. Check its permissions.") from None
        if "locked" in text or "busy" in text:
            raise RecunlearnError(
                f"The ledger {path} was in use by another process for {WAIT_SECONDS:.0f} s. Run the command "
                "again."
            ) from None
        raise RecunlearnError(f"The ledger {path} is damaged ({text}). Restore it from a backup.") from None
