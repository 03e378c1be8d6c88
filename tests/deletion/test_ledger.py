"""The ledger: what is entered stays, what is closed is gone, and every change shows."""

import multiprocessing
import os
import re
import shutil
import signal
import sqlite3
import stat
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from recunlearn.deletion import states
from recunlearn.deletion.ledger import Ledger
from recunlearn.deletion.request import Request
from recunlearn.deletion.signing import KeyRing, make_keys, read_keys
from recunlearn.foundation.errors import RecunlearnError, UsageError

SECRET = "canary-7f3a91c2"
WAY = (states.UNLEARNED, states.VERIFIED, states.PURGED)


def finish(ledger, *references, dataset="shop"):
    """Take requests from the beginning to the end."""
    job = ledger.begin(dataset, references, {"n": len(references)})
    for state in WAY:
        job = ledger.advance(job, state, {"state": state})
    for reference in references:
        ledger.close(reference, f"receipt of {reference}")
    ledger.finish(job, {"n": len(references)})


@contextmanager
def read_only_copy(ledger):
    """The ledger's file in a folder that this process may not write, whoever runs it."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    owner = os.geteuid()
    try:
        shutil.copy(ledger.path, folder)
        (folder / ledger.path.name).chmod(0o444)
        folder.chmod(0o555)
        if owner == 0:
            os.seteuid(65534)
        yield folder / ledger.path.name
    finally:
        os.seteuid(owner)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_copy_that_cannot_be_written_is_read(ledger):
    ledger.receive("shop", [Request("R-1", SECRET)])
    finish(ledger, "R-1")
    with read_only_copy(ledger) as path:
        with pytest.raises(RecunlearnError, match="cannot be written"):
            Ledger(path, ledger.keys)
        with Ledger(path, ledger.keys, only_read=True) as copy:
            assert copy.problems() == []
            assert list(copy.receipts("shop").values()) == ["R-1"]
        with pytest.raises(RecunlearnError, match="other keys"):
            Ledger(path, other_keys(ledger), only_read=True)


def other_keys(ledger):
    return KeyRing(ledger.keys.signing, b"x" * 32)


def test_changes_in_a_log_that_cannot_be_read_are_not_passed_over(ledger):
    ledger.receive("shop", [Request("R-1", SECRET)])
    with read_only_copy(ledger) as path:
        os.seteuid(os.getuid())
        path.parent.chmod(0o755)
        (path.parent / f"{path.name}-wal").write_bytes(b"x" * 4096)
        path.parent.chmod(0o555)
        if os.getuid() == 0:
            os.seteuid(65534)
        with pytest.raises(RecunlearnError, match=r"The last changes of the ledger lie in .*-wal"):
            Ledger(path, ledger.keys, only_read=True)


def test_what_another_process_has_just_written_is_read_and_nothing_is_changed(ledger):
    ledger.receive("shop", [Request("R-1", SECRET)])
    with Ledger(ledger.path, ledger.keys, only_read=True) as reader:
        ledger.receive("shop", [Request("R-2", SECRET)])
        assert [r.reference for r in reader.rows("shop")] == ["R-1", "R-2"]
        with pytest.raises(RecunlearnError, match="cannot be written"):
            reader.receive("shop", [Request("R-3", SECRET)])


def test_a_ledger_that_was_written_meanwhile_is_not_judged(ledger, tmp_path):
    ledger.receive("shop", [Request("R-1", SECRET)])
    finish(ledger, "R-1")
    shutil.copy(ledger.path, tmp_path / "copy.sqlite")
    with (
        pytest.raises(RecunlearnError, match="was written while it was read"),
        Ledger(tmp_path / "copy.sqlite", ledger.keys, only_read=True),
        Ledger(tmp_path / "copy.sqlite", ledger.keys) as writer,
    ):
        writer.receive("shop", [Request("R-2", SECRET)])


def test_requests_are_entered_once(ledger):
    requests = [Request("R-1", SECRET), Request("R-2", "other", "item")]
    assert ledger.receive("shop", requests) == (2, 0)
    assert ledger.receive("shop", requests) == (0, 2)
    assert [(r.reference, r.scope, r.state) for r in ledger.rows("shop")] == [
        ("R-1", "user", "received"),
        ("R-2", "interaction", "received"),
    ]
    assert ledger.row("R-1").request == requests[0]
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600


def test_a_reference_names_one_deletion_and_all_or_nothing_is_entered(ledger):
    ledger.receive("shop", [Request("R-1", "a")])
    with pytest.raises(UsageError, match="R-1 is in the ledger already, for another deletion"):
        ledger.receive("shop", [Request("R-0", "c"), Request("R-1", "b")])
    assert [r.reference for r in ledger.rows()] == ["R-1"]


def test_states_follow_their_order(ledger):
    ledger.receive("shop", [Request("R-1", "a"), Request("R-2", "b")])
    with pytest.raises(RecunlearnError, match="R-1 is received and cannot become closed"):
        ledger.close("R-1", "x")
    finish(ledger, "R-1", "R-2")
    told = [e["state"] for e in ledger.events("R-1")]
    assert told == ["received", "scored", "unlearned", "verified", "purged", "closed"]
    assert ledger.last_receipt("shop") == "receipt of R-2"
    assert list(ledger.receipts("shop").values()) == ["R-1", "R-2"]
    assert ledger.problems() == []
    assert ledger.job_under_way("shop") is None
    with pytest.raises(UsageError, match="Only failed requests"):
        ledger.retry("R-1")


def test_a_failed_request_can_be_retried(ledger):
    ledger.receive("shop", [Request("R-1", "a")])
    job = ledger.begin("shop", ["R-1"], {})
    ledger.advance(job, states.FAILED, {}, reason="why")
    assert ledger.row("R-1").reason == "why"
    ledger.retry("R-1")
    assert (ledger.row("R-1").state, ledger.row("R-1").job) == ("received", "")
    assert ledger.problems() == []


def bytes_of(path):
    return b"".join(p.read_bytes() for p in path.parent.iterdir() if p.is_file())


def test_of_a_closed_request_no_byte_of_the_id_is_left(ledger):
    ledger.receive("shop", [Request(f"R-{n}", f"{SECRET}-{n}", f"item-{SECRET}") for n in range(40)])
    ledger.receive("shop", [Request("open", "still-here")])
    assert SECRET.encode() in bytes_of(ledger.path)
    ledger.refuse("R-39", "unknown")
    finish(ledger, *(f"R-{n}" for n in range(39)))
    assert SECRET.encode() not in bytes_of(ledger.path)
    assert b"still-here" in bytes_of(ledger.path)
    assert ledger.row("R-0").request is None
    assert ledger.row("R-0").who == ledger.who("shop", Request("x", f"{SECRET}-0", f"item-{SECRET}"))


def _close_and_die(path, ring):
    made = Ledger(path, ring)
    made._to("R-1", states.CLOSED, receipt="r", forget=True)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_kill_between_closing_and_scrubbing_is_made_good_when_the_ledger_is_opened(home, key_ring):
    path = Ledger.default_path()
    with Ledger(path, key_ring) as made:
        made.receive("shop", [Request("R-1", SECRET)])
        job = made.begin("shop", ["R-1"], {})
        for state in WAY:
            job = made.advance(job, state, {})
    child = multiprocessing.get_context("fork").Process(target=_close_and_die, args=(path, key_ring))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert SECRET.encode() in bytes_of(path)  # in the write-ahead log
    with Ledger(path, key_ring) as made:
        assert made.row("R-1").state == states.CLOSED
        assert SECRET.encode() not in bytes_of(path)
        assert made.problems() == []


EDITS = {
    "UPDATE requests SET who = 'x' WHERE reference = 'R-1'": "row of the request R-1 was changed",
    "UPDATE requests SET state = 'received' WHERE reference = 'R-1'": "row of the request R-1 was changed",
    "DELETE FROM requests WHERE reference = 'R-1'": "row of the request R-1 is missing",
    "UPDATE jobs SET facts = '{}'": "row of the job job-00001 was changed",
    "DELETE FROM jobs": "row of the job job-00001 is missing",
    "DELETE FROM events WHERE number = 3": "Event 3 is missing",
    "UPDATE events SET state = 'closed' WHERE number = 2": "Event 2 .* was changed",
    "UPDATE events SET number = number + 1 WHERE number = (SELECT MAX(number) FROM events)": "is missing",
    "DELETE FROM events WHERE number = (SELECT MAX(number) FROM events)": "row of the job .* was changed",
    "INSERT INTO requests (reference, dataset, who, scope, state, requested_at, received_at) "
    "VALUES ('R-9', 'shop', 'w', 'user', 'closed', '', '')": "request R-9 has no event",
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_or_missing_row_is_found(ledger, edit):
    ledger.receive("shop", [Request("R-1", "a"), Request("R-2", "b")])
    finish(ledger, "R-1", "R-2")
    assert ledger.problems() == []
    with sqlite3.connect(ledger.path) as base:
        base.execute(edit)
    base.close()
    assert any(re.search(EDITS[edit], sentence) for sentence in ledger.problems())


def _receive(path, ring, worker, count):
    with Ledger(path, ring) as made:
        for n in range(count):
            made.receive(
                "shop", [Request(f"R-{worker}-{n}", f"u-{worker}-{n}"), Request(f"both-{n}", f"u-{n}")]
            )


def test_two_processes_at_once_lose_nothing(home, key_ring):
    path = Ledger.default_path()
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_receive, args=(path, key_ring, w, 15)) for w in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [w.exitcode for w in workers] == [0, 0, 0]
    with Ledger(path, key_ring) as made:
        assert len(made.rows("shop")) == 3 * 15 + 15
        assert made.problems() == []


def test_ledgers_that_cannot_be_used_get_a_sentence(home, key_ring, tmp_path):
    path = Ledger.default_path()
    Ledger(path, key_ring).__exit__()
    others = read_keys(make_keys(tmp_path / "others"))
    with pytest.raises(RecunlearnError, match="written with other keys"):
        Ledger(path, others)
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA user_version = 99")
    base.close()
    with pytest.raises(RecunlearnError, match=r"newer version \(schema 99, here 1\)"):
        Ledger(path, key_ring)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as base:
        base.execute("CREATE TABLE t (x)")
    base.close()
    with pytest.raises(RecunlearnError, match="is no ledger of recunlearn"):
        Ledger(other, key_ring)
    (tmp_path / "text.sqlite").write_text("no database at all, but a long enough text to be looked at" * 20)
    with pytest.raises(RecunlearnError, match="is damaged"):
        Ledger(tmp_path / "text.sqlite", key_ring)
    (tmp_path / "file").write_text("")
    with pytest.raises(RecunlearnError):
        Ledger(tmp_path / "file" / "ledger.sqlite", key_ring)


def test_a_ledger_that_was_taken_apart_gets_a_sentence(home, key_ring):
    path = Ledger.default_path()
    with Ledger(path, key_ring) as ledger:
        ledger.receive("shop", [Request("R-1", "7")])
        ledger.begin("shop", ["R-1"], {})
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("UPDATE jobs SET facts = 'nope'")
    with Ledger(path, key_ring) as ledger:
        assert ledger.problems() == ["The row of the job job-00001 was changed."]
        with pytest.raises(RecunlearnError, match="job job-00001 was edited"):
            ledger.jobs("shop")
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("DROP TABLE events")
    with pytest.raises(RecunlearnError, match=r"is damaged \(no such"), Ledger(path, key_ring) as ledger:
        ledger.problems()
