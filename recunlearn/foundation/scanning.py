"""Kinds found by scanning a folder: one file each, nothing to register."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any


def scan(folder: ModuleType, belongs: Callable[[type[Any]], bool]) -> dict[str, type[Any]]:
    """``name`` -> class of every class defined in a file of ``folder`` that ``belongs``, by name.

    Args:
        folder: a package; its subpackages are not looked into.
        belongs: tells the classes that are meant from helpers beside them.
    """
    found: dict[str, type[Any]] = {}
    for file in pkgutil.iter_modules(folder.__path__):
        module = importlib.import_module(f"{folder.__name__}.{file.name}")
        kinds: list[type[Any]] = [kind for _, kind in inspect.getmembers(module, inspect.isclass)]
        found |= {k.name: k for k in kinds if k.__module__ == module.__name__ and belongs(k)}
    return dict(sorted(found.items(), key=lambda pair: pair[0].casefold()))
