"""What ``delete-users`` plans and did: data first, then drawn."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recunlearn.foundation import paths


def outcome_data(done: Any) -> dict[str, Any]:
    """Plain values for ``--format json``; no id."""
    return {
        "new": done.new,
        "known": done.known,
        "jobs": [_job_data(job) for job in done.jobs],
        "receipts": [str(file) for file in done.receipts],
        "failed": done.failed,
        "refused": done.refused,
        "notes": done.notes,
        "stream": stream(done.jobs),
    }


def _job_data(job: Any) -> dict[str, Any]:
    f = job.facts
    return {
        "name": job.name,
        "requests": f["requests"],
        "method": f["accepted"]["method"],
        "refused": [a["method"] for a in f["refused"]],
        "figures": f["accepted"]["figures"],
        "scores": f["scores"],
        "drift": f["drift"],
        "seconds": f["seconds"],
        "model": str(paths.placed(f["after"]["folder"])),
    }


def share_left_scale(verified: str) -> str:
    """Ends of the share left, by what a deletion was verified against: ``bound`` or ``retrain``."""
    return f"0 as {'retrained' if verified == 'retrain' else 'a stranger'}, 1 nothing forgotten"


def stream(jobs: Any) -> list[dict[str, Any]]:
    """Drift after a quarter, half, three quarters and all of the jobs of a run; each job once."""
    places = dict.fromkeys(-(-len(jobs) * part // 4) for part in (1, 2, 3, 4)) if jobs else {}
    return [{"jobs": n, **jobs[n - 1].facts["drift"]} for n in places]


def draw_plan(console: Console, plan: Any) -> None:
    """Print what would be done, at what cost and risk."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    erased = (
        f"{_many(plan.users, 'user')}, {_many(plan.interactions, 'interaction')} "
        f"({plan.trained:,} of them trained on)"
    )
    grid.add_row("erased", erased)
    if plan.cold_items:
        grid.add_row("cold", f"{_many(plan.cold_items, 'item')} that nobody has afterwards, no longer ranked")
    grid.add_row("method", Text(f"{', then '.join(plan.methods)}: {plan.reason}"))
    grid.add_row("cost", Text(plan.cost or "none"))
    grid.add_row("time", _time(plan.seconds, plan.retrain_seconds))
    grid.add_row("risk", Text(plan.risk))
    console.print(grid)


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _time(seconds: float | None, retraining: float | None) -> str:
    own = "unknown" if seconds is None else f"about {max(1, round(seconds))} s at most"
    return own if retraining is None else f"{own}; a retraining about {max(1, round(retraining))} s"


FIGURES = (
    ("loss of what was erased", "loss/erased/before", "loss/erased/after"),
    ("loss of the others", "loss/others/before", "loss/others/after"),
    ("test ndcg@10 of the others", "ndcg@10/others/before", "ndcg@10/others/after"),
    ("test auc of the others", "auc/others/before", "auc/others/after"),
)


def draw_outcome(console: Console, done: Any) -> None:
    """Print what every job did, the drift of a stream, and where the receipts are."""
    for job in done.jobs:
        _draw_job(console, job)
    if len(done.jobs) > 1:
        told = "; ".join(f"after {s['jobs']}: {s['since_training']:.3f}" for s in stream(done.jobs))
        console.print(Text(f"drift since the last full training, jobs {told}"))
    if not done.jobs and not done.failed and not done.notes:
        console.print("Nothing to do: every request is closed.")
    for name, why in done.failed.items():
        console.print(Text(f"{name} failed: {why}", style="red"))
    for note in done.notes:
        console.print(Text(note, style="yellow"))
    for file in done.receipts[:10]:
        console.print(Text(f"receipt  {file}"), soft_wrap=True)
    if len(done.receipts) > 10:
        console.print(f"and {len(done.receipts) - 10} more")


def _draw_job(console: Console, job: Any) -> None:
    f, figures = job.facts, job.facts["accepted"]["figures"]
    tried = "".join(f", after {a['method']} was refused" for a in f["refused"])
    console.print(
        Text(f"{job.name}: {f['requests']} requests, {f['accepted']['method']}{tried}", style="bold cyan")
    )
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2))
    table.add_column("mean")
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    for name, before, after in FIGURES:
        if after in figures:
            table.add_row(name, f"{figures[before]:.4f}", f"{figures[after]:.4f}")
    console.print(table)
    if "share_left" in figures:
        scale = share_left_scale(f["accepted"]["verified"])
        console.print(f"share left {figures['share_left']:.2f} ({scale})")
    if f["scores"] != "none":
        console.print(
            Text(f"scores {f['scores']}, drift since they were made {f['drift']['since_scores']:.3f}")
        )
    seconds, model = f["seconds"].get("total"), paths.placed(f["after"]["folder"])
    console.print(Text(f"model    {model}  ({seconds} s in all)"), soft_wrap=True)


def draw_requests(console: Console, rows: Any) -> None:
    """Print requests, one a line."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("reference", "data set"):
        table.add_column(name, overflow="fold")
    for name in ("scope", "state", "received", "closed"):
        table.add_column(name, no_wrap=True)
    for r in rows:
        values = (r.reference, r.dataset, r.scope, r.state, r.received_at[:10], r.closed_at[:10])
        table.add_row(*(Text(v) for v in values))
    console.print(table if rows else "No request.")


def draw_request(console: Console, data: Any) -> None:
    """Print one request and its history."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in data.items():
        if name != "events" and value:
            grid.add_row(name, Text(str(value)))
    for event in data["events"]:
        grid.add_row(event["state"], Text(event["at"]))
    console.print(grid)
