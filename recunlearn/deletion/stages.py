"""The stages of one job: each may be killed and run again, for the ledger alone says what is done."""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from recunlearn.data.catalogue import load_interactions
from recunlearn.data.interactions import Interactions
from recunlearn.data.splits import positives
from recunlearn.data.tombstones import survivors
from recunlearn.deletion.acceptance import Scales, violations
from recunlearn.deletion.closing import MODELS
from recunlearn.deletion.plan import NOTHING, Plan, choose, is_hard, mean_residual
from recunlearn.deletion.policy import EXACT, Policy
from recunlearn.deletion.request import Request
from recunlearn.deletion.rows import Job
from recunlearn.deletion.standing import Standing, UserScore, model_facts
from recunlearn.foundation import paths
from recunlearn.foundation.errors import CheckpointError, RecunlearnError, UsageError
from recunlearn.studies.losses import samples
from recunlearn.studies.scoring import Listener
from recunlearn.studies.training_time import epoch_seconds
from recunlearn.subjects.contract import Batch, IntArray
from recunlearn.subjects.recbole.after_deletion import after_deletion
from recunlearn.subjects.recbole.store import load_subject, save_subject
from recunlearn.subjects.recbole.subject import RecBoleSubject
from recunlearn.unlearning.contract import Unlearned
from recunlearn.unlearning.registry import make

OF_OTHERS = "/others/after"
"""End of the names of figures of those who stay."""
NOBODY: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Orders:
    """What the operator asked for, the same for every job of a run.

    Args:
        policy: rule and limits.
        method: named on the command line; None: chosen by the policy.
        verify: "bound" or "retrain".
        out: folder of receipts and new models.
        pth: export every new model for RecBole too.
        listener: told about progress.
        progress: told about steps of a method.
        draw: makes a receipt's page; None: none is made.
        moved: ``out`` was named: a job that goes on, and has written nothing there yet, goes on to it.
    """

    policy: Policy
    method: str | None
    verify: str
    out: Path
    pth: bool
    listener: Listener
    progress: Callable[[str, int, int], None] | None = None
    draw: Callable[[Mapping[str, Any]], str] | None = field(default=None, repr=False)
    moved: bool = False


class Work:
    """Model, data and requests of one job, before anything is deleted.

    Args:
        standing: model that is unlearned.
        requests: of the job.
        orders: of the operator.
    """

    def __init__(self, standing: Standing, requests: Sequence[Request], orders: Orders) -> None:
        self.standing, self.requests, self.orders = standing, list(requests), orders
        self.settings = standing.keys.settings

    @cached_property
    def data(self) -> Interactions:
        """Data set with what is to be erased."""
        return load_interactions(self.settings.dataset)

    @cached_property
    def after(self) -> Interactions:
        """Data set without it."""
        return survivors(self.data, [r.erasure for r in self.requests])

    @cached_property
    def subject(self) -> RecBoleSubject:
        """Model before.

        Raises:
            CheckpointError: it belongs to other data, or is damaged.
        """
        return load_subject(self.standing.keys.model, self.data, device=self.settings.device)

    @property
    def users(self) -> list[str]:
        """Ids of users of whom everything goes."""
        return list(dict.fromkeys(r.user for r in self.requests if r.scope == "user" and r.user is not None))

    @cached_property
    def forget(self) -> IntArray:
        """Their rows in the model, ascending."""
        return np.flatnonzero(np.isin(self.subject.entities, self.users)).astype(np.int64)

    @cached_property
    def parts(self) -> IntArray:
        """Training rows that go beside those of whole users."""
        subject = self.subject
        mask = np.zeros(len(self._seen), dtype=bool)
        for request in self.requests:
            if request.scope != "user":
                mask |= request.erasure.rows(self._seen)
        mine = np.isin(subject.samples.user.astype(np.int64) - 1, self.forget)
        return np.flatnonzero(mask[np.asarray(subject.bundle.train.rows)] & ~mine).astype(np.int64)

    @property
    def _seen(self) -> Interactions:
        """Data in the order that a bundle's rows count."""
        return self.data if self.subject.bundle.labelled else positives(self.data, self.settings.min_rating)

    @cached_property
    def scales(self) -> Scales:
        """What every attempt is measured on."""
        batches: list[Batch] = (
            samples(self.subject, self.forget, self.settings.seed) if len(self.forget) else []
        )
        if len(self.parts):
            batches.append(self.subject.samples.batch(self.parts, self.settings.seed))
        return Scales(self.subject, self.forget, batches, self.orders.policy.measure)

    @cached_property
    def trained(self) -> int:
        """Interactions that go and that the model was trained on."""
        return int(self.subject.n_samples()[self.forget].sum()) + len(self.parts)

    def values(self, method: str) -> dict[str, Any]:
        """Settings of a method by the policy."""
        return dict(self.orders.policy.methods.get(method, {}))


def make_plan(work: Work, scores: Mapping[str, UserScore]) -> Plan:
    """What would be done; nothing is changed.

    Raises:
        UsageError: everybody would be deleted, or a method cannot forget these users.
    """
    partial = any(r.scope != "user" for r in work.requests)
    methods, reason = choose(
        work.users,
        scores,
        work.orders.policy,
        partial=partial,
        trained=work.trained,
        population=len(work.data.users),
        bound=bool(len(work.scales.whole)) and work.scales.has_bound,
        named=work.orders.method,
    )
    cost: str
    seconds: float | None
    cost, seconds = "", 0.0
    retraining = work.subject.epochs * epoch_seconds(work.subject, steps=1)
    if methods[0] == "retrain":
        cost, seconds = "A training from the beginning without what is erased.", retraining
    elif methods[0] != NOTHING:
        told = make(methods[0], work.values(methods[0])).cost(work.subject, work.forget)
        cost, seconds = told.sentence, told.seconds
    return Plan(
        methods,
        reason,
        users=len(work.users),
        interactions=len(work.data) - len(work.after),
        trained=work.trained,
        cold_items=len(work.data.items) - len(work.after.items),
        hard=sum(is_hard(s, work.orders.policy.plan) for s in scores.values()),
        residual=mean_residual(scores),
        cost=cost,
        seconds=seconds,
        retrain_seconds=retraining,
    )


def unlearn(work: Work, method: str, folder: Path) -> tuple[nn.Module, dict[str, Any]]:
    """Model of one attempt, in the numbering of the model before, and plain facts about it."""
    seed, began = work.settings.seed, time.perf_counter()
    facts: dict[str, Any] = {"method": method, "settings": {}, "seed": seed}
    if method == NOTHING:
        return copy.deepcopy(work.subject.model), {**facts, "seconds": 0.0, "steps": 0}
    if method == "retrain":
        fresh = after_deletion(work.subject, work.subject.model, work.after, phases=())
        model = fresh.retrain(NOBODY, seed=seed, progress=work.orders.listener.bars)
        if len(work.forget):
            model = work.subject.population_rows(model, work.forget)
        return model, {**facts, "seconds": time.perf_counter() - began, "steps": 0}
    unlearner = make(method, work.values(method))
    if not unlearner.plain:
        raise UsageError(
            f"{method} forgets from several models at once, which one checkpoint cannot hold. Name another."
        )
    found: Unlearned = unlearner.unlearn(
        work.subject, work.forget, seed=seed, folder=folder / f"{method}.work", progress=work.orders.progress
    )
    told = {
        k: v for k, v in found.facts().items() if k in ("seconds", "steps", "reached", "diverged", "shards")
    }
    return found.model, {**facts, "settings": dict(found.settings), **told}


def judge(work: Work, model: nn.Module, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Measure an attempt; adds figures, how they were verified, and the limits that it does not keep to."""
    orders, exact = work.orders, facts["method"] in (*EXACT, NOTHING)
    figures = work.scales.figures(model)
    if orders.verify == "retrain" and len(work.scales.whole):
        figures |= _against_retraining(work, model, absent=exact)
    wrong = violations(figures, orders.policy.limits, exact=exact)
    if facts.get("diverged"):
        wrong.append("the loss stopped being a number")
    return {**facts, "verified": orders.verify, "exact": exact, "figures": figures, "violations": wrong}


def _against_retraining(work: Work, model: nn.Module, *, absent: bool) -> dict[str, float]:
    """Figures of an evaluation against retrained models; their share left takes the place of the bound's."""
    from recunlearn.studies.evaluation import Yardstick

    subject, count = work.subject, work.orders.policy.measure.retrained
    if "yardstick" not in work.__dict__:
        retrained = [subject.retrain(work.scales.whole, seed=1 + n) for n in range(count)]
        work.__dict__["yardstick"] = Yardstick.of(subject, subject.model, retrained, work.scales.whole)
    found = work.__dict__["yardstick"].evaluate(model, absent=absent)
    figures = {f"retrained/{k}": float(v) for k, v in found.figures.items()}
    if np.isfinite(found.figures.get("set_share_left", np.nan)):
        figures["share_left"] = float(found.figures["set_share_left"])
    return figures


def stage_model(work: Work, model: nn.Module, folder: Path) -> None:
    """Keep an attempt, on the data before."""
    subject = work.subject
    kept = RecBoleSubject(
        subject.bundle, model, epochs=subject.epochs, metrics={}, popularity_metrics={}, weights_hash=""
    )
    save_subject(kept, folder)


def staged_model(work: Work, folder: Path) -> nn.Module | None:
    """Attempt that was kept; None where there is none that can be read."""
    try:
        return load_subject(folder, work.data, device=work.settings.device).model
    except RecunlearnError:
        return None


def save_model(work: Work, model: nn.Module, job: Job, told: Mapping[str, Any]) -> dict[str, str]:
    """Write the accepted model as a checkpoint of the data after the deletion; returns what identifies it."""
    made = after_deletion(work.subject, model, work.after, phases=())
    # Ranking for everybody takes longer than the rest of a small job: the sample's figures stand for it.
    names = {k.removesuffix(OF_OTHERS): v for k, v in told["figures"].items() if k.endswith(OF_OTHERS)}
    made.metrics = {"valid": {}, "test": {k: v for k, v in names.items() if k != "loss"}}
    name = f"{job.dataset}-{work.subject.bundle.facts['model']}-{job.name}"
    folder = paths.placed(job.facts["out"]) / MODELS / name
    facts = {k: told[k] for k in ("method", "settings", "seed", "seconds", "figures")}
    save_subject(made, folder, history={"unlearning": {**facts, "job": job.name}})
    return model_facts(folder.absolute())


def check_base(job: Job, standing: Standing) -> None:
    """Refuse to go on where the model was replaced under our feet.

    Raises:
        CheckpointError: the weights are not those that the job began with.
    """
    found = model_facts(standing.keys.model)
    if found["weights_hash"] != job.facts["before"]["weights_hash"]:
        raise CheckpointError(
            f"{standing.keys.model} is not the model that {job.name} began with: it was replaced. Nothing "
            "was changed; put it back, or retry the requests."
        )
