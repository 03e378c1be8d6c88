"""One request to delete something: a user, a rating, an item's ratings or a period."""

from dataclasses import dataclass

from recunlearn.data.tombstones import Erasure

AUTOMATIC = "auto-"
"""Beginning of references that nobody chose."""


@dataclass(frozen=True)
class Request:
    """What is to be erased: the interactions that match everything that is given.

    Args:
        reference: name of the request and of its receipt.
        user, item: external ids; one of them is given.
        since, until: times in the data set's unit, both inclusive; None: open.
        requested_at: as the file says, in ISO 8601; "" where it does not.
    """

    reference: str
    user: str | None
    item: str | None = None
    since: float | None = None
    until: float | None = None
    requested_at: str = ""

    @property
    def erasure(self) -> Erasure:
        """The interactions meant."""
        return Erasure(self.user, self.item, self.since, self.until)

    @property
    def scope(self) -> str:
        """What kind of deletion this is: "user", "interaction", "item" or "period"."""
        if self.since is not None or self.until is not None:
            return "period"
        if self.item is not None:
            return "interaction" if self.user is not None else "item"
        return "user"

    @property
    def identity(self) -> tuple[str, ...]:
        """Texts that tell what is to be erased, whatever the reference."""
        return tuple("" if v is None else f"={v}" for v in (self.user, self.item, self.since, self.until))
