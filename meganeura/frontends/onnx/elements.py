"""ONNX element types and what becomes of them in the IR.

The IR has f32, f16, i32, u32 and bool. 64-bit integers are narrowed to 32 bits with a check, float64 is rounded to
float32, and 8 and 16-bit integers are widened to i32 and wrapped after arithmetic that can leave their range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from meganeura.ir.types import DType


@dataclass(frozen=True, slots=True)
class Element:
    """One ONNX element type: its name, the IR's dtype for it, NumPy's dtype, and its width where it must be kept."""

    name: str
    dtype: DType
    numpy: np.dtype
    wraps: int = 0

    @property
    def signed(self) -> bool:
        return self.numpy.kind == "i"


ELEMENTS: dict[int, Element] = {
    TensorProto.FLOAT: Element("float", DType.F32, np.dtype(np.float32)),
    TensorProto.DOUBLE: Element("double", DType.F32, np.dtype(np.float64)),
    TensorProto.FLOAT16: Element("float16", DType.F16, np.dtype(np.float16)),
    TensorProto.BOOL: Element("bool", DType.BOOL, np.dtype(np.bool_)),
    TensorProto.INT64: Element("int64", DType.I32, np.dtype(np.int64)),
    TensorProto.INT32: Element("int32", DType.I32, np.dtype(np.int32)),
    TensorProto.INT16: Element("int16", DType.I32, np.dtype(np.int16), 16),
    TensorProto.INT8: Element("int8", DType.I32, np.dtype(np.int8), 8),
    TensorProto.UINT64: Element("uint64", DType.U32, np.dtype(np.uint64)),
    TensorProto.UINT32: Element("uint32", DType.U32, np.dtype(np.uint32)),
    TensorProto.UINT16: Element("uint16", DType.I32, np.dtype(np.uint16), 16),
    TensorProto.UINT8: Element("uint8", DType.I32, np.dtype(np.uint8), 8),
}
"""The element types that can be imported, by their number in the format."""


def element_name(number: int) -> str:
    """The format's name of an element type, lower case (`bfloat16`), or its number when it has none."""
    try:
        return TensorProto.DataType.Name(number).lower()  # type: ignore[arg-type]
    except ValueError:
        return f"element type {number}"


def dtype_of(array: np.ndarray) -> DType:
    """The IR's dtype for an array in an ONNX dtype."""
    for element in ELEMENTS.values():
        if element.numpy == array.dtype:
            return element.dtype
    raise TypeError(f"no element type for {array.dtype}")
