"""Options that identify a run of ``score-users``, written once: every command about a run takes them."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recunlearn.commands import options as o

if TYPE_CHECKING:
    from recunlearn.foundation.settings import ScoreSettings

CIRCUITS = ("per_user", "steps", "path", "baseline", "granularity", "sinks")
"""Options that are settings of the circuits under the same name."""


@dataclass(frozen=True)
class Run:
    """The run that a user asked for.

    Args:
        settings: the options over those of ``--config``.
        checkpoint: folder of a trained model, if one was named.
        named: options that were given, such as ``--model``.
    """

    settings: "ScoreSettings"
    checkpoint: Path | None
    named: tuple[str, ...]


def _options(
    dataset: Annotated[
        str | None, typer.Option(help="Name that `data list` shows. (default: ml-100k)")
    ] = None,
    model: Annotated[str | None, typer.Option(help="RecBole model. (default: NeuMF)")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Folder of a trained model to use instead.")] = None,
    per_user: Annotated[
        int | None,
        typer.Option(min=1, help="Most traced interactions of a user. (default: all; sequential models: 20)"),
    ] = None,
    steps: o.steps(16) = None,  # type: ignore[valid-type]
    edge_score: o.EdgeScore = None,
    path: Annotated[
        Literal["chunked", "captum"] | None,
        typer.Option(help="Own chunked loop, or Captum as driver. (default: chunked)"),
    ] = None,
    baseline: o.baseline("mean") = None,  # type: ignore[valid-type]
    granularity: o.granularity("What is apart in a source of edges. (default: group)") = None,  # type: ignore[valid-type]
    sinks: o.granularity("What is apart in a sink; the cost is told before. (default: module)") = None,  # type: ignore[valid-type]
    anchors: o.Anchors = None,
    outcome: o.Outcome = None,
    similarity: o.Similarity = None,
    min_rating: Annotated[
        float | None, typer.Option(help="Ratings below are no positives. (default: every rating is one)")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Most training epochs.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Parameter of the recommender (repeatable)."),
    ] = None,
    seed: o.Seed = None,
    device: o.Device = None,
    threads: o.Threads = None,
    config: o.Config = None,
) -> None:
    """Only its signature is used."""


OPTIONS = inspect.signature(_options).parameters


def with_run(
    function: Callable[..., None],
    options: Sequence[str] | None = None,
    *,
    known: Mapping[str, inspect.Parameter] = OPTIONS,
    make: Callable[..., Any] | None = None,
    first: int = 3,
) -> Callable[..., None]:
    """Command that takes the run's ``options`` beside those of ``function``, which gets them as ``run``.

    Args:
        function: a command whose parameter ``run`` is what ``make`` returns.
        options: names of the options that it takes, the others have their default; None: all.
        known: all options that identify such a run.
        make: from all their values to the run; None: :func:`run_of`.
        first: how many of them help shows before the command's own options.
    """
    make, options = make or run_of, tuple(known) if options is None else options
    own = [p for name, p in inspect.signature(function).parameters.items() if name != "run"]
    theirs = [known[name] for name in options]
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (*theirs[:first], *own, *theirs[first:])]

    def command(**given: Any) -> None:
        asked = {name: given.pop(name) if name in options else None for name in known}
        function(**given, run=make(**asked))

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__doc__ = function.__doc__
    return command


def run_of(**asked: Any) -> Run:
    """Settings of a run from the values of :data:`OPTIONS`."""
    named = tuple(
        f"--{name.strip('_').replace('_', '-')}" for name, value in asked.items() if value is not None
    )
    checkpoint = asked["checkpoint"]
    return Run(_settings(asked["config"], checkpoint, asked), checkpoint, named)


def _settings(config: Path | None, checkpoint: Path | None, asked: dict[str, Any]) -> "ScoreSettings":
    from recunlearn.commands.requested import given, merged, parameters
    from recunlearn.foundation.settings import ScoreSettings, make_settings, read_toml
    from recunlearn.studies.keys import read_checkpoint

    options: dict[str, Any] = given(
        **{k: asked[k] for k in ("dataset", "model", "seed", "min_rating", "device", "threads")},
        **o.stages(asked, CIRCUITS),
        training=given(epochs=asked["epochs"], params=parameters(asked["set_"] or [])),
    )
    if checkpoint is not None:
        options.setdefault("dataset", read_checkpoint(checkpoint)["data"])
        making = {"--model": "model", "--epochs": "epochs", "--set": "set_", "--min-rating": "min_rating"}
        o.check_alone(checkpoint, **{option: asked[name] for option, name in making.items()})
    values = merged(read_toml(config) if config else {}, options)
    return make_settings(ScoreSettings, values, f"{config} and the options" if config else "the options")
