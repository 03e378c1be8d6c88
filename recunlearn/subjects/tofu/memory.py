"""Too little memory, said in one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

from recunlearn.foundation.errors import RecunlearnError, is_memory_error
from recunlearn.subjects.tofu.settings import LanguageSettings


@contextmanager
def enough_memory(settings: LanguageSettings) -> Iterator[None]:
    """Turn an allocation that failed into one sentence that names the settings to lower.

    Raises:
        RecunlearnError: the memory of the machine or of the GPU was not enough.
    """
    try:
        yield
    except Exception as error:
        if not is_memory_error(error):
            raise
        raise RecunlearnError(
            "The memory is not enough. Lower --batch-size (rows trained on at once, now "
            f"{settings.training.batch_size}), anchors.batch_size (rows unlearned at once, now "
            f"{settings.anchors.batch_size}), --internal-batch (rows traced at once, now "
            f"{settings.circuits.internal_batch or 'what fits'}) or --max-length, or train adapters (--lora "
            "8)."
        ) from None
