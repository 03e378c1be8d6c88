"""Unlearning methods by name: every file in ``methods`` holds one class."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from recunlearn.foundation.errors import UsageError, near_miss
from recunlearn.foundation.scanning import scan
from recunlearn.foundation.settings import make_settings
from recunlearn.unlearning import methods
from recunlearn.unlearning.contract import Unlearner


@cache
def known() -> Mapping[str, type[Any]]:
    """Name -> class of every method, in order of their names."""
    return scan(methods, lambda kind: hasattr(kind, "unlearn"))


def find(name: str) -> type[Any]:
    """Class of a method by name.

    Raises:
        UsageError: an unknown name; the sentence lists the known ones.
    """
    if name not in known():
        raise UsageError(
            f"Unknown unlearning method {name!r}.{near_miss(name, known())} Allowed: {', '.join(known())}."
        )
    return known()[name]


def make(name: str, values: Mapping[str, Any] | None = None, where: str = "the settings") -> Unlearner:
    """Method with settings; ``where`` the values were written stands in the sentence about a mistake.

    Raises:
        UsageError: an unknown method or setting, or a value that is not allowed.
    """
    kind = find(name)
    unlearner: Unlearner = kind(make_settings(kind.settings_type, dict(values or {}), f"{where} of {name}"))
    return unlearner
