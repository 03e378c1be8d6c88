"""A receipt as one page that can be printed; nothing is loaded from elsewhere."""

from collections.abc import Mapping
from typing import Any

import jinja2

from recunlearn.report.deletion_table import share_left_scale

SCOPES = {
    "user": "everything of one user",
    "interaction": "one user's rating of one item",
    "item": "all ratings of one item",
    "period": "interactions within a period",
}
LIMITS = (
    ("share_left", "share left", "share_left"),
    ("quality_drop", "relative drop of the others' test metric", "quality_drop"),
    ("loss_rise", "rise of the others' loss, nats", "loss_rise"),
)


def html(receipt: Mapping[str, Any]) -> str:
    """Whole page; every value is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("recunlearn.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("receipt.html").render(
        r=receipt, scope=SCOPES.get(receipt["scope"], receipt["scope"]), limits=limit_rows(receipt)
    )


def limit_rows(receipt: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Figure, value and limit of what the policy bounds."""
    figures, limits = receipt["figures"], receipt["limits"]
    exact = receipt["method"] in ("retrain", "RecEraser", "none")
    rows = []
    for name, words, limit in LIMITS:
        if name in figures:
            bound = "none (trained without)" if exact else f"at most {limits[limit]:g}"
            scale = f" ({share_left_scale(receipt['verified'])})" if name == "share_left" else ""
            rows.append((words, f"{figures[name]:.4f}{scale}", bound))
    return rows
