"""Ops that move or re-index elements without arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from meganeura.errors import GraphError
from meganeura.ir.dims import Dim, Shape, concrete, size
from meganeura.ir.op import Op, Work
from meganeura.ir.types import TensorType, ValueType, broadcast_shapes


@dataclass(frozen=True)
class _Movement(Op):
    view: ClassVar[bool] = True

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        assert isinstance(output, TensorType)
        moved = output.nbytes
        return Work(0, moved, moved, "move")


@dataclass(frozen=True)
class Reshape(_Movement):
    """The same elements in row-major order under `shape`."""

    name: ClassVar[str] = "reshape"
    shape: Shape

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        (x,) = inputs
        if size(x.shape) != size(self.shape):
            raise self.fail(f"{x} has another number of elements than {list(self.shape)}", inputs)
        return TensorType(x.dtype, self.shape)

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        return inputs[0].reshape(concrete(self.shape))

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        return Work(0, 0, 0, "move")


@dataclass(frozen=True)
class Transpose(_Movement):
    """Axis `i` of the result is axis `perm[i]` of the operand."""

    name: ClassVar[str] = "transpose"
    perm: tuple[int, ...]

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        (x,) = inputs
        if sorted(self.perm) != list(range(x.rank)):
            raise self.fail(f"perm {self.perm} is not a permutation of the axes", inputs)
        return TensorType(x.dtype, tuple(x.shape[p] for p in self.perm))

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        return inputs[0].transpose(self.perm)


@dataclass(frozen=True)
class Expand(_Movement):
    """NumPy's broadcast_to: repeat size-1 and missing leading dimensions."""

    name: ClassVar[str] = "expand"
    shape: Shape

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        (x,) = inputs
        try:
            fits = broadcast_shapes(x.shape, self.shape) == self.shape
        except GraphError:
            fits = False
        if not fits:
            raise self.fail(f"cannot broadcast to {list(self.shape)}", inputs)
        return TensorType(x.dtype, self.shape)

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        return np.broadcast_to(inputs[0], concrete(self.shape))


@dataclass(frozen=True)
class Slice(_Movement):
    """Elements `start, start + step, ...` below `stop` along every axis; steps are positive."""

    name: ClassVar[str] = "slice"
    starts: Shape
    stops: Shape
    steps: tuple[int, ...]

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        (x,) = inputs
        if not len(self.starts) == len(self.stops) == len(self.steps) == x.rank:
            raise self.fail("needs a start, stop and step for every axis", inputs)
        shape: list[Dim] = []
        for dim, start, stop, step in zip(x.shape, self.starts, self.stops, self.steps, strict=True):
            length = stop - start
            if isinstance(start, int) and isinstance(stop, int):
                beyond = isinstance(dim, int) and stop > dim
                if start < 0 or step < 1 or stop < start or beyond:
                    raise self.fail(f"{start}:{stop}:{step} does not fit dimension {dim}", inputs)
                length = -(-(stop - start) // step)
            elif step != 1:
                raise self.fail("a stepped slice of a symbolic dimension", inputs)
            shape.append(length)
        return TensorType(x.dtype, tuple(shape))

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        return inputs[0][tuple(map(slice, self.starts, self.stops, self.steps))]


@dataclass(frozen=True)
class Flip(_Movement):
    """Reverse the order along `axes`."""

    name: ClassVar[str] = "flip"
    axes: tuple[int, ...]

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        (x,) = inputs
        if list(self.axes) != sorted(set(self.axes)) or any(not 0 <= a < x.rank for a in self.axes):
            raise self.fail(f"axes {self.axes} must be sorted, distinct and below the rank", inputs)
        return x

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        return np.flip(inputs[0], self.axes)


@dataclass(frozen=True)
class Concat(_Movement):
    """Join along `axis`; the other dimensions agree."""

    name: ClassVar[str] = "concat"
    arity: ClassVar[tuple[int, None]] = (1, None)
    axis: int

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        first = inputs[0]
        if not 0 <= self.axis < first.rank:
            raise self.fail(f"axis {self.axis} is out of range", inputs)
        total: Dim = 0
        for x in inputs:
            rest = x.shape[: self.axis] + x.shape[self.axis + 1 :]
            if x.dtype != first.dtype or rest != first.shape[: self.axis] + first.shape[self.axis + 1 :]:
                raise self.fail(f"operands differ outside axis {self.axis}", inputs)
            total = total + x.shape[self.axis]
        return TensorType(first.dtype, (*first.shape[: self.axis], total, *first.shape[self.axis + 1 :]))

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        return np.concatenate(list(inputs), axis=self.axis)


@dataclass(frozen=True)
class Pad(_Movement):
    """Add `low[i]` elements of `value` before and `high[i]` after axis i."""

    name: ClassVar[str] = "pad"
    low: tuple[int, ...]
    high: tuple[int, ...]
    value: float = 0.0

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        (x,) = inputs
        if not len(self.low) == len(self.high) == x.rank or min((*self.low, *self.high, 0)) < 0:
            raise self.fail("needs a non-negative count before and after every axis", inputs)
        return TensorType(x.dtype, tuple(d + a + b for d, a, b in zip(x.shape, self.low, self.high, strict=True)))

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        return np.pad(inputs[0], list(zip(self.low, self.high, strict=True)), constant_values=self.value)
