"""Keep a library's own remarks away from the user of a command."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silent_lightning() -> Iterator[None]:
    """Without Lightning's tips and device lines, and the warnings of what it calls."""
    loggers = [logging.getLogger(n) for n in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning(\..*)?")
            warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.cuda\.amp(\..*)?")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
