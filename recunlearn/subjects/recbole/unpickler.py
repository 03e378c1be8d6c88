"""Reads a checkpoint of RecBole's trainer without running anything that the file names.

``torch.load(weights_only=True)`` refuses pickle protocol 4, which RecBole writes. Here tensors become real,
the classes of RecBole become inert records of their arguments, nothing is imported, and every other name is
refused. The opcodes that could reach further (attributes, extension registry, persistent text ids) are off.
"""

import io
import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from torch import Tensor

from recunlearn.foundation.errors import CheckpointError

_MAX_PICKLE = 64 << 20
_MAX_RECORDS = 100_000
_STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ComplexFloatStorage": torch.complex64,
    "ComplexDoubleStorage": torch.complex128,
}
_DTYPES = {np.dtype(c).str[1:] for c in "?bBhHiIlLqQefd"}
_INERT = {
    ("yaml.loader", "FullLoader"),
    ("torch", "device"),
}
_INERT_PACKAGES = ("recbole.", "torch.nn.modules.")


_MALFORMED = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    AssertionError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
)


class Inert:
    """Stands for an object of a class that is not loaded: keeps what the file says about it.

    Args:
        name: module and class.
        args: what it was to be made from.
    """

    def __init__(self, name: str, args: tuple[Any, ...]) -> None:
        self.name, self.args, self.state = name, args, None

    def get(self, key: str) -> Any:
        """Attribute of the object that the file describes, or None."""
        return self.state.get(key) if isinstance(self.state, dict) else None


class _Name:
    """A class or function that the file may name.

    Args:
        name: module and name.
        make: what a call gives; None: it is never called.
    """

    def __init__(self, name: str, make: Callable[..., Any] | None) -> None:
        self.name, self.make = name, make


def _settings_object(name: str, args: tuple[Any, ...]) -> Inert:
    """Settings are made without arguments; a function with arguments is something else in their place."""
    if args:
        raise _Refusal(f"its settings are a call of {name!r}, which is no class of settings.")
    return Inert(name, ())


class _Refusal(Exception):
    """Something in the file that a RecBole checkpoint does not hold."""


def read_checkpoint_file(path: Path) -> Any:
    """Load the object in a checkpoint: plain values, tensors on the CPU, and :class:`Inert` objects.

    Raises:
        CheckpointError: no zip checkpoint, truncated, altered, or it names something that is not on the list.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            prefix = _check_records(path, archive)
            stream = io.BytesIO(archive.read(f"{prefix}data.pkl"))
            return _Unpickler(stream, archive, prefix).load()
    except _Refusal as refusal:
        raise CheckpointError(f"{path} is refused: {refusal}") from None
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} does not exist. Name the .pth file that RecBole's trainer wrote."
        ) from None
    except IsADirectoryError:
        raise CheckpointError(
            f"{path} is a folder. Name the .pth file that RecBole's trainer wrote; "
            "a model of this program needs no import: use score-users --checkpoint."
        ) from None
    except (zipfile.BadZipFile, EOFError) as error:
        raise CheckpointError(
            f"{path} is not a whole checkpoint of torch 1.6 or later ({error}): it is truncated, altered, in "
            "the old format, or another kind of file. Copy it again, or save it again with a current torch."
        ) from None
    except (*_MALFORMED, MemoryError) as error:
        raise CheckpointError(
            f"{path} is damaged: its description of the model cannot be read ({type(error).__name__}). "
            "Copy it again."
        ) from None


def _check_records(path: Path, archive: zipfile.ZipFile) -> str:
    """Bound what reading can cost by the size of the file; return the records' common prefix."""
    records = archive.infolist()
    found = [r.filename for r in records if r.filename.endswith("/data.pkl")]
    if len(found) != 1 or len(records) > _MAX_RECORDS:
        raise _Refusal("it is a zip file, but not one that torch.save wrote.")
    if any(r.compress_type != zipfile.ZIP_STORED or r.flag_bits & 1 for r in records):
        raise _Refusal("its records are compressed or encrypted, which torch.save never does.")
    if sum(r.file_size for r in records) > path.stat().st_size:
        raise _Refusal("its records claim to be larger than the file.")
    if archive.getinfo(found[0]).file_size > _MAX_PICKLE:
        raise _Refusal(f"its description of the model is larger than {_MAX_PICKLE >> 20} MB.")
    prefix = found[0].removesuffix("data.pkl")
    if f"{prefix}byteorder" in archive.namelist() and archive.read(f"{prefix}byteorder") != b"little":
        raise _Refusal("it was written on a big-endian machine.")
    return prefix


class _Unpickler(pickle._Unpickler):
    """The interpreter of Python's own library in Python, with every step that calls or sets checked."""

    stack: list[Any]
    metastack: list[list[Any]]
    pop_mark: Callable[[], list[Any]]
    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)

    def __init__(self, stream: io.BytesIO, archive: zipfile.ZipFile, prefix: str) -> None:
        super().__init__(stream)
        self._archive, self._prefix = archive, prefix
        self._storages: dict[str, Tensor] = {}

    def find_class(self, module: str, name: str) -> _Name:
        """Look a name up in the closed list; nothing is imported."""
        full = f"{module}.{name}"
        if full in _REAL:
            return _Name(full, _REAL[full])
        if module in ("torch", "torch.storage") and name in (*_STORAGES, "UntypedStorage"):
            return _Name(name, None)
        if self._is_settings():
            return _Name(full, lambda *args: _settings_object(full, args))
        inert = (module, name) in _INERT or module.startswith(_INERT_PACKAGES)
        if inert and full.replace(".", "_").isidentifier() and "." not in name:
            return _Name(full, lambda *args: Inert(full, args))
        raise _Refusal(
            f"it asks for {full!r}, which no checkpoint of RecBole's trainer needs and which could run code. "
            "If you wrote the file yourself, add --trust-pickle."
        )

    def _is_settings(self) -> bool:
        """Tell whether the class of the first entry, "config", is read: anyone's subclass of Config."""
        return self.stack == ["config"] and [type(v) for v in self.metastack[0]] == [dict]

    def persistent_load(self, saved_id: Any) -> Any:
        """Storage ``("storage", type, key, location, numel)``: its record as a flat tensor."""
        kind, storage, key, _, numel = saved_id
        if kind != "storage" or not isinstance(storage, _Name) or not isinstance(key, str):
            raise _Refusal("it holds a reference that is no tensor storage.")
        if key not in self._storages:
            self._storages[key] = self._read_storage(storage.name, key, numel)
        return self._storages[key]

    def _read_storage(self, name: str, key: str, numel: int) -> Tensor:
        dtype = torch.uint8 if name == "UntypedStorage" else _STORAGES[name]
        data = bytearray(self._archive.read(f"{self._prefix}data/{key}"))
        if len(data) != numel * dtype.itemsize:
            raise _Refusal(f"the storage {key} has {len(data)} bytes instead of {numel * dtype.itemsize}.")
        return torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)

    def _call(self, function: Any, args: Any) -> Any:
        if not isinstance(function, _Name) or function.make is None or not isinstance(args, tuple):
            raise _Refusal(f"it calls something that cannot be called ({type(function).__name__}).")
        return function.make(*args)

    def load_reduce(self) -> None:
        """REDUCE: call what the closed list offers."""
        args = self.stack.pop()
        self.stack[-1] = self._call(self.stack[-1], args)

    def load_newobj(self) -> None:
        """NEWOBJ: make an inert object."""
        args = self.stack.pop()
        self.stack[-1] = self._call(self.stack[-1], args)

    def load_build(self) -> None:
        """BUILD: remember the state of an inert object; attributes of an OrderedDict are left out."""
        state = self.stack.pop()
        made = self.stack[-1]
        if isinstance(made, Inert):
            made.state = state
        elif type(made) is not OrderedDict:
            raise _Refusal(f"it sets attributes of a {type(made).__name__}.")

    def load_refused(self) -> NoReturn:
        """Opcodes that torch.save never writes for a checkpoint."""
        raise _Refusal("it holds pickle instructions that a checkpoint of RecBole's trainer never holds.")

    def _append_all(self) -> None:
        items = self.pop_mark()
        target = self.stack[-1]
        if type(target) is not list:
            raise _Refusal(f"it appends to a {type(target).__name__}.")
        target.extend(items)

    def load_append(self) -> None:
        """APPEND: to lists only."""
        value = self.stack.pop()
        if type(self.stack[-1]) is not list:
            raise _Refusal(f"it appends to a {type(self.stack[-1]).__name__}.")
        self.stack[-1].append(value)

    def load_setitem(self) -> None:
        """SETITEM: of dictionaries only."""
        value, key = self.stack.pop(), self.stack.pop()
        _set(self.stack[-1], key, value)

    def load_setitems(self) -> None:
        """SETITEMS: of dictionaries only."""
        items = self.pop_mark()
        for key, value in zip(items[::2], items[1::2], strict=True):
            _set(self.stack[-1], key, value)

    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.NEWOBJ[0]] = load_newobj
    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.APPEND[0]] = load_append
    dispatch[pickle.APPENDS[0]] = _append_all
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    for _code in (
        *(pickle.INST, pickle.OBJ, pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.PERSID, pickle.NEWOBJ_EX),
        *(pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER),
    ):
        dispatch[_code[0]] = load_refused


def _set(target: Any, key: Any, value: Any) -> None:
    if type(target) not in (dict, OrderedDict):
        raise _Refusal(f"it sets items of a {type(target).__name__}.")
    target[key] = value


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Tensor:
    """View of a storage; torch's own function would enlarge a storage that is too small."""
    numbers = (offset, *size, *stride)
    if not isinstance(storage, Tensor) or any(type(n) is not int or n < 0 for n in numbers):
        raise _Refusal("it describes a tensor by something else than whole numbers.")
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if math.prod(size) > storage.numel() or (0 not in size and last >= storage.numel()):
        raise _Refusal("it describes a tensor that is larger than its storage.")
    return storage.as_strided(size, stride, offset).clone()


def _parameter(data: Any, *_: Any) -> Tensor:
    if not isinstance(data, Tensor):
        raise _Refusal("it describes a parameter that is no tensor.")
    return data


def _dtype(text: Any, *_: Any) -> Inert:
    if text not in _DTYPES:
        raise _Refusal("it holds a numpy value that is no plain number.")
    return Inert("numpy.dtype", (text,))


def _scalar(dtype: Any, data: Any) -> bool | int | float:
    if not isinstance(dtype, Inert) or dtype.name != "numpy.dtype" or type(data) is not bytes:
        raise _Refusal("it holds a numpy value that is no plain number.")
    number: bool | int | float = np.frombuffer(data, dtype=np.dtype(f"<{dtype.args[0]}"), count=1)[0].item()
    return number


def _ordered(*items: Any) -> "OrderedDict[Any, Any]":
    if items:
        raise _Refusal("it fills an ordered dictionary in an unusual way.")
    return OrderedDict()


_REAL: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _ordered,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "numpy.dtype": _dtype,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy._core.multiarray.scalar": _scalar,
}
