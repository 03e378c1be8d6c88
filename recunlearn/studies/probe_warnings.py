"""What is doubtful about a probe, in sentences."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recunlearn.foundation.settings import AnchorSettings
from recunlearn.studies.unlearn import Budget

Array = NDArray[np.floating[Any]]
Say = Callable[[str], None]


def warn_weak(say: Say, before: Array, retrained: Array, noise: float, who: str) -> None:
    """Say so where retraining adds no loss, or mostly less than its own noise; ``who``: users, rows."""
    gap = retrained.mean(0) - before
    if gap.mean() <= 0:
        say(
            f"Warning: models retrained without the probed {who} know them no worse (mean loss "
            f"{retrained.mean():.3f}) than the model itself ({before.mean():.3f}), so there is nothing to "
            "unlearn and the scores mean little."
        )
    elif (share := float((gap < 2 * noise).mean())) > 0.5:
        say(
            f"Warning: for {share:.0%} of the probed {who} the loss that retraining adds is below twice its "
            f"own noise ({noise:.3f}), so the scores rest on a weak signal."
        )


def warn_unreached(say: Say, budgets: dict[str, list[Budget]], settings: AnchorSettings) -> None:
    """Name methods that did not get to the retrained model's loss."""
    missed = [name for name, runs in budgets.items() if not all(run.reached for run in runs)]
    if missed:
        say(
            f"Warning: {', '.join(missed)} did not bring the pool's loss to the retrained model's within "
            f"{settings.most_steps} steps. Raise [anchors] most_steps, or leave the method out."
        )
