"""What will be done about a job, what it will cost and how likely it is to fail; nothing is changed yet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recunlearn.deletion.policy import EXACT, PlanSettings, Policy
from recunlearn.deletion.standing import UserScore

NOTHING = "none"
"""Method of a job whose interactions the model was never trained on."""


@dataclass(frozen=True)
class Plan:
    """Order of methods for one job, and why.

    Args:
        methods: names, tried in this order until one is accepted.
        reason: why the first goes first, in words.
        users, interactions: how much goes.
        trained: interactions of these that the model was trained on.
        cold_items: items that nobody has afterwards.
        hard: users that are hard.
        residual: mean ``predicted_residual`` of the users who have one; None: unknown.
        cost: sentence on the first method's cost.
        seconds: of the first method; None: unknown.
        retrain_seconds: of a retraining; None: unknown.
    """

    methods: tuple[str, ...]
    reason: str
    users: int
    interactions: int
    trained: int
    cold_items: int
    hard: int
    residual: float | None
    cost: str
    seconds: float | None
    retrain_seconds: float | None

    def plain(self) -> dict[str, Any]:
        """Plain values, no ids."""
        return {**vars(self), "methods": list(self.methods)}

    @property
    def risk(self) -> str:
        """One sentence on how likely the first method is to fail."""
        first = self.methods[0]
        if first == NOTHING or first in EXACT:
            return "None: what remains was never trained on what is erased."
        then = f"; then {', '.join(self.methods[1:])}" if self.methods[1:] else "; then the job fails"
        if self.residual is None:
            return f"Unknown (no predicted residual). A result outside the limits is refused{then}."
        left = max(self.residual, 0.0)  # below 0: over-forgotten
        return (
            f"{first} is expected to leave {left:.0%} of what the model knows; a result outside the "
            f"limits is refused{then}."
        )


def is_hard(score: UserScore, settings: PlanSettings) -> bool:
    """Tell whether a user is hard: by ``predicted_residual``, or by the band of CUD without one."""
    if score.residual is not None:
        return score.residual >= settings.hard_from
    return score.band in settings.hard_band


def choose(
    users: Sequence[str],
    scores: Mapping[str, UserScore],
    policy: Policy,
    *,
    partial: bool,
    trained: int,
    population: int,
    bound: bool,
    named: str | None,
) -> tuple[tuple[str, ...], str]:
    """Methods in the order in which they are tried, and why.

    Args:
        users: of whom everything goes.
        scores: of those who have one.
        policy: rule and thresholds.
        partial: single interactions go too.
        trained: interactions that go and that the model was trained on.
        population: number of all users.
        bound: whether a bound tells when users are forgotten.
        named: method of the command line; it goes first.
    """
    plan = policy.plan
    if not trained:
        return (NOTHING,), "the model was not trained on anything that goes"
    if partial:
        return ("retrain",), "single interactions have no row of their own, so only retraining erases them"
    if named is not None and (bound or named in EXACT):
        return _then(named, plan, bound), "named on the command line"
    if not bound:
        why = (
            "the model knows them no better than strangers, so nothing but retraining tells what is forgotten"
        )
        return ("retrain",), why
    first, reason = _by_difficulty(users, scores, plan, population)
    return _then(first, plan, bound), reason


def _by_difficulty(
    users: Sequence[str], scores: Mapping[str, UserScore], plan: PlanSettings, population: int
) -> tuple[str, str]:
    hard = sum(is_hard(s, plan) for s in scores.values())
    if len(users) > 1 and len(users) >= plan.many_from * population:
        return plan.many, f"{len(users)} of {population} users are many"
    if hard:
        return plan.hard, f"{hard} of {len(users)} users are hard"
    if len(scores) < len(users):
        return plan.unscored, f"{len(users) - len(scores)} of {len(users)} users have no score"
    return plan.easy, "nobody is hard"


def _then(first: str, plan: PlanSettings, bound: bool) -> tuple[str, ...]:
    rest = (
        plan.escalation if first not in plan.escalation else plan.escalation[plan.escalation.index(first) :]
    )
    return tuple(n for n in dict.fromkeys((first, *rest)) if bound or n == first or n in EXACT)


def mean_residual(scores: Mapping[str, UserScore]) -> float | None:
    """Mean ``predicted_residual``; None where nobody has one."""
    known = [s.residual for s in scores.values() if s.residual is not None]
    return float(np.mean(known)) if known else None
