"""What sentences call those who are scored and forgotten; one place, so that rows are not called users."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Words:
    """What sentences call an entity, several of them, and their samples."""

    entity: str = "user"
    entities: str = "users"
    samples: str = "interactions"
    amount: str = "interactions"
    """What forget sets are matched by."""
    trivial: str = "activity and popularity"
    """Scores of an entity that need no model."""


USERS = Words()


def words_in(summary: Mapping[str, Any]) -> Mapping[str, str]:
    """Words by name of a run that a summary tells of; those of users where it does not say."""
    found: Mapping[str, str] = summary.get("words", asdict(USERS))
    return found
