"""What operator handlers compute with: values that are nodes of the graph, or known while importing.

A handler is written once, with NumPy's operators on `Value`. Where all operands are known the result is computed
on the host through the op's own reference, in 64 bits, and no node is made: this is how the integer arithmetic
on shapes disappears. Weights are never computed with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura.errors import ImportFailure
from meganeura.frontends.onnx.tensors import SMALL, Known
from meganeura.ir.dims import size
from meganeura.ir.graph import Graph, Tensor
from meganeura.ir.op import OPS, Op
from meganeura.ir.types import DType, TensorType, TupleType
from meganeura.reference import round_to, widen

FOLD_LIMIT = 1 << 22
"""Elements of the largest result that is computed while importing (a 2048 x 2048 mask)."""


_REPEATING = frozenset({"expand", "gather", "gather_elements"})


class Value:
    """One value of the source graph: a tensor of the graph under construction, or an array known already."""

    __slots__ = ("build", "content")

    def __init__(self, build: Builder, content: Tensor | Known) -> None:
        self.build = build
        self.content = content

    @property
    def known(self) -> bool:
        return isinstance(self.content, Known)

    @property
    def is_weight(self) -> bool:
        """Known, but too large to compute with while importing."""
        return isinstance(self.content, Known) and self.content.weight

    @property
    def type(self) -> TensorType:
        return self.content.type if isinstance(self.content, Known) else self.content.node.tensor_type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape  # type: ignore[return-value]

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(size(self.shape))  # type: ignore[arg-type]

    @property
    def tensor(self) -> Tensor:
        """The value as a node; a known one becomes a constant."""
        return self.build.tensor(self.content) if isinstance(self.content, Known) else self.content

    def array(self, what: str) -> np.ndarray:
        """The known array; raises ImportFailure, naming `what`, when the value depends on the model's inputs."""
        if isinstance(self.content, Known):
            return self.content.load()
        raise ImportFailure(
            f"{self.build.source}: {what} depends on the values of the model's inputs",
            source=self.build.source,
            remedy="shapes, axes and the like must follow from the inputs' dimensions; "
            "fix an input to a value with load_onnx(..., fixed={name: array})",
        )

    def ints(self, what: str) -> tuple[int, ...]:
        """The known integers of a rank 0 or 1 value."""
        return tuple(int(i) for i in self.array(what).reshape(-1))

    def scalar(self, what: str) -> Any:
        """The known single element."""
        array = self.array(what)
        if array.size != 1:
            raise ImportFailure(f"{self.build.source}: {what} must be one number", source=self.build.source)
        return array.reshape(-1)[0].item()

    # ---- operators --------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Value:
        return self.build.apply("add", self, other)

    def __sub__(self, other: Any) -> Value:
        return self.build.apply("sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self.build.apply("sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return self.build.apply("mul", self, other)

    def __truediv__(self, other: Any) -> Value:
        return self.build.apply("div", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return self.build.apply("div", other, self)

    def __mod__(self, other: Any) -> Value:
        return self.build.apply("mod", self, other)

    def __neg__(self) -> Value:
        return self.build.apply("neg", self)

    def __matmul__(self, other: Value) -> Value:
        return self.build.apply("matmul", self, other)

    def __lt__(self, other: Any) -> Value:
        return self.build.apply("less", self, other)

    def __le__(self, other: Any) -> Value:
        return self.build.apply("less_equal", self, other)

    def __gt__(self, other: Any) -> Value:
        return self.build.apply("less", other, self)

    def __ge__(self, other: Any) -> Value:
        return self.build.apply("less_equal", other, self)

    # ---- shapes -----------------------------------------------------------------------------------

    def reshape(self, shape: Sequence[int]) -> Value:
        """The same elements under another shape; no node when it is the same shape."""
        return self if tuple(shape) == self.shape else self.build.apply("reshape", self, shape=tuple(shape))

    def transpose(self, perm: Sequence[int]) -> Value:
        """Axes reordered; no node for the identity."""
        return self if list(perm) == list(range(self.rank)) else self.build.apply("transpose", self, perm=tuple(perm))

    def expand(self, shape: Sequence[int]) -> Value:
        """Broadcast to a shape; no node when it is the same shape."""
        return self if tuple(shape) == self.shape else self.build.apply("expand", self, shape=tuple(shape))

    def slice(self, axis: int, start: int, stop: int, step: int = 1) -> Value:
        """Elements `start:stop:step` of one axis, bounds within it."""
        starts, stops, steps = [0] * self.rank, list(self.shape), [1] * self.rank
        starts[axis], stops[axis], steps[axis] = start, stop, step
        if starts == [0] * self.rank and tuple(stops) == self.shape and step == 1:
            return self
        return self.build.apply("slice", self, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))

    def cast(self, dtype: DType) -> Value:
        """Converted to another dtype of the IR; no node when it has it already."""
        return self if dtype is self.dtype else self.build.apply("cast", self, dtype=dtype)


class Builder:
    """The graph under construction, and the source node being imported."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.source = graph.name

    def wrap(self, content: Tensor | Known | np.ndarray) -> Value:
        """A value from a node or an array."""
        return Value(self, Known.of(content, self.source) if isinstance(content, np.ndarray) else content)

    def tensor(self, known: Known) -> Tensor:
        """The constant or uniform node of a known value."""
        name = known.name or self.source
        if known.weight:
            return self.graph.constant(known.constant, source=name)
        array = known.load()
        if array.size and array.ndim and not any(array.strides):
            # One repeated value: never spelled out, whatever its size.
            first = Known(name, TensorType(known.type.dtype, ()), lambda: array.reshape(-1)[0]).narrowed()
            return self.graph.full(first.item(), array.shape, known.type.dtype, source=name)
        return self.graph.constant(known.narrowed(), source=name)

    def full(self, value: float, shape: Sequence[int], dtype: DType = DType.F32) -> Value:
        """A known tensor of one repeated value."""
        host = {DType.I32: np.int64, DType.U32: np.uint64}.get(dtype, dtype.numpy)
        return self.wrap(np.broadcast_to(np.asarray(value, host), tuple(shape)))

    def iota(self, length: int, dtype: DType = DType.I32) -> Value:
        """0, 1, 2, ... of rank 1."""
        return self.apply("iota", dtype=dtype, shape=(length,), axis=0)

    def apply(self, op: Op | str, *operands: Value | float, **attributes: Any) -> Value:
        """Add a node, or compute its value when every operand is known and small. Numbers take the others' dtype."""
        if isinstance(op, str):
            op = OPS[op](**attributes)
        dtype = next((o.dtype for o in operands if isinstance(o, Value)), DType.F32)
        values = [o if isinstance(o, Value) else self.full(o, (), dtype) for o in operands]
        folded = self._fold(op, values)
        if folded is not None:
            return folded
        return Value(self, self.graph.apply(op, *(v.tensor for v in values), source=self.source))

    def _fold(self, op: Op, values: Sequence[Value]) -> Value | None:
        contents = [v.content for v in values]
        if not op.foldable or any(not isinstance(c, Known) or c.weight for c in contents):
            return None
        types = [v.type for v in values]
        result_type = op.infer(types)
        if isinstance(result_type, TupleType) or int(size(result_type.shape)) > FOLD_LIMIT:  # type: ignore[arg-type]
            return None
        arrays = [c.load() for c in contents if isinstance(c, Known)]
        if any(a.size > FOLD_LIMIT for a in arrays) or _grows(op, result_type, arrays):
            return None
        result = np.asarray(op.evaluate([widen(a) for a in arrays], result_type))
        return self.wrap(_host(result, result_type.dtype, any(a.dtype == np.float64 for a in arrays)))


def _grows(op: Op, result: TensorType, arrays: Sequence[np.ndarray]) -> bool:
    """Whether computing would only spell out floats that the file holds compactly, such as rows of a small table."""
    count = int(size(result.shape))  # type: ignore[arg-type]
    return op.name in _REPEATING and result.dtype.is_float and count > max(SMALL, sum(a.size for a in arrays))


def _host(array: np.ndarray, dtype: DType, double: bool) -> np.ndarray:
    """A result in the dtype the host keeps it in: integers and, among float64 operands, floats stay 64 bits wide."""
    if dtype is DType.I32 or dtype is DType.U32:
        return array.astype(np.int64 if dtype is DType.I32 else np.uint64, copy=False)
    if dtype.is_float:
        return array.astype(np.float64) if double else round_to(array, dtype).astype(dtype.numpy)
    return array.astype(np.bool_, copy=False)
