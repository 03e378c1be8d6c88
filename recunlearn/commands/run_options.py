"""Options that identify a run of ``score-users``, written once: every command about a run takes them."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

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
    steps: Annotated[
        int | None, typer.Option(min=2, help="Points on the attribution path. (default: 16)")
    ] = None,
    edge_score: Annotated[
        Literal["eap-ig", "conductance"] | None, typer.Option(help="Edge score. (default: eap-ig)")
    ] = None,
    path: Annotated[
        Literal["chunked", "captum"] | None,
        typer.Option(help="Own chunked loop, or Captum as driver. (default: chunked)"),
    ] = None,
    baseline: Annotated[
        Literal["mean", "zero", "counterfactual"] | None,
        typer.Option(help="Start of the path. (default: mean)"),
    ] = None,
    granularity: Annotated[
        Literal["module", "group", "head", "unit"] | None,
        typer.Option(help="What is apart in a source of edges. (default: group)"),
    ] = None,
    sinks: Annotated[
        Literal["module", "group", "head", "unit"] | None,
        typer.Option(help="What is apart in a sink; the cost is told before. (default: module)"),
    ] = None,
    anchors: Annotated[
        Literal["probe", "bilevel"] | None, typer.Option(help="Where anchors come from. (default: probe)")
    ] = None,
    outcome: Annotated[
        Literal["increase", "share-left", "level"] | None,
        typer.Option(help="What counts as forgotten when anchors are chosen. (default: increase)"),
    ] = None,
    similarity: Annotated[
        Literal["cosine", "jaccard", "hamming", "paper"] | None,
        typer.Option(help="How circuits are compared; paper: the published setting. (default: cosine)"),
    ] = None,
    min_rating: Annotated[
        float | None, typer.Option(help="Ratings below are no positives. (default: every rating is one)")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Most training epochs.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Parameter of the recommender (repeatable)."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of every stage. (default: 0)")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N. (default: auto)")] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Threads of torch in training and probe. (default: 1; tracing uses every core)"
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="TOML file with settings; options go over it.")
    ] = None,
) -> None:
    """Only its signature is used."""


OPTIONS = inspect.signature(_options).parameters


def with_run(
    function: Callable[..., None],
    options: Sequence[str] | None = None,
    *,
    known: Mapping[str, inspect.Parameter] = OPTIONS,
    make: Callable[..., Any] | None = None,
) -> Callable[..., None]:
    """Command that takes the run's ``options`` beside those of ``function``, which gets them as ``run``.

    Args:
        function: a command whose parameter ``run`` is what ``make`` returns.
        options: names of the options that it takes, the others have their default; None: all.
        known: all options that identify such a run.
        make: from all their values to the run; None: :func:`run_of`.
    """
    make, options = make or run_of, tuple(known) if options is None else options
    own = [p for name, p in inspect.signature(function).parameters.items() if name != "run"]
    theirs = [known[name] for name in options]
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (*theirs[:3], *own, *theirs[3:])]

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

    paper = asked["similarity"] == "paper"
    options: dict[str, Any] = given(
        **{k: asked[k] for k in ("dataset", "model", "seed", "min_rating", "device", "threads")},
        circuits=given(score=asked["edge_score"], **{k: asked[k] for k in CIRCUITS}),
        anchors=given(source=asked["anchors"], outcome=asked["outcome"]),
        similarity=given(preset="paper" if paper else None, measure=None if paper else asked["similarity"]),
        training=given(epochs=asked["epochs"], params=parameters(asked["set_"] or [])),
    )
    if checkpoint is not None:
        options.setdefault("dataset", read_checkpoint(checkpoint)["data"])
        making = {"--model": "model", "--epochs": "epochs", "--set": "set_", "--min-rating": "min_rating"}
        _check_alone(checkpoint, **{option: asked[name] for option, name in making.items()})
    values = merged(read_toml(config) if config else {}, options)
    return make_settings(ScoreSettings, values, f"{config} and the options" if config else "the options")


def _check_alone(checkpoint: Path, **options: Any) -> None:
    from recunlearn.foundation.errors import UsageError

    named = [name for name, value in options.items() if value not in (None, [])]
    if named:
        raise UsageError(
            f"{', '.join(named)} cannot go with --checkpoint: the model in {checkpoint} is trained already. "
            "Leave out one or the other."
        )
