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
        base = _open(path)
        with _closed_on_failure(base):
            _prepare(base, path, keys)
    return base


def connect_to_read(path: Path, keys: KeyRing) -> sqlite3.Connection:
    """Open the file without writing a byte, wherever it lies and whoever owns it.

    Raises:
        RecunlearnError: as :func:`connect`, or changes in the log beside it that cannot be read.
    """
    with explained(path):
        base = _opened_to_read(path)
        with _closed_on_failure(base):
            _check_version(base, path)
            _check(base, path, keys)
    return base


@contextmanager
def _closed_on_failure(base: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        base.close()
        raise


def _opened_to_read(path: Path) -> sqlite3.Connection:
    if not os.access(path, os.R_OK):
        raise RecunlearnError(f"The ledger {path} cannot be read. Check its permissions.")
    # Any other way to open it would leave files of SQLite's beside it, whose owner might be a stranger.
    how = "immutable=1" if is_whole(path) else "mode=ro"
    base = _open(f"{path.absolute().as_uri()}?{how}", uri=True)
    try:
        base.execute("SELECT name FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        base.close()
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
        raise RecunlearnError(
            f"The last changes of the ledger lie in {_log(path)}, which is read only where files can be "
            "written. Copy both files into a folder of your own."
        ) from None
    return base


def is_whole(path: Path) -> bool:
    """Whether everything is in the file itself, and nothing in the write-ahead log beside it."""
    return not _log(path).exists() or not _log(path).stat().st_size


def stamp(path: Path) -> tuple[int, int]:
    """Time and size of the file, which another process changes by writing."""
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _open(name: Path | str, *, uri: bool = False) -> sqlite3.Connection:
    base = sqlite3.connect(name, timeout=WAIT_SECONDS, isolation_level=None, uri=uri)
    base.row_factory = sqlite3.Row
    return base


def _prepare(base: sqlite3.Connection, path: Path, keys: KeyRing) -> None:
    base.execute(f"PRAGMA busy_timeout = {int(WAIT_SECONDS * 1000)}")
    _check_version(base, path)
    base.execute("PRAGMA journal_mode = WAL")
    # A request counts as received or closed only once it is on the disk.
    base.execute("PRAGMA synchronous = FULL")
    base.execute("PRAGMA secure_delete = ON")
    with transaction(base, path):
        if base.execute("PRAGMA user_version").fetchone()[0] == 0:
            _create(base, path, keys.keyed_hash("ledger"))
    _check(base, path, keys)
    scrub(base)


def _check_version(base: sqlite3.Connection, path: Path) -> None:
    version = base.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise RecunlearnError(
            f"The ledger {path} was written by a newer version (schema {version}, here {VERSION}). Update "
            "recunlearn; nothing was changed."
        )


def _check(base: sqlite3.Connection, path: Path, keys: KeyRing) -> None:
    """Refuse what is no ledger of ours, or one of other keys."""
    if base.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise _no_ledger(path)
    found = base.execute("SELECT value FROM meta WHERE name = 'keys'").fetchone()
    if found is None:
        raise _no_ledger(path)
    if found["value"] != keys.keyed_hash("ledger"):
        raise RecunlearnError(
            f"The ledger {path} was written with other keys. Name their folder with --keys, or restore them "
            "from a backup."
        )


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
