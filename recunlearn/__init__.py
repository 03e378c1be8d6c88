"""Unlearning in recommender systems: who is hard to forget, before you unlearn."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["score_users"]

if TYPE_CHECKING:
    from recunlearn.studies.scoring import score_users


def __getattr__(name: str) -> Any:
    """Import the Python interface on first use, so that the command line stays quick."""
    if name == "score_users":
        from recunlearn.studies.scoring import score_users

        return score_users
    raise AttributeError(f"module 'recunlearn' has no attribute '{name}'")
