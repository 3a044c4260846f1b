"""Reductions over axes, and argmax/argmin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from meganeura.ir.op import Op, Work
from meganeura.ir.types import DType, TensorType, ValueType


@dataclass(frozen=True)
class Reduction(Op):
    """Reduce over sorted, non-negative `axes`; reduced dimensions stay as 1 when `keepdims`."""

    function: ClassVar[Callable[..., Any]]
    empty: ClassVar[bool] = True
    accepts_integer: ClassVar[bool] = True
    axes: tuple[int, ...]
    keepdims: bool = True

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        (x,) = inputs
        if list(self.axes) != sorted(set(self.axes)) or any(not 0 <= a < x.rank for a in self.axes):
            raise self.fail(f"axes {self.axes} must be sorted, distinct and below the rank", inputs)
        if x.dtype is DType.BOOL or (x.dtype.is_integer and not self.accepts_integer):
            raise self.fail(f"does not take {x.dtype.value}", inputs)
        if not self.empty and any(x.shape[a] == 0 for a in self.axes):
            raise self.fail("reduces an empty axis and has no neutral value", inputs)
        kept = [1 if a in self.axes else d for a, d in enumerate(x.shape) if self.keepdims or a not in self.axes]
        return TensorType(x.dtype, tuple(kept))

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        with np.errstate(all="ignore"):
            return type(self).function(inputs[0], axis=self.axes, keepdims=self.keepdims)

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        assert isinstance(output, TensorType)
        return Work(float(inputs[0].size), inputs[0].nbytes, output.nbytes, "reduce")  # type: ignore[arg-type]


@dataclass(frozen=True)
class ReduceSum(Reduction):
    """Sum; 0 over an empty axis."""

    name: ClassVar[str] = "reduce_sum"
    function: ClassVar[Callable[..., Any]] = staticmethod(np.sum)


@dataclass(frozen=True)
class ReduceProd(Reduction):
    """Product; 1 over an empty axis."""

    name: ClassVar[str] = "reduce_prod"
    function: ClassVar[Callable[..., Any]] = staticmethod(np.prod)


@dataclass(frozen=True)
class ReduceMax(Reduction):
    """Maximum; NaN wins; an empty axis is an error."""

    name: ClassVar[str] = "reduce_max"
    empty: ClassVar[bool] = False
    function: ClassVar[Callable[..., Any]] = staticmethod(np.max)


@dataclass(frozen=True)
class ReduceMin(Reduction):
    """Minimum; NaN wins; an empty axis is an error."""

    name: ClassVar[str] = "reduce_min"
    empty: ClassVar[bool] = False
    function: ClassVar[Callable[..., Any]] = staticmethod(np.min)


@dataclass(frozen=True)
class ReduceMean(Reduction):
    """Arithmetic mean of floats."""

    name: ClassVar[str] = "reduce_mean"
    empty: ClassVar[bool] = False
    accepts_integer: ClassVar[bool] = False
    function: ClassVar[Callable[..., Any]] = staticmethod(np.mean)


@dataclass(frozen=True)
class ArgMax(Op):
    """Index (i32) of the first largest element along `axis`; the axis stays as 1 when `keepdims`."""

    name: ClassVar[str] = "argmax"
    axis: int
    keepdims: bool = True

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        (x,) = inputs
        if not 0 <= self.axis < x.rank:
            raise self.fail(f"axis {self.axis} is out of range", inputs)
        if x.dtype is DType.BOOL or x.shape[self.axis] == 0:
            raise self.fail("needs numbers along a non-empty axis", inputs)
        shape = [1 if a == self.axis else d for a, d in enumerate(x.shape) if self.keepdims or a != self.axis]
        return TensorType(DType.I32, tuple(shape))

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        return np.argmax(inputs[0], axis=self.axis, keepdims=self.keepdims).astype(np.int64)

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        assert isinstance(output, TensorType)
        return Work(float(inputs[0].size), inputs[0].nbytes, output.nbytes, "reduce")  # type: ignore[arg-type]
