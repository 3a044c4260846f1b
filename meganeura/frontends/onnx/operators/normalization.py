"""Softmax and normalisation."""

from __future__ import annotations

import math

from meganeura.frontends.onnx.node import OnnxNode
from meganeura.frontends.onnx.operators.axes import axis_of
from meganeura.frontends.onnx.registry import importer
from meganeura.frontends.onnx.value import Builder, Value
from meganeura.ir.types import DType


@importer("Softmax", "LogSoftmax")
def softmax(build: Builder, node: OnnxNode, x: Value) -> Value:
    name = "softmax" if node.op_type == "Softmax" else "log_softmax"
    if node.version >= 13:
        return build.apply(name, x, axis=axis_of(node, node.get("axis", -1), x.rank))
    # Older operator sets normalise over all axes from the given one on.
    axis = node.get("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    merged = x.reshape((*x.shape[:axis], math.prod(x.shape[axis:])))
    return build.apply(name, merged, axis=axis).reshape(x.shape)


@importer("LayerNormalization", since=17)
def layer_normalization(
    build: Builder, node: OnnxNode, x: Value, scale: Value, bias: Value | None = None
) -> tuple[Value, ...]:
    axis = axis_of(node, node.get("axis", -1), x.rank)
    eps, tail = node.get("epsilon", 1e-5), x.shape[axis:]
    rows, width = _rows(x, axis), math.prod(tail)
    weight = scale.expand(tail).reshape((width,))
    offset = build.full(0, (width,), x.dtype) if bias is None else bias.expand(tail).reshape((width,))
    y = build.apply("layer_norm", rows, weight, offset, eps=eps).reshape(x.shape)
    if node.wanted == 1:
        return (y,)
    last, kept = (rows.rank - 1,), (*x.shape[:axis], *(1,) * len(tail))
    wide = rows.cast(DType.F32) if node.get("stash_type", 1) == 1 else rows
    mean = build.apply("reduce_mean", wide, axes=last)
    centred = wide - mean
    variance = build.apply("reduce_mean", centred * centred, axes=last)
    deviation = build.apply("rsqrt", variance + eps)
    return y, mean.reshape(kept), deviation.reshape(kept)


@importer("RMSNormalization", since=23)
def rms_normalization(build: Builder, node: OnnxNode, x: Value, scale: Value) -> Value:
    axis = axis_of(node, node.get("axis", -1), x.rank)
    tail = x.shape[axis:]
    weight = scale.expand(tail).reshape((math.prod(tail),))
    return build.apply("rms_norm", _rows(x, axis), weight, eps=node.get("epsilon", 1e-5)).reshape(x.shape)


def _rows(x: Value, axis: int) -> Value:
    """The axes from `axis` on merged into the last one."""
    return x.reshape((*x.shape[:axis], math.prod(x.shape[axis:])))


@importer("BatchNormalization", since=6)
def batch_normalization(
    build: Builder, node: OnnxNode, x: Value, scale: Value, bias: Value, mean: Value, variance: Value
) -> Value:
    if node.get("training_mode", 0) or node.wanted > 1 or (node.version < 7 and not node.get("is_test", 0)):
        raise node.unsupported("training mode")
    if not node.get("spatial", 1):
        raise node.unsupported("spatial=0")
    factor = scale * build.apply("rsqrt", variance + node.get("epsilon", 1e-5))
    column = (scale.size, *(1,) * (x.rank - 2))
    return (x - mean.reshape(column)) * factor.reshape(column) + bias.reshape(column)


@importer("InstanceNormalization", since=6)
def instance_normalization(build: Builder, node: OnnxNode, x: Value, scale: Value, bias: Value) -> Value:
    channels = (x.shape[1], *(1,) * (x.rank - 2))
    y = _standardised(build, x, tuple(range(2, x.rank)), node.get("epsilon", 1e-5))
    return y * scale.reshape(channels) + bias.reshape(channels)


@importer("GroupNormalization", since=21)
def group_normalization(build: Builder, node: OnnxNode, x: Value, scale: Value, bias: Value) -> Value:
    groups, (batch, channels, *rest) = node.need("num_groups"), x.shape
    if channels % groups:
        raise node.invalid(f"{channels} channels do not form {groups} groups")
    grouped = x.reshape((batch, groups, channels // groups, *rest))
    y = _standardised(build, grouped, tuple(range(2, grouped.rank)), node.get("epsilon", 1e-5)).reshape(x.shape)
    column = (channels, *(1,) * len(rest))
    return y * scale.reshape(column) + bias.reshape(column)


def _standardised(build: Builder, x: Value, axes: tuple[int, ...], eps: float) -> Value:
    centred = x - build.apply("reduce_mean", x, axes=axes)
    variance = build.apply("reduce_mean", centred * centred, axes=axes)
    return centred * build.apply("rsqrt", variance + eps)


@importer("LpNormalization")
def lp_normalization(build: Builder, node: OnnxNode, x: Value) -> Value:
    axis, order = axis_of(node, node.get("axis", -1), x.rank), node.get("p", 2)
    if order not in (1, 2):
        raise node.invalid(f"p must be 1 or 2, not {order}")
    powers = build.apply("abs", x) if order == 1 else x * x
    norm = build.apply("reduce_sum", powers, axes=(axis,))
    norm = norm if order == 1 else build.apply("sqrt", norm)
    # A row of zeros stays zeros.
    zero = build.apply("equal", norm, 0)
    return build.apply("where", zero, build.full(0, (), x.dtype), x / build.apply("where", zero, norm + 1.0, norm))


@importer("MeanVarianceNormalization", since=9)
def mean_variance_normalization(build: Builder, node: OnnxNode, x: Value) -> Value:
    axes = tuple(sorted(axis_of(node, a, x.rank) for a in node.get("axes", (0, 2, 3))))
    centred = x - build.apply("reduce_mean", x, axes=axes)
    variance = build.apply("reduce_mean", centred * centred, axes=axes)
    return centred / (build.apply("sqrt", variance) + 1e-9)


@importer("GlobalAveragePool", "GlobalMaxPool")
def global_pool(build: Builder, node: OnnxNode, x: Value) -> Value:
    name = "reduce_mean" if node.op_type == "GlobalAveragePool" else "reduce_max"
    return build.apply(name, x, axes=tuple(range(2, x.rank)))
