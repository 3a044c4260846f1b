"""Operators whose element positions are data."""

from __future__ import annotations

import math

import numpy as np

from meganeura.frontends.onnx.node import OnnxNode
from meganeura.frontends.onnx.operators.axes import axis_of
from meganeura.frontends.onnx.registry import importer
from meganeura.frontends.onnx.value import Builder, Value
from meganeura.ir.types import DType


@importer("Gather")
def gather(build: Builder, node: OnnxNode, x: Value, indices: Value) -> Value:
    axis = axis_of(node, node.get("axis", 0), x.rank)
    return build.apply("gather", x, _checked(node, indices, x.shape[axis]), axis=axis)


@importer("GatherElements", since=11)
def gather_elements(build: Builder, node: OnnxNode, x: Value, indices: Value) -> Value:
    axis = axis_of(node, node.get("axis", 0), x.rank)
    return build.apply("gather_elements", x, _checked(node, indices, x.shape[axis]), axis=axis)


def _checked(node: OnnxNode, indices: Value, length: int) -> Value:
    """Known indices are checked here; the device clamps the others."""
    if indices.known:
        array = indices.array("the indices")
        if array.size and (array.min() < -length or array.max() >= length):
            raise node.invalid(f"an index lies outside {-length}..{length - 1}")
    return indices


@importer("GatherND", since=11)
def gather_nd(build: Builder, node: OnnxNode, x: Value, indices: Value) -> Value:
    """The indexed axes are merged into one, which a single gather over computed positions reads."""
    batch = node.get("batch_dims", 0)
    depth = indices.shape[-1]
    lead, indexed, rest = x.shape[:batch], x.shape[batch : batch + depth], x.shape[batch + depth :]
    if depth > x.rank - batch or indices.shape[:batch] != lead:
        raise node.invalid(f"indices {list(indices.shape)} do not fit {list(x.shape)}")
    count = math.prod(indexed)
    position: Value | None = None
    for axis, length in enumerate(indexed):
        part = indices.slice(indices.rank - 1, axis, axis + 1).reshape(indices.shape[:-1])
        part = build.apply("where", part < 0, part + length, part)
        position = part if position is None else position * length + part
    if position is None:
        raise node.unsupported("indices of no axes")
    if batch:
        # Batches are laid one after the other along the merged axis.
        start = np.arange(math.prod(lead), dtype=np.int64).reshape(*lead, *(1,) * (position.rank - batch)) * count
        position = position + build.wrap(start)
    return build.apply("gather", x.reshape((math.prod(lead) * count, *rest)), position, axis=0)


@importer("OneHot", known=(1,), since=9)
def one_hot(build: Builder, node: OnnxNode, indices: Value, depth: Value, values: Value) -> Value:
    length, rank = int(depth.scalar("the depth")), indices.rank + 1
    axis = axis_of(node, node.get("axis", -1), rank)
    index = indices.cast(DType.I32)
    index = build.apply("where", index < 0, index + length, index)
    index = index.reshape((*index.shape[:axis], 1, *index.shape[axis:]))
    places = build.iota(length).reshape([length if a == axis else 1 for a in range(rank)])
    off, on = (values.slice(0, i, i + 1).reshape(()) for i in (0, 1))
    return build.apply("where", build.apply("equal", places, index), on, off)


@importer("Hardmax", since=13)
def hardmax(build: Builder, node: OnnxNode, x: Value) -> Value:
    axis = axis_of(node, node.get("axis", -1), x.rank)
    places = build.iota(x.shape[axis]).reshape([d if a == axis else 1 for a, d in enumerate(x.shape)])
    return build.apply("equal", places, build.apply("argmax", x, axis=axis)).cast(x.dtype)


@importer("Trilu", known=(1,), since=14)
def trilu(build: Builder, node: OnnxNode, x: Value, diagonal: Value | None = None) -> Value:
    offset = 0 if diagonal is None else int(diagonal.scalar("k"))
    rows, columns = x.shape[-2:]
    row = build.iota(rows).reshape((rows, 1)) + offset
    column = build.iota(columns).reshape((1, columns))
    kept = row <= column if node.get("upper", 1) else column <= row
    return build.apply("where", kept, x, build.full(0, (), x.dtype))


@importer("ReverseSequence", known=(1,), since=10)
def reverse_sequence(build: Builder, node: OnnxNode, x: Value, lengths: Value) -> Value:
    time, batch = node.get("time_axis", 0), node.get("batch_axis", 1)
    steps = np.arange(x.shape[time])
    order = np.stack([np.where(steps < n, n - 1 - steps, steps) for n in lengths.ints("the lengths")])
    spread = [length if axis in (time, batch) else 1 for axis, length in enumerate(x.shape)]
    order = (order.T if time < batch else order).reshape(spread)
    indices = build.wrap(np.ascontiguousarray(np.broadcast_to(order, x.shape)))
    return build.apply("gather_elements", x, indices, axis=time)
