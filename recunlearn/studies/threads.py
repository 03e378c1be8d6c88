"""Threads of torch for a stretch of work: with one, sums are made in one order and figures repeat."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(number: int = 1) -> Iterator[None]:
    """Run with ``number`` threads; torch gets its own number back."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
