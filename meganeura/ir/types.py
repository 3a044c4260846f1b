"""Element types and tensor types."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from meganeura.errors import GraphError
from meganeura.ir.dims import Dim, Shape, bind_shape, concrete, size, symbols_of


class DType(enum.Enum):
    """Element type of a tensor; `bool` is stored as a 32-bit 0 or 1 on the device."""

    F32 = "f32"
    F16 = "f16"
    I32 = "i32"
    U32 = "u32"
    BOOL = "bool"

    @property
    def numpy(self) -> np.dtype:
        """The NumPy type at the interface: what callers pass in and get back."""
        return _NUMPY[self]

    @property
    def itemsize(self) -> int:
        """Bytes per element in device memory."""
        return 2 if self is DType.F16 else 4

    @property
    def is_float(self) -> bool:
        return self in (DType.F32, DType.F16)

    @property
    def is_integer(self) -> bool:
        return self in (DType.I32, DType.U32)

    def __repr__(self) -> str:
        return self.value


_NUMPY = {
    DType.F32: np.dtype(np.float32),
    DType.F16: np.dtype(np.float16),
    DType.I32: np.dtype(np.int32),
    DType.U32: np.dtype(np.uint32),
    DType.BOOL: np.dtype(np.bool_),
}
F32, F16, I32, U32, BOOL = DType.F32, DType.F16, DType.I32, DType.U32, DType.BOOL


def as_dtype(value: DType | str | np.dtype | type) -> DType:
    """Read a dtype given as `DType`, its short name (`"f32"`), or a NumPy type of the same meaning."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        try:
            return DType(value)
        except ValueError:
            pass
    try:
        dtype = np.dtype(value)
    except TypeError:
        dtype = None
    for ours, theirs in _NUMPY.items():
        if dtype == theirs:
            return ours
    raise GraphError(f"no such dtype: {value!r}", remedy="use f32, f16, i32, u32 or bool")


@dataclass(frozen=True, slots=True)
class TensorType:
    """Dtype and shape of one value; dimensions are ints, or symbols before a graph is made concrete."""

    dtype: DType
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape as ints; raises GraphError while it has symbols."""
        return concrete(self.shape)

    @property
    def size(self) -> Dim:
        """Number of elements."""
        return size(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in device memory, without padding; the type must be concrete."""
        count = self.size
        if not isinstance(count, int):
            raise GraphError(f"{self} has no byte size before its symbols are bound")
        return count * self.dtype.itemsize

    @property
    def is_concrete(self) -> bool:
        return not symbols_of(self.shape)

    def bind(self, dims: dict[str, int]) -> TensorType:
        """Substitute symbol values."""
        return TensorType(self.dtype, bind_shape(self.shape, dims))

    def __repr__(self) -> str:
        return f"{self.dtype.value}[{', '.join(map(repr, self.shape))}]"


@dataclass(frozen=True, slots=True)
class TupleType:
    """Type of a node with several outputs; each is read through a `Proj` node."""

    items: tuple[TensorType, ...]

    @property
    def is_concrete(self) -> bool:
        return all(item.is_concrete for item in self.items)

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.items))})"


ValueType = TensorType | TupleType


def broadcast_shapes(*shapes: Shape) -> Shape:
    """NumPy broadcasting; raises GraphError when two dimensions differ and neither is 1."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[Dim] = []
    for axis in range(rank):
        dim: Dim = 1
        for shape in shapes:
            index = axis - (rank - len(shape))
            here = shape[index] if index >= 0 else 1
            if here == 1 or here == dim:
                continue
            if dim != 1:
                raise GraphError("shapes do not broadcast", shapes=", ".join(map(str, shapes)))
            dim = here
        result.append(dim)
    return tuple(result)


def normalize_axis(axis: int, rank: int, op: str) -> int:
    """Turn a possibly negative axis into 0..rank-1."""
    if not -rank <= axis < max(rank, 1):
        raise GraphError(f"axis {axis} is out of range for rank {rank}", op=op)
    return axis % rank if rank else 0
