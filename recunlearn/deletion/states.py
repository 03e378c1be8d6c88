"""States of a request, and which may follow which."""

RECEIVED, SCORED, UNLEARNED = "received", "scored", "unlearned"
VERIFIED, PURGED, CLOSED = "verified", "purged", "closed"
ESCALATED, FAILED, REFUSED = "escalated", "failed", "refused"

NEXT: dict[str, tuple[str, ...]] = {
    RECEIVED: (SCORED, REFUSED, FAILED),
    SCORED: (UNLEARNED, FAILED),
    UNLEARNED: (VERIFIED, ESCALATED, FAILED),
    ESCALATED: (UNLEARNED, FAILED),
    VERIFIED: (PURGED,),
    PURGED: (CLOSED,),
    FAILED: (RECEIVED,),
    CLOSED: (),
    REFUSED: (),
}
"""State -> states that may follow. What is verified is only ever finished: its data are gone."""

STATES = tuple(NEXT)
OVER = (CLOSED, REFUSED)
"""States of requests that hold no id in the clear."""
