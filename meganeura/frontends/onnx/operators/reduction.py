"""Reductions over axes, running sums, and positions of extremes."""

from __future__ import annotations

import math

import numpy as np

from meganeura.frontends.onnx.node import OnnxNode
from meganeura.frontends.onnx.operators.axes import axes_of, axis_of
from meganeura.frontends.onnx.registry import importer
from meganeura.frontends.onnx.value import Builder, Value
from meganeura.ir.types import DType

_PLAIN = {
    "ReduceSum": "reduce_sum",
    "ReduceMean": "reduce_mean",
    "ReduceMax": "reduce_max",
    "ReduceMin": "reduce_min",
    "ReduceProd": "reduce_prod",
    "ReduceL1": "reduce_sum",
    "ReduceL2": "reduce_sum",
    "ReduceSumSquare": "reduce_sum",
    "ReduceLogSum": "reduce_sum",
}


@importer(*_PLAIN, "ReduceLogSumExp", known=(1,))
def reduce(build: Builder, node: OnnxNode, x: Value, axes: Value | None = None) -> Value:
    over = axes_of(node, x.rank, axes, since_operand=13 if node.op_type == "ReduceSum" else 18)
    if not over:
        if node.get("noop_with_empty_axes", 0):
            # Nothing is reduced, but what the operator does to each element still happens.
            over = ()
        else:
            over = tuple(range(x.rank))
    over, keep = tuple(sorted(over)), bool(node.get("keepdims", 1))
    if node.op_type == "ReduceLogSumExp":
        return _log_sum_exp(build, x, over, keep)
    if node.op_type == "ReduceL1":
        x = build.apply("abs", x)
    elif node.op_type in ("ReduceL2", "ReduceSumSquare"):
        x = x * x
    total = _reduce(build, _PLAIN[node.op_type], x, over, keep)
    if node.op_type == "ReduceL2":
        floats = total if total.dtype.is_float else total.cast(DType.F32)
        return build.apply("sqrt", floats).cast(total.dtype)
    return build.apply("log", total) if node.op_type == "ReduceLogSum" else total


def _reduce(build: Builder, name: str, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    """One reduction, with what the IR's ops leave out: no axes, empty axes, booleans, means of integers."""
    if not axes:
        return x
    if name in ("reduce_max", "reduce_min"):
        if any(x.shape[axis] == 0 for axis in axes):
            kept = [1 if a in axes else d for a, d in enumerate(x.shape) if keep or a not in axes]
            return build.full(_neutral(x.dtype, lowest=name == "reduce_max"), kept, x.dtype)
        if x.dtype is DType.BOOL:
            return _reduce(build, name, x.cast(DType.I32), axes, keep).cast(DType.BOOL)
    if name == "reduce_mean" and not x.dtype.is_float:
        count = math.prod(x.shape[axis] for axis in axes)
        return build.apply("reduce_sum", x, axes=axes, keepdims=keep) / count
    return build.apply(name, x, axes=axes, keepdims=keep)


def _neutral(dtype: DType, lowest: bool) -> float:
    if dtype.is_float:
        return -math.inf if lowest else math.inf
    if dtype is DType.BOOL:
        return float(not lowest)
    limits = np.iinfo(dtype.numpy)
    return limits.min if lowest else limits.max


def _log_sum_exp(build: Builder, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    """max + log(sum(exp(x - max))), which does not overflow where the sum alone would."""
    if not axes:
        return x
    top = _reduce(build, "reduce_max", x, axes, True)
    # An infinite maximum would give inf - inf; nothing is subtracted then.
    finite = build.apply("abs", top) < math.inf
    shift = build.apply("where", finite, top, build.full(0, (), x.dtype))
    total = build.apply("reduce_sum", build.apply("exp", x - shift), axes=axes, keepdims=keep)
    if not keep:
        shift = shift.reshape(total.shape)
    return build.apply("log", total) + shift


@importer("ArgMax", "ArgMin")
def arg_extreme(build: Builder, node: OnnxNode, x: Value) -> Value:
    axis = axis_of(node, node.get("axis", 0), x.rank)
    if node.op_type == "ArgMin":
        # -1 - x turns the order of integers around without overflow.
        x = -x if x.dtype.is_float else build.full(-1, (), x.dtype) - x
    last = bool(node.get("select_last_index", 0))
    if last:
        x = build.apply("flip", x, axes=(axis,))
    found = build.apply("argmax", x, axis=axis, keepdims=bool(node.get("keepdims", 1)))
    return (x.shape[axis] - 1) - found if last else found


@importer("CumSum", known=(1,), since=11)
def cumulative_sum(build: Builder, node: OnnxNode, x: Value, axis: Value) -> Value:
    """A product with a triangular matrix of ones."""
    along = axis_of(node, axis.ints("the axis")[0], x.rank)
    length = x.shape[along]
    given, result = build.iota(length).reshape((length, 1)), build.iota(length).reshape((1, length))
    if node.get("reverse", 0):
        given, result = result, given
    counts = (given < result if node.get("exclusive", 0) else given <= result).cast(x.dtype)
    order = [a for a in range(x.rank) if a != along] + [along]
    return (x.transpose(order) @ counts).transpose([order.index(a) for a in range(x.rank)])
