"""Between host arrays and tensors as they lie on the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from meganeura.errors import InputError
from meganeura.ir.types import DType, TensorType
from meganeura.lower.schedule import InputRange, Layout, Operand, Port

PIECE_BYTES = 16 << 20
"""Uploads go in pieces of this size, so that no second copy of a large tensor is ever needed."""


def storage_type(dtype: DType) -> np.dtype:
    """The NumPy type of an element as it lies on the device: booleans are 32-bit 0 or 1."""
    return np.dtype(np.uint32) if dtype is DType.BOOL else dtype.numpy


def check_names(ports: Mapping[str, Port], inputs: Mapping[str, Any], what: str = "input") -> None:
    """Raise InputError unless exactly the named inputs are given."""
    missing = [name for name in ports if name not in inputs]
    if missing:
        wanted = ", ".join(f"{name!r} {ports[name].operand.type}" for name in missing)
        raise InputError(f"{what} {wanted} is missing", source=missing[0], remedy=f"give every {what} by name")
    unknown = [name for name in inputs if name not in ports]
    if unknown:
        raise InputError(
            f"there is no {what} {', '.join(map(repr, unknown))}",
            source=unknown[0],
            remedy=f"the {what}s are {', '.join(map(repr, ports)) or 'none'}",
        )


def check_ranges(ranges: Iterable[InputRange], arrays: Mapping[str, np.ndarray]) -> None:
    """Raise InputError for an index or position outside what its readers hold."""
    for limit in ranges:
        array = arrays[limit.input]
        if array.size and (array.min() < limit.low or array.max() > limit.high):
            wrong = array.max() if array.max() > limit.high else array.min()
            raise InputError(
                f"input {limit.input!r} holds {wrong}, which is no {limit.what.split(' ', 1)[1]}",
                op=limit.op,
                source=limit.source or limit.input,
                limit=f"{limit.low} to {limit.high}",
            )


def host_array(name: str, value: Any) -> np.ndarray:
    """A NumPy array of anything that has `__array__` or DLPack on the host, without a copy where possible.

    Raises:
        InputError: no array can be made of it.
    """
    try:
        if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
            array = np.from_dlpack(value)
        else:
            array = np.asarray(value)
    except Exception as error:  # whatever a foreign array class raises: on another device, needing a gradient, ...
        raise InputError(
            f"input {name!r} is not an array on the host: {error}", source=name, remedy="pass a NumPy array"
        ) from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"input {name!r} holds {array.dtype}, not numbers", source=name, remedy="pass a NumPy array")
    return array


def convert(name: str, value: Any, wanted: TensorType) -> np.ndarray:
    """Check a value against a type and bring it to the dtype's NumPy type.

    float64 is rounded to float32 and float16 widened, 64-bit and narrower integers are brought to 32 bits if they fit;
    any other difference of dtype or shape is refused.

    Raises:
        InputError: with the input's name, what was expected and what was given.
    """
    array = host_array(name, value)
    given = f"{array.dtype}{list(array.shape)}"
    if array.shape != wanted.shape:
        raise InputError(
            f"input {name!r} has shape {list(array.shape)}, expected {list(wanted.shape)}",
            source=name,
            shapes=f"expected {wanted}, got {given}",
        )
    target = wanted.dtype.numpy
    if array.dtype == target:
        return array
    if wanted.dtype is DType.F32 and array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return array.astype(np.float32)
    if wanted.dtype.is_integer and array.dtype.kind in "iu":
        info = np.iinfo(target)
        if array.size and (int(array.min()) < info.min or int(array.max()) > info.max):
            raise InputError(
                f"input {name!r} holds {array.min()}..{array.max()}, which does not fit {wanted.dtype.value}",
                source=name,
                shapes=f"expected {wanted}, got {given}",
                remedy="the device has 32-bit integers only; use smaller values",
            )
        return array.astype(target)
    raise InputError(
        f"input {name!r} has dtype {array.dtype}, expected {target}",
        source=name,
        shapes=f"expected {wanted}, got {given}",
        remedy=f"convert it with .astype({target.name!r})",
    )


def stored(array: np.ndarray, operand: Operand) -> np.ndarray:
    """The bytes to write at the start of a tensor's buffer, for an array of the operand's shape and dtype."""
    kind, layout = storage_type(operand.dtype), operand.layout
    if layout.is_contiguous and layout.offset == 0:
        flat = np.ascontiguousarray(array, kind).reshape(-1)
    else:
        flat = np.zeros(layout.extent, kind)
        _strided(flat, layout)[...] = array
    odd = -flat.nbytes % 4
    return flat if not odd else np.concatenate([flat, np.zeros(odd // kind.itemsize, kind)])


def pieces(array: np.ndarray, dtype: DType) -> Iterator[np.ndarray]:
    """An array in row-major order as one-dimensional pieces in storage type, each a multiple of 4 bytes.

    Arrays of any strides are copied piece by piece, so that a transposed weight needs no second full copy.
    """
    kind = storage_type(dtype)
    if array.size == 0:
        return
    count = PIECE_BYTES // kind.itemsize
    if array.flags.c_contiguous and array.dtype == kind:
        flat = array.reshape(-1)
        chunks: Any = (flat[i : i + count] for i in range(0, flat.size, count))
    else:
        chunks = np.nditer(
            array,
            flags=["external_loop", "buffered", "zerosize_ok"],
            op_dtypes=[kind],
            order="C",
            casting="unsafe",
            buffersize=count,
        )
    rest = np.empty(0, kind)
    for chunk in chunks:
        # NumPy chooses where its pieces end: carry what doesn't fill 4 bytes over to the next one.
        if rest.size:
            chunk = np.concatenate([rest, chunk])
        keep = chunk.size - chunk.nbytes % 4 // kind.itemsize
        rest = chunk[keep:].copy()
        if keep:
            yield chunk[:keep]
    if rest.size:
        yield np.concatenate([rest, np.zeros(4 // kind.itemsize - rest.size, kind)])


def byte_range(operand: Operand) -> tuple[int, int]:
    """Start (a multiple of 8) and end (a multiple of 4) of the bytes that an operand's elements lie in."""
    start = operand.layout.offset * operand.dtype.itemsize // 8 * 8
    return start, max(start, operand.nbytes)


def from_bytes(raw: memoryview, operand: Operand) -> np.ndarray:
    """A fresh row-major array of the elements of an operand, from the bytes of its `byte_range`."""
    layout, kind = operand.layout, storage_type(operand.dtype)
    if layout.size == 0:
        return np.empty(layout.shape, operand.dtype.numpy)
    start, _ = byte_range(operand)
    skipped = layout.offset - start // kind.itemsize
    flat = np.frombuffer(raw, kind, count=layout.extent - start // kind.itemsize)
    view = _strided(flat, Layout(layout.shape, layout.strides, skipped))
    if operand.dtype is DType.BOOL:
        return view != 0
    return np.array(view, order="C")


def _strided(flat: np.ndarray, layout: Layout) -> np.ndarray:
    strides = tuple(s * flat.itemsize for s in layout.strides)
    return np.lib.stride_tricks.as_strided(flat[layout.offset :], layout.shape, strides)
