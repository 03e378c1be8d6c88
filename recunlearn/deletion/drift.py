"""How far deletions have led from the last full training, and when to train again."""

from collections.abc import Mapping

from recunlearn.deletion import states
from recunlearn.deletion.ledger import Ledger
from recunlearn.deletion.policy import EXACT, DriftSettings

NONE: Mapping[str, float] = {"since_training": 0.0, "since_scores": 0.0, "deleted": 0.0}


def drift_before(ledger: Ledger, dataset: str, weights_hash: str) -> dict[str, float]:
    """Drift that a model has gathered over earlier jobs; none where no job made it."""
    for job in reversed(ledger.jobs(dataset)):
        if job.state == states.CLOSED and job.facts["after"]["weights_hash"] == weights_hash:
            return dict(job.facts["drift"])
    return dict(NONE)


def drift_after(
    before: Mapping[str, float], method: str, scores: str, step: float, deleted: float
) -> dict[str, float]:
    """Drift of a new model.

    Distances add up: the sum is an upper bound of the distance from the first model (triangle inequality),
    for which that model, which knows the deleted, need not be kept.

    Args:
        before: of the model before.
        method: that was accepted; a training without the deleted begins anew.
        scores: where the job's scores came from; those of "stored" and "computed" are of the model before.
        step: distance of the new model from the one before.
        deleted: share of the interactions that this job deletes.

    >>> drift_after({"since_training": 0.5, "since_scores": 0.25, "deleted": 0.0}, "NPO", "reused", 0.25, 0.5)
    {'since_training': 0.75, 'since_scores': 0.5, 'deleted': 0.5}
    """
    anew = method in EXACT
    fresh = scores in ("stored", "computed")
    return {
        "since_training": 0.0 if anew else before["since_training"] + step,
        "since_scores": step + (0.0 if fresh else before["since_scores"]),
        "deleted": 0.0 if anew else before["deleted"] + deleted,
    }


def advice(drift: Mapping[str, float], limits: DriftSettings) -> str:
    """Sentence that advises a retrain; "" while all limits are kept."""
    far, gone = drift["since_training"] > limits.retrain, drift["deleted"] > limits.deleted
    if not far and not gone:
        return ""
    why = f"drift {drift['since_training']:.3f} above {limits.retrain:g}" if far else ""
    more = f"{drift['deleted']:.1%} of the interactions deleted, above {limits.deleted:.1%}" if gone else ""
    return f"A retrain is advised: {' and '.join(filter(None, (why, more)))} since the last full training."
