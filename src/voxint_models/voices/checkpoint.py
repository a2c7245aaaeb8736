"""Reads the arrays of a PyTorch checkpoint of the old form without PyTorch, and refuses everything else in it.

Such a file is a pickle, which can run any code when it is loaded. This unpickler knows the five names that arrays need
and nothing more. The form: three small pickles (magic number, protocol, system), the object, the storage keys, then
each storage as a little-endian count of 8 bytes and its elements.
"""

from __future__ import annotations

import pickle
import struct
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pathlib import Path

FloatArray = NDArray[np.float32]
_KINDS = {"FloatStorage": np.float32, "DoubleStorage": np.float64, "IntStorage": np.int32, "LongStorage": np.int64}
_REBUILDERS = {"_rebuild_tensor", "_rebuild_tensor_v2"}


class _Storage:
    """A place for a storage's elements, which stand at the end of the file."""

    def __init__(self, kind: str, count: int) -> None:
        self.kind = _KINDS[kind]
        self.count = count
        self.data: NDArray[Any] = np.zeros(0, self.kind)


class _Tensor:
    """An array as the file describes it: a view of a storage."""

    def __init__(
        self, storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: object
    ) -> None:
        self._storage, self._offset, self._size, self._stride = storage, offset, size, stride

    def array(self) -> FloatArray:
        last = self._offset + sum((n - 1) * step for n, step in zip(self._size, self._stride, strict=True))
        if min((*self._size, *self._stride), default=1) < 0 or not 0 <= last < len(self._storage.data):
            raise pickle.UnpicklingError("an array reaches beyond its storage")
        width = self._storage.data.itemsize
        view = np.lib.stride_tricks.as_strided(
            self._storage.data[self._offset :],
            self._size,
            [step * width for step in self._stride],
        )
        return np.array(view, np.float32)


class _RefusingUnpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> object:
        if module == "torch._utils" and name in _REBUILDERS:
            return _Tensor
        if module == "torch" and name in _KINDS:
            return name
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        raise pickle.UnpicklingError(f"the checkpoint wants {module}.{name}, which no array needs: refused")

    def persistent_load(self, pid: tuple[Any, ...]) -> _Storage:
        _, kind, key, _, count = pid[:5]
        return self.storages.setdefault(str(key), _Storage(kind, int(count)))


def load(path: Path, part: str) -> dict[str, FloatArray]:
    """The arrays by name that stand under `part` in the file. Raises OSError, pickle.UnpicklingError."""
    with path.open("rb") as file:
        for _ in range(3):
            _RefusingUnpickler(file).load()
        reader = _RefusingUnpickler(file)
        found = reader.load()
        for key in _RefusingUnpickler(file).load():
            storage = reader.storages[str(key)]
            (count,) = struct.unpack("<q", file.read(8))
            if count != storage.count:
                raise pickle.UnpicklingError(f"storage {key} has {count} elements, and {storage.count} were announced")
            data = file.read(count * np.dtype(storage.kind).itemsize)
            storage.data = np.frombuffer(data, storage.kind)
    return {name: value.array() for name, value in found[part].items() if isinstance(value, _Tensor)}
