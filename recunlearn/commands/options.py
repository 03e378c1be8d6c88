"""Options that several commands have, each written once."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

Config = Annotated[Path | None, typer.Option("--config", help="TOML file with settings; options go over it.")]
EdgeScore = Annotated[
    Literal["eap-ig", "conductance"] | None, typer.Option(help="Edge score. (default: eap-ig)")
]
Anchors = Annotated[
    Literal["probe", "bilevel"] | None, typer.Option(help="Where anchors come from. (default: probe)")
]
Outcome = Annotated[
    Literal["increase", "share-left", "level"] | None,
    typer.Option(help="What counts as forgotten when anchors are chosen. (default: increase)"),
]
Similarity = Annotated[
    Literal["cosine", "jaccard", "hamming", "paper"] | None,
    typer.Option(help="How circuits are compared; paper: the published setting. (default: cosine)"),
]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of every stage. (default: 0)")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N. (default: auto)")]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Threads of torch in training and probe. (default: 1; tracing uses every core)"),
]
Tables = Annotated[Path | None, typer.Option(help="Folder for the tables (JSON and CSV).")]
Picture = Annotated[Literal["png", "svg", "none"], typer.Option(help="Kind of picture, if any.")]
PictureFolder = Annotated[
    Path | None, typer.Option(help="Folder for the picture. (default: where the run's tables go)")
]
TableOrJson = Annotated[Literal["table", "json"], typer.Option("--format", help="What stdout gets.")]
TableOrText = Annotated[
    Literal["table", "json", "markdown"], typer.Option("--format", help="What stdout gets.")
]
Cells = Annotated[Path, typer.Option("--config", help="TOML file with the cells to run; see configs/.")]
CellsFolder = Annotated[
    Path | None, typer.Option(help="Folder of cells, tables and report. (default: results/CONFIG)")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print cells, expected time and budgets; run nothing.")
]
AnyTable = Annotated[
    Literal["table", "markdown", "csv", "json"], typer.Option("--format", help="What stdout gets.")
]


def baseline(default: str) -> Any:
    """Type of ``--baseline``."""
    start = typer.Option(help=f"Start of the path. (default: {default})")
    return Annotated[Literal["mean", "zero", "counterfactual"] | None, start]


def granularity(what: str) -> Any:
    """Type of an option that says what is apart."""
    return Annotated[Literal["module", "group", "head", "unit"] | None, typer.Option(help=what)]


def steps(default: int) -> Any:
    """Type of ``--steps``."""
    points = typer.Option(min=2, help=f"Points on the attribution path. (default: {default})")
    return Annotated[int | None, points]


def stages(asked: dict[str, Any], circuits: tuple[str, ...]) -> dict[str, Any]:
    """Settings of circuits, anchors and similarity that were given; ``circuits``: options of that name."""
    from recunlearn.commands.requested import given

    paper = asked["similarity"] == "paper"
    return {
        "circuits": given(score=asked["edge_score"], **{k: asked[k] for k in circuits}),
        "anchors": given(source=asked["anchors"], outcome=asked["outcome"]),
        "similarity": given(
            preset="paper" if paper else None, measure=None if paper else asked["similarity"]
        ),
    }


def check_alone(checkpoint: Path, **options: Any) -> None:
    """Refuse options of training, by name, beside a trained model.

    Raises:
        UsageError: one of them was given.
    """
    from recunlearn.foundation.errors import UsageError

    named = [name for name, value in options.items() if value not in (None, [])]
    if named:
        raise UsageError(
            f"{', '.join(named)} cannot go with --checkpoint: the model in {checkpoint} is trained already. "
            "Leave out one or the other."
        )
