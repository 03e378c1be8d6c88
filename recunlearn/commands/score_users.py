"""``score-users``: who will be hard to forget."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

Toml = Annotated[Path | None, typer.Option("--config", help="TOML file with settings; options go over it.")]

CIRCUITS = ("per_user", "steps", "path", "baseline", "granularity", "sinks")
"""Options that are settings of the circuits under the same name."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("score-users")(score_users)


def score_users(
    dataset: Annotated[
        str | None, typer.Option(help="Name that `data list` shows. (default: ml-100k)")
    ] = None,
    model: Annotated[str | None, typer.Option(help="RecBole model. (default: NeuMF)")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder of a trained model to score instead.")
    ] = None,
    users: Annotated[
        Path | None, typer.Option(help="Users to show: a CSV with a user_id column, or one id a line.")
    ] = None,
    on_missing: Annotated[
        Literal["error", "skip"], typer.Option(help="What to do about users that cannot be scored.")
    ] = "error",
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
    out: Annotated[Path | None, typer.Option(help="Folder for the tables.")] = None,
    format_: Annotated[
        Literal["table", "csv", "json"], typer.Option("--format", help="What stdout gets.")
    ] = "table",
    config: Toml = None,
) -> None:
    """Score every user of a data set: CUD from 0 (easy to unlearn) to 1 (hard)."""
    from recunlearn.commands.requested import read_users
    from recunlearn.report.terminal import listening
    from recunlearn.studies.scoring import check_folder, default_folder, export, is_stored, scored_users

    settings = run_settings(
        config,
        checkpoint,
        dataset=dataset,
        model=model,
        per_user=per_user,
        steps=steps,
        edge_score=edge_score,
        path=path,
        baseline=baseline,
        granularity=granularity,
        sinks=sinks,
        anchors=anchors,
        outcome=outcome,
        similarity=similarity,
        min_rating=min_rating,
        epochs=epochs,
        set_=set_,
        seed=seed,
        device=device,
        threads=threads,
    )
    if out is not None:
        check_folder(out)
    asked = read_users(users) if users else None
    if asked is not None and not is_stored(settings, checkpoint):
        _check_known(asked, users, on_missing, settings)
    with listening() as listener:
        scores = scored_users(settings, checkpoint=checkpoint, listener=listener)
    shown = _find(scores, asked, users, on_missing, settings) if asked is not None else None
    folder = out or default_folder(scores, checkpoint)
    export(scores, folder)
    _print(scores, shown, format_, folder)


def run_settings(config: Path | None, checkpoint: Path | None, **asked: Any) -> Any:
    """Settings of a run: the options of :func:`score_users`, by their names, over those of ``config``."""
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


def _check_known(asked: list[str], file: Any, on_missing: str, settings: Any) -> None:
    """Refuse unknown users before anything is trained."""
    from recunlearn.commands.requested import unknown_sentence
    from recunlearn.data.catalogue import load_interactions
    from recunlearn.foundation.errors import UsageError

    known = load_interactions(settings.dataset).users.tolist()
    unknown = sorted(set(asked) - set(known))
    if unknown and (on_missing == "error" or len(unknown) == len(asked)):
        raise UsageError(unknown_sentence(unknown, known, file, settings.dataset))


def _find(scores: Any, asked: list[str], file: Any, on_missing: str, settings: Any) -> list[str]:
    """Asked-for users that have a row; the others are named."""
    from recunlearn.commands.requested import missing_sentence
    from recunlearn.foundation.errors import UsageError

    table = scores.table
    known = set(table["user_id"][table["cud"].notna()])
    missing = [u for u in asked if u not in known]
    if missing:
        sentence = missing_sentence(missing, table, file, settings)
        if on_missing == "error":
            raise UsageError(f"{sentence} Correct the file, or add --on-missing skip.")
        if len(missing) == len(asked):
            raise UsageError(f"{sentence} Nobody is left to show. Correct the file.")
        typer.echo(f"Warning: {sentence} Skipped.", err=True)
    return [u for u in asked if u in known]


def _print(scores: Any, shown: list[str] | None, format_: str, folder: Path) -> None:
    table = scores.table
    if shown is not None:
        chosen = table.set_index("user_id", drop=False).loc[shown]
    if format_ == "csv":
        typer.echo((table if shown is None else chosen).to_csv(index=False), nl=False)
    elif format_ == "json":
        typer.echo(
            (table if shown is None else chosen).to_json(orient="records", indent=1, force_ascii=False)
        )
    else:
        from rich.console import Console

        from recunlearn.report.score_table import draw, facts, sections

        draw(Console(), sections(table, shown), [*facts(scores.summary), ("saved in", str(folder))])
    for warning in () if scores.fresh else scores.summary["warnings"]:
        typer.echo(f"Warning: {warning}", err=True)
