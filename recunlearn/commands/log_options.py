"""Options that say how an interaction log is read, for ``data add`` and ``data check``."""

import inspect
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from recunlearn.data.importing import ImportSettings

Duplicates = StrEnum("Duplicates", ["first", "last", "all", "error"])


def _options(
    user_col: Annotated[
        str | None, typer.Option(metavar="NAME", help="User column; usual names are recognised.")
    ] = None,
    item_col: Annotated[
        str | None, typer.Option(metavar="NAME", help="Item column; usual names are recognised.")
    ] = None,
    rating_col: Annotated[
        str | None, typer.Option(metavar="NAME", help="Rating column; 'none' leaves it out.")
    ] = None,
    time_col: Annotated[
        str | None, typer.Option(metavar="NAME", help="Time column (numbers or ISO dates); or 'none'.")
    ] = None,
    split_col: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column with your own train, valid, test.")
    ] = None,
    valid_file: Annotated[
        Path | None, typer.Option(help="Your own validation rows; the log itself is for training.")
    ] = None,
    test_file: Annotated[Path | None, typer.Option(help="Your own test rows.")] = None,
    min_rating: Annotated[
        float | None, typer.Option(help="Drop ratings below; default: every rating is a positive.")
    ] = None,
    sep: Annotated[
        str | None, typer.Option(help="Separator: tab, comma, semicolon, pipe, space, or itself.")
    ] = None,
    scale: Annotated[
        str | None, typer.Option("--rating-scale", metavar="LO,HI", help="Refuse ratings outside.")
    ] = None,
    duplicates: Annotated[
        Duplicates, typer.Option(help="Repeated user-item pairs: which row is kept, in file order.")
    ] = Duplicates.first,
    header: Annotated[
        bool, typer.Option("--header/--no-header", help="Without header, columns are 1, 2, ...")
    ] = True,
) -> None:
    """Only its signature is used."""


LOG_OPTIONS = inspect.signature(_options).parameters


def settings_of(*, scale: str | None, **options: Any) -> "ImportSettings":
    """Settings of an import from the values of :data:`LOG_OPTIONS`."""
    from recunlearn.data.importing import ImportSettings
    from recunlearn.foundation.settings import make_settings

    options["duplicates"] = str(options["duplicates"])
    for key in ("valid_file", "test_file"):
        options[key] = None if options[key] is None else str(options[key])
    return make_settings(ImportSettings, {**options, "rating_scale": _scale(scale)}, "the options")


def _scale(text: str | None) -> tuple[float, float] | None:
    from recunlearn.foundation.errors import UsageError

    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        low, high = 1.0, 0.0
    if not low < high:
        raise UsageError(
            f"--rating-scale takes the lowest and the highest rating, such as 1,5, but got {text!r}."
        )
    return low, high
