"""Tell from autograd's graph whether a segment is an affine function of its leaves."""

from torch import Tensor

_FACTORS = {
    "Addmm": 1,
    "Addmv": 1,
    "Addbmm": 1,
    "Baddbmm": 1,
    "Bmm": 0,
    "Mm": 0,
    "Mul": 0,
    "Mv": 0,
}
"""Linear in one factor while the others are fixed -> position of the first factor."""
_LINEAR = frozenset(
    {
        *(
            "Add",
            "Sub",
            "Neg",
            "Sum",
            "Mean",
            "Cat",
            "Stack",
            "Clone",
            "Copy",
            "ToCopy",
            "Alias",
            "AsStrided",
        ),
        *("Expand", "Gather", "Index", "Select", "Slice", "Split", "Squeeze", "Unsqueeze"),
        *("Permute", "T", "Transpose", "View", "UnsafeView", "ReshapeAlias"),
    }
)


def is_affine(tensor: Tensor) -> bool:
    """Whether every operation between the leaves and ``tensor`` is known to be linear, up to constants."""
    seen, stack = set(), [tensor.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        inputs = [n for n, _ in node.next_functions]
        moving = [i for i, n in enumerate(inputs) if n is not None]
        if not _keeps_lines(node.name().partition("Backward")[0], moving):
            return False
        stack += inputs
    return True


def _keeps_lines(operation: str, moving: list[int]) -> bool:
    """Whether an operation is linear in the inputs that depend on the leaves (``moving``)."""
    if operation == "Div":
        return moving == [0]  # the divisor is fixed
    if operation in _FACTORS:
        return sum(i >= _FACTORS[operation] for i in moving) <= 1
    return operation in _LINEAR or operation.endswith("AccumulateGrad")
