"""Leaves of a graph: inputs, states, constants, uniform tensors, index ramps; and projections of tuples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from meganeura.ir.dims import Shape, concrete
from meganeura.ir.op import Op, Work
from meganeura.ir.types import DType, TensorType, TupleType, ValueType


@dataclass(frozen=True)
class _Leaf(Op):
    arity: ClassVar[int] = 0
    foldable: ClassVar[bool] = False

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        return Work(0, 0, 0, "move")


@dataclass(frozen=True)
class Input(_Leaf):
    """A value given at every call."""

    name: ClassVar[str] = "input"
    name_of_leaf: str
    dtype: DType
    shape: Shape

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        return TensorType(self.dtype, self.shape)


@dataclass(frozen=True)
class State(Input):
    """A value that stays on the device from one call to the next."""

    name: ClassVar[str] = "state"


@dataclass(frozen=True)
class Constant(_Leaf):
    """Data known at compile time, held by the graph under `key`."""

    name: ClassVar[str] = "constant"
    key: str
    dtype: DType
    shape: Shape

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        return TensorType(self.dtype, self.shape)


@dataclass(frozen=True)
class Full(_Leaf):
    """One value repeated; integers and booleans are held as floats (exact up to 2**53)."""

    name: ClassVar[str] = "full"
    foldable: ClassVar[bool] = True
    value: float
    dtype: DType
    shape: Shape

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        return TensorType(self.dtype, self.shape)

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        kind = np.float64 if self.dtype.is_float else np.bool_ if self.dtype is DType.BOOL else np.int64
        return np.full(concrete(self.shape), self.value, dtype=kind)


@dataclass(frozen=True)
class Iota(_Leaf):
    """0, 1, 2, ... along `axis`, repeated along the others."""

    name: ClassVar[str] = "iota"
    foldable: ClassVar[bool] = True
    dtype: DType
    shape: Shape
    axis: int

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        if not 0 <= self.axis < len(self.shape):
            raise self.fail(f"axis {self.axis} is out of range", [TensorType(self.dtype, self.shape)])
        return TensorType(self.dtype, self.shape)

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        shape = concrete(self.shape)
        ramp = np.arange(shape[self.axis])
        ramp = ramp.reshape([-1 if a == self.axis else 1 for a in range(len(shape))])
        return np.broadcast_to(ramp.astype(np.float64 if self.dtype.is_float else np.int64), shape)


@dataclass(frozen=True)
class Proj(Op):
    """One output of a node that has several."""

    name: ClassVar[str] = "proj"
    view: ClassVar[bool] = True
    foldable: ClassVar[bool] = False
    index: int

    def infer(self, inputs: Sequence[Any]) -> TensorType:
        (value,) = inputs
        if not isinstance(value, TupleType) or not 0 <= self.index < len(value.items):
            raise self.fail(f"no output {self.index}", inputs)
        return value.items[self.index]

    def evaluate(self, inputs: Sequence[Any], output: ValueType) -> Any:
        return inputs[0][self.index]

    def work(self, inputs: Sequence[Any], output: ValueType) -> Work:
        return Work(0, 0, 0, "move")
