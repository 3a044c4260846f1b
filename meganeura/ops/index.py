"""Ops whose element positions are data: gathers, and the in-place update of a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from meganeura.ir.op import Kind, Op, Work
from meganeura.ir.types import DType, TensorType, ValueType

if TYPE_CHECKING:
    from meganeura.ir.graph import Tensor


@dataclass(frozen=True)
class Gather(Op):
    """`take(x, indices, axis)`: inputs x and integer indices of any rank, which replace the axis.

    An index counts from the end when negative; out of range is clamped to the nearest element, as the
    device does (front ends and the runtime check what can be checked beforehand).
    """

    name: ClassVar[str] = "gather"
    arity: ClassVar[int] = 2
    axis: int

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        x, indices = inputs
        if not 0 <= self.axis < x.rank:
            raise self.fail(f"axis {self.axis} is out of range", inputs)
        if not indices.dtype.is_integer:
            raise self.fail("indices must be integers", inputs)
        return TensorType(x.dtype, x.shape[: self.axis] + indices.shape + x.shape[self.axis + 1 :])

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        x, indices = inputs
        return np.take(x, _resolve(indices, x.shape[self.axis]), axis=self.axis)

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        assert isinstance(output, TensorType)
        return Work(0, output.nbytes + inputs[1].nbytes, output.nbytes, "move")


@dataclass(frozen=True)
class GatherElements(Op):
    """`take_along_axis(x, indices, axis)`: indices have x's rank, and its dimensions or less outside the axis."""

    name: ClassVar[str] = "gather_elements"
    arity: ClassVar[int] = 2
    axis: int

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        x, indices = inputs
        if x.rank != indices.rank or not 0 <= self.axis < x.rank or not indices.dtype.is_integer:
            raise self.fail("needs integer indices of the same rank and a valid axis", inputs)
        for axis, (have, want) in enumerate(zip(x.shape, indices.shape, strict=True)):
            if axis != self.axis and isinstance(have, int) and isinstance(want, int) and want > have:
                raise self.fail(f"indices are longer than the operand along axis {axis}", inputs)
        return TensorType(x.dtype, indices.shape)

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        x, indices = inputs
        trimmed = x[tuple(slice(None) if a == self.axis else slice(n) for a, n in enumerate(indices.shape))]
        return np.take_along_axis(trimmed, _resolve(indices, x.shape[self.axis]), axis=self.axis)

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        assert isinstance(output, TensorType)
        return Work(0, output.nbytes + inputs[1].nbytes, output.nbytes, "move")


@dataclass(frozen=True)
class StateUpdate(Op):
    """`state` with `rows` written at `position` along `axis`; the device does it in place.

    Inputs: state `[.., n, ..]`, rows with `m <= n` along `axis` and equal dimensions elsewhere, and position,
    u32 `[1]` or, one per leading batch entry, u32 `[batch]` (then axis > 0 and `batch == state.shape[0]`).
    Rows past the end are dropped; the caller checks the position before anything runs.
    """

    name: ClassVar[str] = "state_update"
    arity: ClassVar[int] = 3
    foldable: ClassVar[bool] = False
    axis: int

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        state, rows, position = inputs
        if not 0 <= self.axis < state.rank or state.rank != rows.rank or state.dtype != rows.dtype:
            raise self.fail("state and rows must agree in rank and dtype, the axis lie within", inputs)
        if any(a != b for i, (a, b) in enumerate(zip(state.shape, rows.shape, strict=True)) if i != self.axis):
            raise self.fail("state and rows differ outside the axis", inputs)
        here, there = state.shape[self.axis], rows.shape[self.axis]
        if isinstance(here, int) and isinstance(there, int) and there > here:
            raise self.fail("more rows than the state holds", inputs)
        batched = self.axis > 0 and position.shape == state.shape[:1]
        if position.dtype is not DType.U32 or not (position.shape == (1,) or batched):
            raise self.fail("position must be u32[1] or u32[batch]", inputs)
        return state

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        state, rows, position = inputs
        result = np.array(state)
        count = rows.shape[self.axis]
        batches = range(position.size) if position.size > 1 else [None]
        for batch in batches:
            start = int(position[0 if batch is None else batch])
            kept = max(0, min(count, state.shape[self.axis] - start))
            target = [slice(None)] * state.ndim
            origin = [slice(None)] * state.ndim
            target[self.axis], origin[self.axis] = slice(start, start + kept), slice(0, kept)
            if batch is not None:
                target[0] = origin[0] = slice(batch, batch + 1)
            result[tuple(target)] = rows[tuple(origin)]
        return result

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        return Work(0, inputs[1].nbytes, inputs[1].nbytes, "move")


@dataclass(frozen=True)
class CacheWrite(StateUpdate):
    """Key/value cache update: `state_update` along the row axis of a cache `[.., max_seq, width]`."""

    name: ClassVar[str] = "cache_write"
    kind: ClassVar[Kind] = Kind.COMPOSITE

    def decompose(self, inputs: Sequence[Tensor]) -> Tensor:
        cache, rows, position = inputs
        return cache.graph.apply(StateUpdate(self.axis), cache, rows, position)


@dataclass(frozen=True)
class Embedding(Op):
    """Rows of a table `[vocabulary, width]` by integer ids of any shape: `[*ids, width]`."""

    name: ClassVar[str] = "embedding"
    arity: ClassVar[int] = 2
    kind: ClassVar[Kind] = Kind.COMPOSITE

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        table, _ = inputs
        if table.rank != 2:
            raise self.fail("the table must have rank 2", inputs)
        return Gather(0).infer(inputs)

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        return Gather(0).evaluate(inputs, output)

    def decompose(self, inputs: Sequence[Tensor]) -> Tensor:
        return inputs[0].graph.apply(Gather(0), *inputs)

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        return Gather(0).work(inputs, output)


def _resolve(indices: np.ndarray, length: int) -> np.ndarray:
    positive = np.where(indices < 0, indices + length, indices)
    return np.clip(positive, 0, max(length - 1, 0))
