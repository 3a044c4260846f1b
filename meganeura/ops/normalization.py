"""Softmax and normalisation over the last axis or a chosen one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from meganeura.ir.op import Kind, Op, Work
from meganeura.ir.types import TensorType, TupleType, ValueType, broadcast_shapes
from meganeura.ops.elementwise import Exp, Log, Rsqrt
from meganeura.ops.reduce import ReduceMax, ReduceMean, ReduceSum

if TYPE_CHECKING:
    from meganeura.ir.graph import Tensor


@dataclass(frozen=True)
class _RowOp(Op):
    """Common to ops that read whole rows and write rows of the same shape."""

    kind: ClassVar[Kind] = Kind.COMPOSITE

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        assert isinstance(output, TensorType)
        return Work(12.0 * float(output.size), sum(i.nbytes for i in inputs), output.nbytes, "reduce")  # type: ignore[arg-type]


@dataclass(frozen=True)
class _SoftmaxLike(_RowOp):
    axis: int

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        (x,) = inputs
        if not 0 <= self.axis < x.rank or not x.dtype.is_float:
            raise self.fail(f"needs floats and an axis below the rank, not {self.axis}", inputs)
        return x


@dataclass(frozen=True)
class Softmax(_SoftmaxLike):
    """exp(x - max) / sum(exp(x - max)) along `axis`; a row of -inf only is NaN, as in the primitives."""

    name: ClassVar[str] = "softmax"

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        (x,) = inputs
        if x.shape[self.axis] == 0:
            return x
        with np.errstate(all="ignore"):
            weights = np.exp(x - x.max(axis=self.axis, keepdims=True))
            return weights / weights.sum(axis=self.axis, keepdims=True)

    def decompose(self, inputs: Sequence[Tensor]) -> Tensor:
        (x,) = inputs
        if x.shape[self.axis] == 0:
            return x
        graph = x.graph
        weights = graph.apply(Exp(), x - graph.apply(ReduceMax((self.axis,)), x))
        return weights / graph.apply(ReduceSum((self.axis,)), weights)


@dataclass(frozen=True)
class LogSoftmax(_SoftmaxLike):
    """(x - max) - log(sum(exp(x - max))) along `axis`."""

    name: ClassVar[str] = "log_softmax"

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        (x,) = inputs
        if x.shape[self.axis] == 0:
            return x
        with np.errstate(all="ignore"):
            shifted = x - x.max(axis=self.axis, keepdims=True)
            return shifted - np.log(np.exp(shifted).sum(axis=self.axis, keepdims=True))

    def decompose(self, inputs: Sequence[Tensor]) -> Tensor:
        (x,) = inputs
        if x.shape[self.axis] == 0:
            return x
        graph = x.graph
        shifted = x - graph.apply(ReduceMax((self.axis,)), x)
        return shifted - graph.apply(Log(), graph.apply(ReduceSum((self.axis,)), graph.apply(Exp(), shifted)))


@dataclass(frozen=True)
class LayerNorm(_RowOp):
    """(x - mean) * rsqrt(variance + eps) * weight + bias over the last axis.

    Inputs: x `[.., n]`, weight `[n]`, bias `[n]`. The variance is the mean of squared deviations (two passes).
    """

    name: ClassVar[str] = "layer_norm"
    arity: ClassVar[int] = 3
    eps: float = 1e-5

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        x, *rest = inputs
        if x.rank == 0 or not x.dtype.is_float or x.shape[-1] == 0:
            raise self.fail("needs floats along a non-empty last axis", inputs)
        if any(r.shape != x.shape[-1:] or r.dtype != x.dtype for r in rest):
            raise self.fail("weight and bias must have the last axis' length and x's dtype", inputs)
        return x

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        x, weight, bias = inputs
        with np.errstate(all="ignore"):
            centred = x - x.mean(axis=-1, keepdims=True)
            variance = (centred**2).mean(axis=-1, keepdims=True)
            return centred / np.sqrt(variance + self.eps) * weight + bias

    def decompose(self, inputs: Sequence[Tensor]) -> Tensor:
        x, weight, bias = inputs
        graph, last = x.graph, (x.rank - 1,)
        centred = x - graph.apply(ReduceMean(last), x)
        variance = graph.apply(ReduceMean(last), centred * centred)
        return centred * graph.apply(Rsqrt(), variance + self.eps) * weight + bias


@dataclass(frozen=True)
class RmsNorm(_RowOp):
    """x * rsqrt(mean(x**2) + eps) * weight over the last axis; inputs x `[.., n]`, weight `[n]`."""

    name: ClassVar[str] = "rms_norm"
    arity: ClassVar[int] = 2
    eps: float = 1e-5

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        return LayerNorm.infer(self, inputs)  # type: ignore[arg-type]

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        x, weight = inputs
        with np.errstate(all="ignore"):
            return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + self.eps) * weight

    def decompose(self, inputs: Sequence[Tensor]) -> Tensor:
        x, weight = inputs
        graph = x.graph
        mean_square = graph.apply(ReduceMean((x.rank - 1,)), x * x)
        return x * graph.apply(Rsqrt(), mean_square + self.eps) * weight


@dataclass(frozen=True)
class ResidualRmsNorm(_RowOp):
    """`sum = x + residual` and `rms_norm(sum, weight)` in one kernel; outputs (sum, normalised)."""

    name: ClassVar[str] = "residual_rms_norm"
    arity: ClassVar[int] = 3
    kind: ClassVar[Kind] = Kind.KERNEL
    eps: float = 1e-5

    def infer(self, inputs: Sequence[TensorType]) -> ValueType:

        x, residual, weight = inputs
        if x.dtype != residual.dtype or broadcast_shapes(x.shape, residual.shape) != x.shape:
            raise self.fail("the residual must broadcast to x", inputs)
        RmsNorm(self.eps).infer([x, weight])
        return TupleType((x, x))

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        total = inputs[0] + inputs[1]
        return total, RmsNorm(self.eps).evaluate([total, inputs[2]], output)

    def decompose(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        total = inputs[0] + inputs[1]
        return total, total.graph.apply(RmsNorm(self.eps), total, inputs[2])

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        x = inputs[0]
        return Work(13.0 * float(x.size), sum(i.nbytes for i in inputs), 2.0 * x.nbytes, "reduce")  # type: ignore[arg-type]
