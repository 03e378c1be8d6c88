"""Unlearning methods, one file each in ``methods``, with one contract and one loop of gradient steps."""

from recunlearn.unlearning.contract import Cost, History, Unlearned, Unlearner
from recunlearn.unlearning.registry import find, known, make

__all__ = ["Cost", "History", "Unlearned", "Unlearner", "find", "known", "make"]
