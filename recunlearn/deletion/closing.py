"""What follows once a result is accepted: the data go, then everything that holds them, then the receipts."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from recunlearn.data.catalogue import data_hash
from recunlearn.data.tombstones import erase
from recunlearn.deletion import states
from recunlearn.deletion.ledger import Ledger
from recunlearn.deletion.purge import purge
from recunlearn.deletion.receipt import make_receipt, receipt_hash, receipt_path
from recunlearn.deletion.rows import Job
from recunlearn.deletion.standing import drop_scores_of, jobs_folder
from recunlearn.foundation import paths
from recunlearn.foundation.errors import CheckpointError, RecunlearnError, UsageError
from recunlearn.foundation.store import atomic_file, explain_os_errors, write_json
from recunlearn.studies.scoring import Listener

MODELS, EXPORTS = "models", "exports"


def erase_and_purge(job: Job, ledger: Ledger, *, pth: bool, listener: Listener) -> Job:
    """Delete the data and everything of ours that holds them; run again after a kill it does what is left.

    Raises:
        RecunlearnError: the data were changed by somebody else since the model was made.
    """
    requests = [row.request for row in ledger.rows(job=job.name) if row.request is not None]
    after, key = job.facts["after"], ledger.keys.of_user(job.dataset)
    if data_hash(job.dataset) != after["data_hash"]:
        erase(job.dataset, [r.erasure for r in requests], key)
    if data_hash(job.dataset) != after["data_hash"]:
        raise RecunlearnError(
            f"The data set '{job.dataset}' was changed while {job.name} was under way: its new model belongs "
            "to other data. Put the data back as they were and run the command again."
        )
    parts = [r.erasure for r in requests if r.scope != "user"]
    users = [r.user for r in requests if r.user is not None and r.scope == "user"]
    drop_scores_of(job.dataset, after["model"], users)
    new = paths.placed(after["folder"])
    removed = remove_earlier(job, ledger)
    report = purge(job.dataset, users, keep=(new,), key=key, erasures=parts).to_plain()
    if pth:
        _export(new, listener)
    purged = {**report, "removed": sorted({*report["removed"], *removed})}
    return ledger.advance(job, states.PURGED, {**job.facts, "purged": purged})


def export_file(folder: Path) -> Path:
    """Where the export of a new model for RecBole lies: in ``exports`` beside the models."""
    return folder.parents[1] / EXPORTS / f"{folder.name}.pth"


def _export(folder: Path, listener: Listener) -> None:
    from recunlearn.subjects.recbole.export import export_recbole

    try:
        export_recbole(folder, export_file(folder))
    except (CheckpointError, UsageError) as error:
        listener.say(f"Warning: no .pth was written. {error}")


def remove_earlier(job: Job, ledger: Ledger) -> list[str]:
    """Remove what earlier jobs of the data set made, wherever it lies, and leftovers of killed writes."""
    removed, new = [], paths.placed(job.facts["after"]["folder"])
    for earlier in ledger.jobs(job.dataset):
        after = earlier.facts.get("after")
        folder = paths.placed(after["folder"]) if after else new
        if folder == new:
            continue
        file = export_file(folder)
        for path in (folder, file, file.with_name(f"{file.stem}-data")):
            if path.exists():
                removed.append(path.name)
                _remove(path)
    for path in new.parent.glob(f".{new.name}.*"):  # of writes that were killed
        _remove(path)
    return removed


def _remove(path: Path) -> None:
    with explain_os_errors(path):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def close_all(job: Job, ledger: Ledger, draw: Callable[[Mapping[str, Any]], str] | None) -> list[Path]:
    """Write a receipt for every request and close it, then the job; returns the receipts' files.

    A receipt is written before its request is closed: a kill in between writes it again.
    """
    files, out = [], paths.placed(job.facts["out"])
    for row in ledger.rows(job=job.name):
        file = receipt_path(out, row.reference)
        if row.state == states.PURGED:
            receipt = make_receipt(row, job, ledger.last_receipt(job.dataset), ledger.keys)
            write_json(file, receipt)
            if draw is not None:
                with atomic_file(file.with_suffix(".html")) as temporary:
                    temporary.write_text(draw(receipt), encoding="utf-8")
            ledger.close(row.reference, receipt_hash(receipt))
        files.append(file)
    ledger.finish(job, job.facts)
    shutil.rmtree(job_folder(job), ignore_errors=True)
    return files


def remove_stale(dataset: str, under_way: Job | None) -> None:
    """Remove folders of jobs that are over: a kill may have come between their end and this."""
    folder = jobs_folder() / dataset
    for path in folder.iterdir() if folder.is_dir() else ():
        if under_way is None or path.name != under_way.name:
            _remove(path)


def job_folder(job: Job) -> Path:
    """Where a job under way keeps what it could need after a kill; it goes with the job."""
    return jobs_folder() / job.dataset / job.name
