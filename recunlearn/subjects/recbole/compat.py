"""The only file that imports recbole: shims for a current stack, and the RecBole names that the adapter uses.

RecBole 1.2.1 reads the command line, evaluates strings, patches numpy, sets CUDA_VISIBLE_DEVICES and switches
torch's anomaly mode on. Nothing of that reaches this program: see docs/decisions/0002-recbole.md.
"""

import contextlib
import importlib
import logging
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse
import torch

from recunlearn.foundation.errors import RecunlearnError, UsageError
from recunlearn.subjects.recbole.graphs import with_fast_graphs

_REMOVED_ALIASES = {
    "bool8": np.bool_,
    "bool": np.bool_,
    "int": np.int64,
    "float": np.float64,
    "float_": np.float64,
    "complex": np.complex128,
    "complex_": np.complex128,
    "object": np.object_,
    "str": np.str_,
    "long": np.int64,
    "unicode": np.str_,
    "unicode_": np.str_,
}

QUIET = (
    (FutureWarning, r"recbole(\..*)?"),
    (DeprecationWarning, r"(recbole|numpy)(\..*)?"),
    (UserWarning, r"recbole(\..*)?"),
    (UserWarning, r"recunlearn\.subjects\.recbole\..*"),
    (RuntimeWarning, r"recbole(\..*)?"),
    (SyntaxWarning, r"recbole(\..*)?"),
    (Warning, r"(torch\.utils\.tensorboard|tensorboard)(\..*)?"),
    (FutureWarning, r"torch\.cuda\.amp(\..*)?"),
)
"""Warning class and module: what RecBole's code provokes, also when called through our torch modes."""


def _add_missing_names() -> None:
    """Give back what numpy and scipy removed and RecBole still uses; nothing present is replaced."""
    for name, value in _REMOVED_ALIASES.items():
        if name not in np.__dict__:
            setattr(np, name, value)
    if not hasattr(scipy.sparse.dok_matrix, "_update"):
        scipy.sparse.dok_matrix._update = lambda matrix, values: matrix._dict.update(values)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Run RecBole code: what it prints goes to stderr, its log and known warnings stay silent.

    Streams and warning filters belong to the whole process: of several threads the first one in sets them and
    the last one out puts them back.
    """
    with _QUIET.lock:
        _QUIET.inside += 1
        if _QUIET.inside == 1:
            _QUIET.begin()
    try:
        yield
    finally:
        with _QUIET.lock:
            _QUIET.inside -= 1
            if _QUIET.inside == 0:
                _QUIET.restore.close()


class _Quiet:
    """What is in force while anybody is inside :func:`quiet`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.restore = contextlib.ExitStack()

    def begin(self) -> None:
        logger, silencer = logging.getLogger(), _OnlyOthers()
        logger.addFilter(silencer)
        self.restore.callback(logger.removeFilter, silencer)
        self.restore.enter_context(warnings.catch_warnings())
        self.restore.enter_context(contextlib.redirect_stdout(sys.stderr))
        for category, module in QUIET:
            warnings.filterwarnings("ignore", category=category, module=module)


_QUIET = _Quiet()


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Import RecBole code: ``sine.py``, for one, switches torch's anomaly mode on for the whole process."""
    before = torch.is_anomaly_enabled()
    try:
        with quiet():
            yield
    finally:
        torch.autograd.set_detect_anomaly(before)


class _OnlyOthers(logging.Filter):
    """RecBole logs on the root logger: drops records whose source file lies in the recbole package."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "recbole" not in record.pathname.replace("\\", "/").split("/")[-4:-1]


_add_missing_names()
with importing():
    import recbole.data.dataset as _datasets
    from recbole.config import Config
    from recbole.data.dataloader import TrainDataLoader, UserDataLoader
    from recbole.data.dataset import Dataset, SequentialDataset
    from recbole.data.interaction import Interaction
    from recbole.sampler import RepeatableSampler, Sampler
    from recbole.utils import FeatureSource, FeatureType, InputType, ModelType, get_model, init_seed

__all__ = [
    "AUTO_ENCODERS",
    "Dataset",
    "FeatureSource",
    "FeatureType",
    "InputType",
    "Interaction",
    "ModelType",
    "RepeatableSampler",
    "SafeConfig",
    "Sampler",
    "SequentialDataset",
    "TrainDataLoader",
    "UserDataLoader",
    "build_model",
    "dataset_base",
    "importing",
    "init_seed",
    "make_config",
    "model_class",
    "plain_config",
    "quiet",
    "recbole_version",
    "with_seed",
    "with_values",
]

AUTO_ENCODERS = frozenset({"MultiDAE", "MultiVAE", "MacridVAE", "CDAE", "ENMF", "DiffRec"})
"""Models that RecBole trains on whole users (``recbole.data.utils.get_dataloader``)."""


class SafeConfig(Config):
    """RecBole's settings without its side effects: no command line, no eval, no environment."""

    def _load_cmd_line(self) -> dict[str, Any]:
        return {}

    def _convert_config_dict(self, config_dict: dict[str, Any]) -> dict[str, Any]:
        return config_dict

    def compatibility_settings(self) -> None:
        """Numpy's aliases are added once at import, and only where missing."""

    def _init_device(self) -> None:
        values = self.final_config_dict
        values.update(single_spec=True, local_rank=0, gpu_id="")
        values["device"] = torch.device(values.get("device") or "cpu")


def make_config(model: str, dataset: str, values: Mapping[str, Any]) -> SafeConfig:
    """Settings of one model; ``dataset`` is a label only and never a path.

    Raises:
        UsageError: RecBole refuses the combination of values.
    """
    # RecBole has its own rules for a data set called ml-100k, so the name it sees is always another one.
    with quiet():
        found = model_class(model)
        try:
            return SafeConfig(model=found, dataset=f"recunlearn:{dataset}", config_dict=dict(values))
        except (ValueError, TypeError, KeyError, NotImplementedError, RuntimeError) as error:
            raise UsageError(f"RecBole refuses these parameters of {model}: {_first_line(error)}.") from None


def with_seed(config: SafeConfig, seed: int) -> SafeConfig:
    """Copy of the settings with another seed."""
    return with_values(config, seed=seed)


def with_values(config: SafeConfig, **values: Any) -> SafeConfig:
    """Copy of the settings with other values."""
    other = object.__new__(SafeConfig)
    other.__dict__.update(config.__dict__)
    other.final_config_dict = {**config.final_config_dict, **values}
    return other


def plain_config(config: SafeConfig, **values: Any) -> Config:
    """Copy of the settings in RecBole's own class, for files that RecBole reads without this program."""
    other = object.__new__(Config)
    other.__dict__.update(config.__dict__)
    other.final_config_dict = {**config.final_config_dict, **values}
    other.dataset = other.final_config_dict["dataset"]
    for name in ("file_config_dict", "variable_config_dict", "cmd_config_dict", "external_config_dict"):
        setattr(other, name, {})
    return other


def model_class(model: str) -> Any:
    """RecBole's class of a model (already checked by :func:`names.family_of`).

    Raises:
        RecunlearnError: the model needs a package that is not installed.
    """
    with importing():
        try:
            return get_model(model)
        except ModuleNotFoundError as error:
            raise RecunlearnError(
                f"The model {model} needs the package {error.name}, which is not installed. "
                f"Run: pip install {error.name}."
            ) from None


def dataset_base(model: str, model_type: Any) -> Any:
    """RecBole's data set class for a model: its own, else the one of its type."""
    own = getattr(_datasets, f"{model}Dataset", None)
    if own is not None:
        return own
    return SequentialDataset if model_type == ModelType.SEQUENTIAL else Dataset


def build_model(config: SafeConfig, dataset: Any) -> torch.nn.Module:
    """Create a model with freshly initialised weights; the caller seeds.

    Raises:
        UsageError: RecBole cannot build the model from this data or these parameters.
    """
    with quiet():
        try:
            return with_fast_graphs(config.model_class(config, dataset).to(config["device"]))
        except ModuleNotFoundError as error:
            raise RecunlearnError(
                f"The model {config['model']} needs the package {error.name}, which is not installed. "
                f"Run: pip install {error.name}."
            ) from None
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            NotImplementedError,
            AssertionError,
            RuntimeError,
        ) as error:
            raise UsageError(
                f"The model {config['model']} cannot be built from this data and these parameters: "
                f"{_first_line(error)}."
            ) from None


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0].rstrip('.')}" if text else type(error).__name__


def recbole_version() -> str:
    """Version of the installed RecBole."""
    return str(importlib.import_module("recbole").__version__)
