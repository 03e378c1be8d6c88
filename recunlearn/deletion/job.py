"""``delete-users``: from requests to receipts, in jobs, one at a time for each data set."""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recunlearn.deletion import states
from recunlearn.deletion.closing import close_all, erase_and_purge, job_folder, remove_stale
from recunlearn.deletion.drift import advice, drift_after, drift_before
from recunlearn.deletion.intake import check_known
from recunlearn.deletion.ledger import Ledger
from recunlearn.deletion.plan import Plan
from recunlearn.deletion.request import Request
from recunlearn.deletion.rows import Job, Row
from recunlearn.deletion.stages import (
    Orders,
    Work,
    check_base,
    judge,
    make_plan,
    save_model,
    stage_model,
    staged_model,
    unlearn,
)
from recunlearn.deletion.standing import (
    Standing,
    UserScore,
    jobs_folder,
    model_facts,
    scores_for,
    standing_model,
)
from recunlearn.foundation import paths
from recunlearn.foundation.errors import CheckpointError, DataError, UsageError
from recunlearn.foundation.settings import ScoreSettings
from recunlearn.foundation.store import read_json
from recunlearn.studies.benchmark.locks import locked
from recunlearn.studies.threads import threads

FAILED_STATES = (states.SCORED, states.UNLEARNED, states.ESCALATED)


@dataclass
class Outcome:
    """What a run of ``delete-users`` did.

    Args:
        new, known: requests of the file that the ledger did not, or did, know.
        jobs: that were closed, in order.
        receipts: files of all requests of these jobs.
        failed: jobs that no method was accepted for -> why.
        refused: requests that were not carried out, now or in an earlier run -> why.
        notes: what an operator should know.
    """

    new: int = 0
    known: int = 0
    jobs: list[Job] = field(default_factory=list)
    receipts: list[Path] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def delete_users(
    settings: ScoreSettings,
    requests: Sequence[Request],
    orders: Orders,
    ledger: Ledger,
    *,
    checkpoint: Path | None = None,
    batch: int | None = None,
) -> Outcome:
    """Carry out requests, and whatever the ledger has open for the data set.

    Idempotent by reference; a killed run is gone on with by the same call, or by one without requests.

    Args:
        settings: run whose model is unlearned.
        requests: those of users who are gone already are refused in the ledger.
        orders: of the operator.
        ledger: that remembers.
        checkpoint: model; None: the last job's, or the scored one.
        batch: most requests in a job; None: all.

    Raises:
        RecunlearnError: in one sentence, what to do; what was finished stays finished.
    """
    with locked(jobs_folder() / settings.dataset), threads(settings.threads or 1):
        outcome = Outcome(*ledger.receive(settings.dataset, requests))
        job = ledger.job_under_way(settings.dataset)
        remove_stale(settings.dataset, job)
        if job is not None:
            orders.listener.say(f"{job.name} was begun before and is gone on with.")
            _carry_out(job, None, ledger, orders, outcome)
        while rows := ledger.rows(settings.dataset, state=states.RECEIVED)[: batch or None]:
            fine = _still_there(rows, ledger, outcome)
            if fine:
                standing = standing_model(ledger, settings, checkpoint)
                settings, checkpoint = standing.keys.settings, None
                _carry_out(*_begin(ledger, standing, fine, orders), ledger, orders, outcome)
        _remember([ledger.row(r.reference) for r in requests], outcome)
        return outcome


def dry_run(
    settings: ScoreSettings,
    requests: Sequence[Request],
    orders: Orders,
    ledger: Ledger,
    *,
    checkpoint: Path | None = None,
) -> Plan:
    """Plan of all requests as one job; nothing is written but scores."""
    standing = standing_model(ledger, settings, checkpoint)
    tell_others(settings.dataset, standing, orders)
    return _planned(ledger, Work(standing, requests, orders), orders)[0]


def _planned(ledger: Ledger, work: Work, orders: Orders) -> tuple[Plan, str, dict[str, float]]:
    """Plan, where its scores came from, and the drift of the model."""
    weights = model_facts(work.standing.keys.model)["weights_hash"]
    drift = drift_before(ledger, work.settings.dataset, weights)
    scores: dict[str, UserScore] = {}
    source = "none"
    if work.users:
        options = (drift, orders.policy.drift, orders.listener)
        scores, source = scores_for(work.standing, work.users, *options, needed=orders.method is None)
    return make_plan(work, scores), source, drift


def _still_there(rows: Sequence[Row], ledger: Ledger, outcome: Outcome) -> list[Request]:
    """Requests whose data are there; others were deleted since they were received, and are refused."""
    requests = [r.request for r in rows if r.request is not None]
    fine, gone, unknown = check_known(rows[0].dataset, requests, ledger)
    for group, reason in ((gone, "deleted already"), (unknown, "not in the data")):
        for request in group:
            ledger.refuse(request.reference, reason)
            _refused(request.reference, reason, outcome)
    return fine


def _refused(reference: str, reason: str, outcome: Outcome) -> None:
    outcome.refused[reference] = reason
    outcome.notes.append(f"{reference} was refused: {reason}.")


def _remember(asked: Sequence[Row], outcome: Outcome) -> None:
    """Tell of requests that an earlier run did not carry out: asking again does not."""
    for row in asked:
        if row.reference in outcome.refused or row.job in outcome.failed:
            continue
        if row.state == states.REFUSED:
            _refused(row.reference, row.reason, outcome)
        elif row.state == states.FAILED:
            outcome.failed[row.job] = f"{row.reason} Put it back with: requests retry {row.reference}"


def _begin(ledger: Ledger, standing: Standing, requests: list[Request], orders: Orders) -> tuple[Job, Work]:
    """Score and plan a job of requests."""
    work = Work(standing, requests, orders)
    plan, source, drift = _planned(ledger, work, orders)
    tell_others(standing.keys.settings.dataset, standing, orders)
    orders.listener.say(f"{plan.methods[0]} first, because {plan.reason}. {plan.cost} Risk: {plan.risk}")
    facts = {
        "before": model_facts(standing.keys.model.absolute()),
        "settings": standing.keys.settings.model_dump(mode="json"),
        "plan": plan.plain(),
        "scores": source,
        "drift": drift,
        "requests": len(requests),
        "limits": orders.policy.limits.model_dump(mode="json"),
        "refused": [],
        "seconds": {},
        "out": paths.portable(orders.out),
    }
    dataset = standing.keys.settings.dataset
    return ledger.begin(dataset, [r.reference for r in requests], facts), work


def tell_others(dataset: str, standing: Standing, orders: Orders) -> None:
    """Say how many other models of the data set may go, because the deleted are in them too."""
    others = 0
    for manifest in paths.models().glob("*/manifest.json"):
        if manifest.parent.resolve() != standing.keys.model.resolve():
            others += read_json(manifest).get("data") == dataset
    if others:
        orders.listener.say(
            f"Warning: other models of '{dataset}' in {paths.models()}: {others}. Those that know what is "
            "erased will be removed with it."
        )


def _carry_out(job: Job, work: Work | None, ledger: Ledger, orders: Orders, outcome: Outcome) -> None:
    """Take a job from the state in which it is to the end; ``work`` is there where it has just begun."""
    began = time.perf_counter()
    if job.state in FAILED_STATES:
        job = _until_verified(job, work, ledger, orders, outcome)
    if job.state == states.VERIFIED:
        job = erase_and_purge(job, ledger, pth=orders.pth, listener=orders.listener)
    if job.state == states.PURGED:
        spent = {**job.facts["seconds"], "total": round(time.perf_counter() - began, 2)}
        job = ledger.note(job, {**job.facts, "seconds": spent})
        outcome.receipts += close_all(job, ledger, orders.draw)
        outcome.jobs.append(ledger.job(job.name))
        if sentence := advice(job.facts["drift"], orders.policy.drift):
            outcome.notes.append(sentence)


def _until_verified(job: Job, work: Work | None, ledger: Ledger, orders: Orders, outcome: Outcome) -> Job:
    try:
        if orders.moved and job.facts["out"] != paths.portable(orders.out):
            job = ledger.note(job, {**job.facts, "out": paths.portable(orders.out)})
        work = work or _work_of(job, ledger, orders)
        check_base(job, work.standing)
        job = _tried(job, work, ledger)
    except (CheckpointError, DataError, UsageError) as error:
        # Trying again will not mend these; a full disk or a forbidden folder leaves the job as it is.
        current = ledger.job(job.name)
        facts = {**current.facts, "failed": str(error)}
        job = ledger.advance(current, states.FAILED, facts, reason=str(error))
    if job.state == states.FAILED:
        outcome.failed[job.name] = job.facts["failed"]
        shutil.rmtree(job_folder(job), ignore_errors=True)
    return job


def _work_of(job: Job, ledger: Ledger, orders: Orders) -> Work:
    """Work of a job that another process began."""
    requests = [row.request for row in ledger.rows(job=job.name) if row.request is not None]
    settings = ScoreSettings.model_validate(job.facts["settings"])
    before = paths.placed(job.facts["before"]["folder"])
    return Work(standing_model(ledger, settings, before), requests, orders)


def _tried(job: Job, work: Work, ledger: Ledger) -> Job:
    """Try the plan's methods until one is accepted, from where the job was left."""
    refused = list(job.facts["refused"])
    for method in job.facts["plan"]["methods"][len(refused) :]:
        folder = job_folder(job) / method
        model = staged_model(work, folder / "model") if job.state == states.UNLEARNED else None
        if model is None:
            model, attempt = unlearn(work, method, folder)
            stage_model(work, model, folder / "model")
            job = ledger.advance(job, states.UNLEARNED, {**job.facts, "attempt": attempt})
        began = time.perf_counter()
        judged = judge(work, model, job.facts["attempt"])
        seconds = {
            "unlearning": round(judged["seconds"], 3),
            "verification": round(time.perf_counter() - began, 3),
        }
        facts = {**{k: v for k, v in job.facts.items() if k != "attempt"}, "seconds": seconds}
        if not judged["violations"]:
            return _accepted(job, work, model, judged, facts, ledger)
        refused.append(judged)
        work.orders.listener.say(f"{method} is not accepted: {'; '.join(judged['violations'])}.")
        job = ledger.advance(job, states.ESCALATED, {**facts, "refused": refused})
    names = ", ".join(a["method"] for a in refused)
    why = f"no method kept to the policy's limits ({names}): {'; '.join(refused[-1]['violations'])}"
    return ledger.advance(job, states.FAILED, {**job.facts, "failed": why}, reason=why)


def _accepted(
    job: Job, work: Work, model: Any, judged: Mapping[str, Any], facts: Mapping[str, Any], ledger: Ledger
) -> Job:
    after = save_model(work, model, job, judged)
    drift = drift_after(
        facts["drift"],
        judged["method"],
        facts["scores"],
        judged["figures"].get("drift", 0.0),
        facts["plan"]["interactions"] / len(work.data),
    )
    done = {**facts, "after": after, "accepted": dict(judged), "drift": drift}
    return ledger.advance(job, states.VERIFIED, done)
