"""Unlearning methods: one file each in ``methods``, one contract, one loop for those that take gradient steps."""

from recunlearn.unlearning.contract import Cost, History, Unlearned, Unlearner
from recunlearn.unlearning.registry import find, known, make

__all__ = ["Cost", "History", "Unlearned", "Unlearner", "find", "known", "make"]
