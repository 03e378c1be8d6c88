"""The policy: which method a request gets, what is accepted, and when a retrain is due."""

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.settings import Settings, make_settings, read_toml

EXACT = ("retrain", "RecEraser")
"""Methods whose model never saw what was deleted."""


GENTLE: dict[str, dict[str, Any]] = {
    "GradAscent": {"learning_rate": 1e-4, "looked": 200},
    "GradDiff": {"learning_rate": 3e-4, "gamma": 0.125, "looked": 200},
    "NPO": {"learning_rate": 3e-4, "gamma": 0.125, "looked": 200},
    "SimNPO": {"learning_rate": 1e-3, "looked": 200},
    "UNDIAL": {"learning_rate": 3e-4, "gamma": 0.125, "looked": 200},
}
"""Requests are small: lower rates than the methods' own; more of a user's samples decide when to stop."""


class PlanSettings(Settings):
    """Which method goes first."""

    easy: str = "SimNPO"
    """Where everybody in the job is easy or medium."""
    hard: str = "retrain"
    """Where somebody is hard: one retraining serves the whole job."""
    many: str = "retrain"
    """Where the job's users are many."""
    unscored: str = "retrain"
    """Where somebody has no score."""
    hard_from: float = Field(default=0.5, ge=0, le=1)
    """``predicted_residual`` from which a user is hard."""
    hard_band: tuple[str, ...] = ("hard",)
    """Bands of CUD that are hard where there is no ``predicted_residual``."""
    many_from: float = Field(default=0.01, gt=0, le=1)
    """Share of all users from which a job's users are many."""
    escalation: tuple[str, ...] = ("retrain",)
    """What is tried next, in this order, when a result is not accepted; the last is the most certain."""


class LimitSettings(Settings):
    """What a result must keep to."""

    share_left: float = Field(default=0.25, ge=0)
    """Most of the way from the bound back to the original loss, for the set."""
    over_forgotten: float = Field(default=0.5, ge=0)
    """Furthest beyond the bound, in the same unit."""
    quality_drop: float = Field(default=0.03, ge=0)
    """Largest relative drop of the others' main test metric in one job."""
    loss_rise: float = Field(default=0.05, ge=0)
    """Largest rise of the others' mean loss, nats, in one job."""


class DriftSettings(Settings):
    """When what was computed before deletions no longer holds."""

    rescore: float = Field(default=0.3, ge=0)
    """Drift since the scores were made from which they are made anew."""
    retrain: float = Field(default=0.6, ge=0)
    """Drift since the last full training from which a retrain is advised."""
    deleted: float = Field(default=0.05, gt=0, le=1)
    """Share of the interactions deleted since the last full training from which a retrain is advised."""


class MeasureSettings(Settings):
    """How much is measured."""

    users: int = Field(default=300, ge=10)
    """Retained users whose ranking and loss are measured, a fixed sample."""
    drift_users: int = Field(default=100, ge=1)
    """Retained users whose scores of all items are compared."""
    retrained: int = Field(default=2, ge=2, le=20)
    """Retrained models that ``--verify retrain`` compares with."""


class Policy(Settings):
    """Everything that a job is decided by."""

    plan: PlanSettings = PlanSettings()
    limits: LimitSettings = LimitSettings()
    drift: DriftSettings = DriftSettings()
    measure: MeasureSettings = MeasureSettings()
    methods: dict[str, dict[str, Any]] = Field(
        default_factory=lambda: {k: dict(v) for k, v in GENTLE.items()}
    )
    """Settings of methods by name, over those of :data:`GENTLE`."""

    @field_validator("methods")
    @classmethod
    def _over_gentle(cls, methods: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        names = (*GENTLE, *methods)
        return {n: {**GENTLE.get(n, {}), **methods.get(n, {})} for n in names}


def read_policy(file: Path | None = None) -> Policy:
    """Policy of a file; None: the defaults, which configs/policy.toml writes out.

    Raises:
        UsageError: missing, no TOML, an unknown method or setting, or a value that is not allowed.
    """
    if file is not None and not Path(file).exists():
        raise UsageError(f"The policy file {file} does not exist. Check the path given to --policy.")
    policy = Policy() if file is None else make_settings(Policy, read_toml(file), str(file))
    return _checked(policy, "the policy" if file is None else str(file))


def _checked(policy: Policy, where: str) -> Policy:
    """Refuse unknown methods and settings before anything is unlearned."""
    from recunlearn.unlearning.registry import make

    plan = policy.plan
    for name in {plan.easy, plan.hard, plan.many, plan.unscored, *plan.escalation}:
        check_method(name, policy, where)
    for name, values in policy.methods.items():
        make(name, values, f"[methods.{name}] of {where}")
    return policy


def check_method(name: str, policy: Policy, where: str = "the policy") -> None:
    """Refuse an unknown method, wrong settings, and what cannot end in one checkpoint.

    Raises:
        UsageError: one of these.
    """
    from recunlearn.unlearning.registry import make

    if not make(name, policy.methods.get(name, {}), f"[methods.{name}] of {where}").plain:
        raise UsageError(
            f"{name} forgets from several models at once, which one checkpoint cannot hold. Name another."
        )
