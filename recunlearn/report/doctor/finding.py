"""One line of the doctor's report."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Args:
        area: "package", "extra", "device", "threads", "folder" or "data set".
        name: what was looked at.
        value: what was found.
        state: "ok"; "note": usable, worth knowing; "missing": required and absent or of a wrong version.
        fix: what to do, empty where nothing is needed.
    """

    area: str
    name: str
    value: str
    state: State = "ok"
    fix: str = ""


def usable(findings: Iterable[Finding]) -> bool:
    """Whether nothing required is missing."""
    return all(f.state != "missing" for f in findings)


def as_json(findings: Iterable[Finding]) -> dict[str, Any]:
    """Plain values: ``usable`` and one mapping per finding."""
    rows = list(findings)
    return {"usable": usable(rows), "findings": [asdict(f) for f in rows]}
