"""Devices by name."""

import torch

from recunlearn.foundation.errors import UsageError


def resolve_device(name: str) -> str:
    """Return "cpu" or "cuda[:n]" for a device name.

    Raises:
        UsageError: the device is unknown or not available (never a silent CPU).
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return name
    number = name.removeprefix("cuda").removeprefix(":")
    if not name.startswith("cuda") or (number and not number.isdigit()):
        raise UsageError(f"Unknown device '{name}'. Allowed: auto, cpu, cuda, cuda:0, cuda:1, ...")
    if int(number or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"The device '{name}' is not available: torch {torch.__version__} sees "
            f"{torch.cuda.device_count()} CUDA devices. Use --device cpu, or install the CUDA build of torch."
        )
    return name
