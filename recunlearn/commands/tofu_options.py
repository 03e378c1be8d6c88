"""Options that identify a run on a language model, written once: every command of ``tofu`` takes them."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recunlearn.commands import options as o

if TYPE_CHECKING:
    from recunlearn.studies.keys import Keys
    from recunlearn.subjects.tofu.settings import LanguageSettings

CIRCUITS = ("steps", "baseline", "granularity", "attention", "internal_batch")
"""Options that are settings of the circuits under the same name."""
TRAINING = ("epochs", "learning_rate", "lora", "batch_size", "accumulate")
"""Options that are settings of the training under the same name."""


@dataclass(frozen=True)
class TextRun:
    """The run that a user asked for.

    Args:
        settings: the options over those of ``--config``.
        data: folder of the rows' files.
        checkpoint: folder of a trained model, if one was named.
        online: whether missing data and models may be fetched.
    """

    settings: "LanguageSettings"
    data: Path
    checkpoint: Path | None
    online: bool

    def keys(self, into: Path | None = None) -> "Keys":
        """Folders of its stages, with ``into`` as the model's; reads the rows."""
        from recunlearn.studies.language_keys import language_keys

        options: dict[str, Any] = {"checkpoint": self.checkpoint, "into": into, "online": self.online}
        return language_keys(self.settings, self.data, **options)


def _options(
    config: o.Config = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the rows' files. (default: RECUNLEARN_HOME/data/tofu)")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model to fine-tune: folder, GGUF file or name on the hub.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder of a model that tofu train made, to use instead.")
    ] = None,
    files: Annotated[
        str | None, typer.Option(help="Comma-separated files of rows, such as forget10,retain90[:400].")
    ] = None,
    entity: Annotated[
        Literal["row", "author"] | None, typer.Option(help="Whom scores are given to. (default: row)")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the rows. (default: 5)")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="AdamW's. (default: 1e-5)")] = None,
    lora: Annotated[
        int | None, typer.Option(min=1, help="Rank of adapters. (default: none, all weights train)")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Rows trained on at once; lowers memory. (default: 8)")
    ] = None,
    accumulate: Annotated[int | None, typer.Option(min=1, help="Batches of one step. (default: 4)")] = None,
    max_length: Annotated[
        int | None, typer.Option(min=4, help="Most tokens of a row. (default: the model's context)")
    ] = None,
    too_long: Annotated[
        Literal["refuse", "truncate"] | None, typer.Option(help="What to do with longer rows.")
    ] = None,
    steps: o.steps(5) = None,  # type: ignore[valid-type]
    edge_score: o.EdgeScore = None,
    baseline: o.baseline("counterfactual") = None,  # type: ignore[valid-type]
    granularity: o.granularity("What is apart in a source of edges. (default: head)") = None,  # type: ignore[valid-type]
    attention: Annotated[
        Literal["whole", "apart"] | None,
        typer.Option(help="An attention's input: one sink, or query, key and value. (default: whole)"),
    ] = None,
    internal_batch: Annotated[
        int | None, typer.Option(min=1, help="Rows traced at once; lowers memory. (default: what fits)")
    ] = None,
    anchors: o.Anchors = None,
    outcome: o.Outcome = None,
    similarity: o.Similarity = None,
    seed: o.Seed = None,
    device: o.Device = None,
    threads: o.Threads = None,
    download: Annotated[
        bool | None, typer.Option("--download", help="Fetch missing files and models from the hub.")
    ] = None,
) -> None:
    """Only its signature is used."""


OPTIONS = inspect.signature(_options).parameters
TRAINED = (
    *("config", "data", "model", "files", *TRAINING, "max_length", "too_long", "seed", "device"),
    *("threads", "download"),
)
"""Options that a training depends on."""


def run_of(**asked: Any) -> TextRun:
    """Settings of a run from the values of :data:`OPTIONS`."""
    from recunlearn.commands.requested import given, merged
    from recunlearn.foundation import paths
    from recunlearn.foundation.settings import make_settings, read_toml
    from recunlearn.subjects.tofu.settings import LanguageSettings

    config = asked["config"]
    files = None if asked["files"] is None else [f.strip() for f in asked["files"].split(",") if f.strip()]
    options: dict[str, Any] = given(
        **{k: asked[k] for k in ("model", "entity", "seed", "device", "threads")},
        files=files,
        text=given(**{k: asked[k] for k in ("max_length", "too_long")}),
        training=given(**{k: asked[k] for k in TRAINING}),
        **o.stages(asked, CIRCUITS),
    )
    stored = _of_checkpoint(asked["checkpoint"], asked)
    values = merged(merged(stored, read_toml(config) if config else {}), options)
    if "model" in options:
        values.pop("architecture", None)
    where = f"{config} and the options" if config else "the options"
    settings = make_settings(LanguageSettings, values, where)
    folder = asked["data"] or paths.data_sets() / "tofu"
    return TextRun(settings, folder, asked["checkpoint"], bool(asked["download"]))


def _of_checkpoint(checkpoint: Path | None, asked: dict[str, Any]) -> dict[str, Any]:
    """Settings that a checkpoint was made with; options of training cannot go with it."""
    from recunlearn.subjects.tofu.manifest import read_manifest

    if checkpoint is None:
        return {}
    made = ("model", "files", *TRAINING)
    o.check_alone(checkpoint, **{f"--{name.replace('_', '-')}": asked[name] for name in made})
    stored: dict[str, Any] = dict(read_manifest(checkpoint)["settings"])
    return stored
