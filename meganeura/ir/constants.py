"""Constant tensors: arrays that are loaded when needed and known by a key, never copied into the IR.

Two constants with the same key hold the same data. Derived constants (a transposed or concatenated
weight) get derived keys, so that two programs over one model share device memory without comparing bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from meganeura.errors import GraphError
from meganeura.ir.packing import BLOCK, Packed, joined, transposed
from meganeura.ir.types import DType, TensorType, as_dtype


@dataclass(frozen=True, eq=False)
class ConstantData:
    """One constant tensor.

    Attributes:
        key: identity; equal keys mean equal data, dtype and shape.
        type: concrete dtype and shape.
        load: returns the array (dtype `type.dtype.numpy`); may read a file, so call it once and let go.
        packed: the same values quantised, where that is what they are: float32 of rank 2.
    """

    key: str
    type: TensorType
    load: Callable[[], np.ndarray]
    packed: Packed | None = None

    @property
    def nbytes(self) -> int:
        return self.type.nbytes


def narrow(array: np.ndarray, source: str) -> np.ndarray:
    """Bring an array to one of the IR's dtypes: 64-bit integers are narrowed with a check, float64 rounded."""
    array = np.asarray(array)
    if array.dtype in (np.int64, np.uint64):
        if array.size and (array.min() < -(2**31) or array.max() >= 2**31):
            if array.min() >= 0 and array.max() < 2**32:
                return array.astype(np.uint32)
            raise GraphError(
                "a 64-bit integer does not fit 32 bits",
                source=source,
                shapes=f"{array.dtype}{list(array.shape)}, values {array.min()}..{array.max()}",
                remedy="the device has 32-bit integers only; use smaller values",
            )
        return array.astype(np.int32)
    if array.dtype in (np.int8, np.int16, np.uint8, np.uint16):
        return array.astype(np.int32)
    if array.dtype == np.float64:
        return array.astype(np.float32)
    return array.astype(as_dtype(array.dtype).numpy, copy=False)


def constant_from_array(array: np.ndarray, source: str = "constant") -> ConstantData:
    """A constant from data in memory; its key is a digest of the content."""
    # ascontiguousarray would turn a rank-0 array into rank 1.
    data = np.array(narrow(array, source), order="C", copy=True)
    data.setflags(write=False)
    dtype = as_dtype(data.dtype)
    digest = hashlib.sha256(data.tobytes()).hexdigest()[:24]
    key = f"data:{dtype.value}{list(data.shape)}:{digest}".replace(" ", "")
    return ConstantData(key, TensorType(dtype, data.shape), lambda: data)


def transposed_constant(data: ConstantData, perm: Sequence[int]) -> ConstantData:
    """The same constant with its axes permuted; loaded and permuted lazily. A packed matrix stays packed."""
    perm = tuple(perm)
    shape = tuple(data.type.shape[p] for p in perm)
    return ConstantData(
        f"transpose({data.key},{list(perm)})".replace(" ", ""),
        TensorType(data.type.dtype, shape),
        lambda: data.load().transpose(perm),
        data.packed if perm == (0, 1) or data.packed is None else transposed(data.packed),
    )


def reshaped_constant(data: ConstantData, shape: Sequence[int]) -> ConstantData:
    """The same constant under another shape of equal size."""
    shape = tuple(shape)
    return ConstantData(
        f"reshape({data.key},{list(shape)})".replace(" ", ""),
        TensorType(data.type.dtype, shape),
        lambda: data.load().reshape(shape),
    )


def concatenated_constant(parts: Sequence[ConstantData], axis: int) -> ConstantData:
    """Constants joined along `axis`; loaded lazily. Whole rows packed by one scheme stay packed."""
    packs = [part.packed for part in parts if part.packed is not None and part.packed.transposed == bool(axis)]
    keeps = len(packs) == len(parts) and len({pack.scheme for pack in packs}) == 1
    shape = list(parts[0].type.shape)
    shape[axis] = sum(int(part.type.shape[axis]) for part in parts)  # type: ignore[arg-type]
    return ConstantData(
        f"concat({','.join(part.key for part in parts)},{axis})",
        TensorType(parts[0].type.dtype, tuple(shape)),
        lambda: np.concatenate([part.load() for part in parts], axis=axis),
        joined(packs) if keeps else None,
    )


def packed_words(data: ConstantData) -> ConstantData:
    """The words of a packed constant, uint32 `[words]`, as a constant of their own."""
    packed = data.packed
    if packed is None or data.type.size != packed.blocks * BLOCK:
        raise GraphError("the constant is not packed", source=data.key, shapes=str(data.type))
    return ConstantData(
        f"packed({packed.scheme.name},{packed.key})", TensorType(DType.U32, (packed.words,)), packed.load
    )


def cast_constant(data: ConstantData, dtype: DType) -> ConstantData:
    """A constant rounded to another dtype; loaded lazily."""
    if dtype == data.type.dtype:
        return data
    return ConstantData(
        f"cast({data.key},{dtype.value})",
        TensorType(dtype, data.type.shape),
        lambda: data.load().astype(dtype.numpy),
    )
