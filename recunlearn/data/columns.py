"""Which column of a file is the user, the item, the rating and the time."""

from collections.abc import Sequence
from dataclasses import dataclass

from recunlearn.foundation.errors import DataError, UsageError, near_miss

KNOWN = {
    "user": ("userid", "user", "uid", "users", "reviewerid", "customerid", "visitorid", "useridx", "u"),
    "item": (
        *("itemid", "item", "iid", "movieid", "movie", "productid", "product", "asin", "isbn", "bookid"),
        *("songid", "trackid", "artistid", "businessid", "contentid", "items", "i"),
    ),
    "rating": ("rating", "ratings", "score", "stars", "overall"),
    "time": ("timestamp", "time", "unixreviewtime", "datetime", "date", "ts", "createdat"),
}
NONE = "none"


@dataclass(frozen=True)
class Columns:
    """Names of the columns in use; None where there is none."""

    user: str
    item: str
    rating: str | None = None
    time: str | None = None
    split: str | None = None


def pick_columns(
    header: Sequence[str],
    where: str,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    split: str | None = None,
) -> Columns:
    """Take the named columns, and recognise usual names for those that are not named.

    Args:
        header: column names of the file.
        where: the file, for errors.
        user, item, rating, time, split: names given by the user; "none" leaves rating or time out.

    Raises:
        UsageError: a named column is not in the header, or two roles name the same column.
        DataError: no column looks like a user or an item, or several do equally.
    """
    named = {"user": user, "item": item, "rating": rating, "time": time, "split": split}
    chosen: dict[str, str | None] = {}
    for role, name in named.items():
        if name is not None:
            chosen[role] = _named(role, name, header, where)
    for role in KNOWN:
        if role not in chosen:
            chosen[role] = _recognised(role, [h for h in header if h not in chosen.values()], header, where)
    _check_distinct(chosen, where)
    return Columns(
        str(chosen["user"]), str(chosen["item"]), chosen["rating"], chosen["time"], chosen.get("split")
    )


def _named(role: str, name: str, header: Sequence[str], where: str) -> str | None:
    if name in header:
        return name
    if name.casefold() == NONE and role in ("rating", "time"):
        return None
    raise UsageError(
        f"--{role}-col {name!r} is not a column of {where}.{near_miss(name, header)} "
        f"Its columns are: {', '.join(header)}."
    )


def _recognised(role: str, free: Sequence[str], header: Sequence[str], where: str) -> str | None:
    plain = {h: "".join(c for c in h.casefold() if c.isalnum()) for h in free}
    for known in KNOWN[role]:
        found = [h for h in free if plain[h] == known]
        if len(found) > 1:
            raise DataError(
                f"{where} has several {role} columns ({', '.join(found)}). Choose with --{role}-col."
            )
        if found:
            return found[0]
    if role in ("rating", "time"):
        return None
    guess = next((h for h in free if near_miss(plain[h], KNOWN[role][:6])), None)
    hint = f" Did you mean --{role}-col {guess}?" if guess else ""
    raise DataError(
        f"No column of {where} is recognised as the {role}.{hint} "
        f"Its columns are: {', '.join(header)}. Name one with --{role}-col."
    )


def _check_distinct(chosen: dict[str, str | None], where: str) -> None:
    seen: dict[str, str] = {}
    for role, name in chosen.items():
        if name is not None and name in seen:
            raise UsageError(
                f"--{seen[name]}-col and --{role}-col both name the column {name!r} of {where}. "
                "Each needs a column of its own."
            )
        if name is not None:
            seen[name] = role
