"""In which numbers training and unlearning compute their losses."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from recunlearn.foundation.errors import UsageError
from recunlearn.subjects.tofu.settings import LanguageTrainingSettings


@contextmanager
def training_arithmetic(model: Any, settings: LanguageTrainingSettings) -> Iterator[None]:
    """Products are in bf16 where the settings and the device say so; weights stay float32.

    On a processor attention is written out meanwhile: its fused kernel takes twice as long backwards in bf16.

    Args:
        model: of transformers, perhaps with adapters.

    Raises:
        UsageError: bf16 was asked for and the device has none.
    """
    device = next(model.parameters()).device
    if not _computes_in_bf16(device, settings):
        yield
        return
    with torch.autocast(device.type, torch.bfloat16), _written_out(model, device):
        yield


def _computes_in_bf16(device: torch.device, settings: LanguageTrainingSettings) -> bool:
    """Whether training on ``device`` multiplies in bf16.

    Raises:
        UsageError: bf16 was asked for and the device has none.
    """
    on_gpu = device.type == "cuda" and torch.cuda.is_bf16_supported()
    if settings.precision == "bf16" and not (on_gpu or _processor_has_bf16(device)):
        raise UsageError(f"The device {device} does not compute in bf16. Set training.precision = 'float32'.")
    return settings.precision == "bf16" or (on_gpu and settings.precision == "auto")


def _processor_has_bf16(device: torch.device) -> bool:
    """Whether a processor multiplies in bf16 by itself; elsewhere it is slower than float32."""
    has: Any = getattr(torch.cpu, "get_capabilities", dict)()
    return device.type == "cpu" and bool(has.get("amx_bf16") or has.get("avx512_bf16"))


@contextmanager
def _written_out(model: Any, device: torch.device) -> Iterator[None]:
    usual = model.config._attn_implementation
    if device.type != "cpu" or usual != "sdpa":
        yield
        return
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(usual)


__all__ = ["training_arithmetic"]
