"""Tensors of a model file: read when needed, from the message, from the file's bytes or from external data."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from onnx import TensorProto, external_data_helper, numpy_helper

from meganeura.errors import GraphError, ImportFailure
from meganeura.frontends.onnx.elements import ELEMENTS, Element, dtype_of, element_name
from meganeura.ir.constants import ConstantData, constant_from_array, narrow
from meganeura.ir.types import DType, TensorType

SMALL = 1024
"""Float tensors of at most this many elements may be computed with while importing; larger ones are weights."""


@dataclass(frozen=True, eq=False)
class Known:
    """A value known while importing.

    Attributes:
        name: of the initializer or node it comes from. type: what it becomes in the IR.
        load: the array in its ONNX dtype, 64-bit types kept. weight: too large to compute with; stays lazy.
    """

    name: str
    type: TensorType
    load: Callable[[], np.ndarray]
    weight: bool = False

    @staticmethod
    def of(array: np.ndarray, name: str = "") -> Known:
        """A value computed while importing."""
        return Known(name, TensorType(dtype_of(array), array.shape), lambda: array)

    def narrowed(self) -> np.ndarray:
        """The array in the IR's dtype; raises GraphError when a value does not fit."""
        array = self.load()
        if self.type.dtype is DType.U32:
            if array.size and int(array.max()) >= 2**32:
                raise GraphError("a 64-bit integer does not fit 32 bits", source=self.name, shapes=f"max {array.max()}")
            return array.astype(np.uint32)
        if array.dtype == np.float64 and _overflows(array):
            raise GraphError("a float64 value is beyond float32's range", source=self.name)
        result = narrow(array, self.name)
        if result.dtype != self.type.dtype.numpy:
            raise GraphError(
                "a 64-bit integer does not fit 32 bits", source=self.name, shapes=f"values {array.min()}..{array.max()}"
            )
        return result

    @cached_property
    def constant(self) -> ConstantData:
        """The value as the IR holds it; its key is a digest of dtype, shape and content."""
        if not self.weight:
            return constant_from_array(self.narrowed(), self.name)
        digest = hashlib.sha256(np.ascontiguousarray(self.narrowed()).data).hexdigest()[:24]
        key = f"data:{self.type.dtype.value}{list(self.type.shape)}:{digest}".replace(" ", "")
        return ConstantData(key, self.type, self.narrowed)


def _overflows(array: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.any(np.isfinite(array) & ~np.isfinite(array.astype(np.float32))))


@dataclass(frozen=True)
class FileSlice:
    """Bytes of a file, read on demand; refuses when the file was changed in the meantime."""

    path: Path
    offset: int
    length: int
    stamp: tuple[int, int]

    @staticmethod
    def of(path: Path, offset: int, length: int) -> FileSlice:
        status = path.stat()
        return FileSlice(path, offset, length, (status.st_size, status.st_mtime_ns))

    def read(self) -> bytes:
        try:
            status = self.path.stat()
            if (status.st_size, status.st_mtime_ns) == self.stamp:
                with self.path.open("rb") as file:
                    file.seek(self.offset)
                    return file.read(self.length)
        except OSError as error:
            raise ImportFailure(f"{self.path} cannot be read: {error.strerror}", source=str(self.path)) from None
        raise ImportFailure(
            f"{self.path} was changed after the model was loaded", source=str(self.path), remedy="load it again"
        )


def known_tensor(proto: TensorProto, name: str, raw: FileSlice | None, folder: Path | None) -> Known:
    """A tensor of the file.

    Args:
        proto: the message, perhaps without its raw data. name: for errors and provenance.
        raw: where the raw data lies when it is not in the message. folder: where external data is looked for.

    Raises:
        ImportFailure: unsupported element type, sizes that disagree, or external data that is not there.
    """
    element = ELEMENTS.get(proto.data_type)
    if element is None:
        raise ImportFailure(
            f"tensor {name!r} has the unsupported element type {element_name(proto.data_type)}",
            source=name,
            remedy=f"supported are {', '.join(e.name for e in ELEMENTS.values())}",
        )
    shape = tuple(proto.dims)
    if any(dim < 0 for dim in shape):
        raise ImportFailure(f"tensor {name!r} has a negative dimension", source=name, shapes=list(shape))
    count = math.prod(shape)
    if proto.data_location == TensorProto.EXTERNAL:
        raw = _external(proto, name, folder, count * element.numpy.itemsize)
    if raw is not None or proto.HasField("raw_data"):
        length = raw.length if raw is not None else len(proto.raw_data)
        _check_size(name, element, shape, length, count * element.numpy.itemsize)
        load = _raw_loader(proto, raw, element, shape)
    else:
        load = _typed_loader(proto, name, count)
    weight = count > SMALL and element.dtype.is_float
    if not weight:
        array = load()
        load = lambda: array  # noqa: E731
    return Known(name, TensorType(element.dtype, shape), load, weight)


def _check_size(name: str, element: Element, shape: tuple[int, ...], length: int, wanted: int) -> None:
    if length != wanted:
        raise ImportFailure(
            f"tensor {name!r} holds {length} bytes of data, its type needs {wanted}",
            source=name,
            shapes=f"{element.name}{list(shape)}",
            remedy="the file is damaged or truncated",
        )


def _raw_loader(proto: TensorProto, raw: FileSlice | None, element: Element, shape: tuple[int, ...]) -> Callable:
    def load() -> np.ndarray:
        data = proto.raw_data if raw is None else raw.read()
        return np.frombuffer(data, element.numpy.newbyteorder("<")).astype(element.numpy, copy=False).reshape(shape)

    return load


def _typed_loader(proto: TensorProto, name: str, count: int) -> Callable[[], np.ndarray]:
    def load() -> np.ndarray:
        try:
            array = numpy_helper.to_array(proto)
        except (ValueError, TypeError) as error:
            raise ImportFailure(f"tensor {name!r} is damaged: {error}", source=name) from None
        if array.size != count:
            raise ImportFailure(f"tensor {name!r} holds {array.size} elements instead of {count}", source=name)
        return array

    return load


def _external(proto: TensorProto, name: str, folder: Path | None, wanted: int) -> FileSlice:
    info = external_data_helper.ExternalDataInfo(proto)
    if folder is None:
        raise ImportFailure(
            f"tensor {name!r} lies in the external file {info.location!r}, but the model was given without a path",
            source=name,
            remedy="load the model from its file, or with onnx.load() and its external data",
        )
    path = (folder / info.location).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ImportFailure(
            f"tensor {name!r} points outside the model's folder: {info.location!r}",
            source=name,
            remedy="external data must lie in or below the folder of the model",
        )
    if not path.is_file():
        raise ImportFailure(f"no such file: {path}, external data of tensor {name!r}", source=name)
    offset, length = info.offset or 0, wanted if info.length is None else info.length
    if offset < 0 or length < 0 or offset + length > path.stat().st_size:
        raise ImportFailure(
            f"{path} is truncated: tensor {name!r} needs bytes {offset} to {offset + length}",
            source=name,
            limit=f"the file has {path.stat().st_size} bytes",
        )
    return FileSlice.of(path, offset, length)
