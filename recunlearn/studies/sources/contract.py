"""What the stages of a score need to know about the kind of model that is scored."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol, cast

from numpy.typing import NDArray

from recunlearn.studies.columns import Columns
from recunlearn.studies.keys import Keys
from recunlearn.studies.scoring import Listener
from recunlearn.subjects.contract import Subject


class Source(Protocol):
    """One module of this folder, named as ``Keys.source``."""

    def trained(self, keys: Keys, listener: Listener, *, anchors: bool = True) -> Any:
        """Load the model of a run, or train it; ``anchors``: the run will need some."""
        ...

    def columns(self, keys: Keys) -> Columns:
        """Names of the table's columns."""
        ...

    def beside(self, subject: Subject) -> Mapping[str, NDArray[Any]]:
        """``n_interactions`` and ``mean_item_popularity`` of every entity, or what stands for them."""
        ...

    def warn(self, subject: Any, say: Callable[[str], None]) -> None:
        """Say what is doubtful about the model."""
        ...

    def facts(self, subject: Any) -> Mapping[str, Any]:
        """Facts of the summary that only this kind of model has."""
        ...


def source_of(keys: Keys) -> Source:
    """Source of a run's subject."""
    return cast(Source, import_module(f"recunlearn.studies.sources.{keys.source}"))
