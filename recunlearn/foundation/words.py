"""What sentences call those who are scored and forgotten; one place, so that rows are not called users."""

from dataclasses import dataclass


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
