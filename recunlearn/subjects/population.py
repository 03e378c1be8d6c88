"""The population's vector: a model's answer to an entity that it does not know."""

from torch import Tensor


def mean_of_others(rows: Tensor, inside: Tensor) -> Tensor:
    """Mean over the rows outside; where none is left, over all but one's own: ``[d]`` or ``[n, d]``.

    Args:
        rows: ``[n, d]`` vectors of all entities.
        inside: ``[n]`` bool, the absent ones.
    """
    if not inside.all():
        return rows[~inside].mean(0)
    return (rows.sum(0) - rows) / max(len(rows) - 1, 1)
