"""Operators about shapes, and those that move elements without arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from meganeura.frontends.onnx.elements import ELEMENTS
from meganeura.frontends.onnx.node import OnnxNode
from meganeura.frontends.onnx.operators.axes import axes_of, axis_of
from meganeura.frontends.onnx.registry import importer
from meganeura.frontends.onnx.value import FOLD_LIMIT, Builder, Value
from meganeura.ir.types import DType, broadcast_shapes

if TYPE_CHECKING:
    from meganeura.frontends.onnx.importer import Importer


@importer("Shape")
def shape(build: Builder, node: OnnxNode, x: Value) -> Value:
    bounds = slice(node.get("start", 0), node.get("end"))
    return build.wrap(np.asarray(x.shape[bounds], np.int64))


@importer("Size")
def size(build: Builder, node: OnnxNode, x: Value) -> Value:
    return build.wrap(np.asarray(x.size, np.int64))


@importer("Reshape", known=(1,), since=5)
def reshape(build: Builder, node: OnnxNode, x: Value, wanted: Value) -> Value:
    dims = list(wanted.ints("the shape"))
    if not node.get("allowzero", 0):
        dims = [x.shape[axis] if dim == 0 else dim for axis, dim in enumerate(dims)]
    if dims.count(-1) > 1 or any(dim < -1 for dim in dims):
        raise node.invalid(f"cannot reshape to {dims}")
    if -1 in dims:
        rest = math.prod(dim for dim in dims if dim != -1)
        if rest == 0 or x.size % rest:
            raise node.invalid(f"{list(x.shape)} does not reshape to {dims}")
        dims[dims.index(-1)] = x.size // rest
    return x.reshape(dims)


@importer("Flatten")
def flatten(build: Builder, node: OnnxNode, x: Value) -> Value:
    axis = node.get("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    return x.reshape((math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@importer("Squeeze", known=(1,))
def squeeze(build: Builder, node: OnnxNode, x: Value, axes: Value | None = None) -> Value:
    dropped = axes_of(node, x.rank, axes, since_operand=13)
    if dropped is None:
        dropped = tuple(axis for axis, dim in enumerate(x.shape) if dim == 1)
    if any(x.shape[axis] != 1 for axis in dropped):
        raise node.invalid(f"axes {dropped} of {list(x.shape)} are not all of length 1")
    return x.reshape([dim for axis, dim in enumerate(x.shape) if axis not in dropped])


@importer("Unsqueeze", known=(1,))
def unsqueeze(build: Builder, node: OnnxNode, x: Value, axes: Value | None = None) -> Value:
    count = len(node.need("axes")) if node.version < 13 else 0 if axes is None else axes.size
    added = axes_of(node, x.rank + count, axes, since_operand=13) or ()
    rest = iter(x.shape)
    return x.reshape([1 if axis in added else next(rest) for axis in range(x.rank + count)])


@importer("Transpose")
def transpose(build: Builder, node: OnnxNode, x: Value) -> Value:
    return x.transpose(node.get("perm", tuple(reversed(range(x.rank)))))


@importer("Expand", known=(1,), since=8)
def expand(build: Builder, node: OnnxNode, x: Value, wanted: Value) -> Value:
    return x.expand(broadcast_shapes(x.shape, wanted.ints("the shape")))  # type: ignore[arg-type]


@importer("Tile", known=(1,), since=6)
def tile(build: Builder, node: OnnxNode, x: Value, repeats: Value) -> Value:
    times = repeats.ints("the repeats")
    if len(times) != x.rank or min((*times, 0)) < 0:
        raise node.invalid(f"repeats {times} do not fit rank {x.rank}")
    # [a, b, 1] as [1, a, b, 1], repeated to [m, a, b, n], read as [m*a, b, n]: an axis is inserted only where more than
    # one element repeats, so that rules and layouts see which axes stay as they are.
    spread: list[int] = []
    repeated: list[int] = []
    for dim, count in zip(x.shape, times, strict=True):
        if dim != 1 and count != 1:
            spread.append(1)
            repeated.append(count)
        spread.append(dim)
        repeated.append(count if dim == 1 else dim)
    result = [dim * count for dim, count in zip(x.shape, times, strict=True)]
    return x.reshape(spread).expand(repeated).reshape(result)


@importer("Concat", since=4)
def concat(build: Builder, node: OnnxNode, *parts: Value) -> Value:
    axis = axis_of(node, node.need("axis"), parts[0].rank)
    return parts[0] if len(parts) == 1 else build.apply("concat", *parts, axis=axis)


@importer("Split", known=(1,), since=2)
def split(build: Builder, node: OnnxNode, x: Value, lengths: Value | None = None) -> tuple[Value, ...]:
    axis = axis_of(node, node.get("axis", 0), x.rank)
    sizes = lengths.ints("the lengths") if lengths is not None else node.get("split")
    if sizes is None:
        count = node.get("num_outputs", len(node.outputs))
        part = -(-x.shape[axis] // count)
        sizes = tuple(max(0, min(part, x.shape[axis] - i * part)) for i in range(count))
    if sum(sizes) != x.shape[axis] or min((*sizes, 0)) < 0:
        raise node.invalid(f"lengths {tuple(sizes)} do not add up to dimension {x.shape[axis]}")
    ends = np.cumsum(sizes).tolist()
    return tuple(x.slice(axis, end - length, end) for end, length in zip(ends, sizes, strict=True))


@importer("Slice", known=(1, 2, 3, 4))
def slice_(
    build: Builder,
    node: OnnxNode,
    x: Value,
    starts: Value | None = None,
    ends: Value | None = None,
    axes: Value | None = None,
    steps: Value | None = None,
) -> Value:
    if node.version < 10:
        first, last, along = node.need("starts"), node.need("ends"), node.get("axes")
        strides = None
    else:
        if starts is None or ends is None:
            raise node.invalid("starts and ends are missing")
        first, last = starts.ints("the starts"), ends.ints("the ends")
        along = None if axes is None else axes.ints("the axes")
        strides = None if steps is None else steps.ints("the steps")
    along = range(len(first)) if along is None else along
    strides = (1,) * len(first) if strides is None else strides
    for start, stop, axis, step in zip(first, last, along, strides, strict=True):
        x = _slice_axis(build, node, x, axis_of(node, axis, x.rank), start, stop, step)
    return x


def _slice_axis(build: Builder, node: OnnxNode, x: Value, axis: int, start: int, stop: int, step: int) -> Value:
    if step == 0:
        raise node.invalid("a step is 0")
    # Python's own clamping treats a stop below -length in a backward slice as the standard does.
    length = x.shape[axis]
    start, stop, step = slice(start, stop, step).indices(length)
    if step > 0:
        return x.slice(axis, start, max(start, stop), step)
    flipped = build.apply("flip", x, axes=(axis,))
    begin = length - 1 - start
    return flipped.slice(axis, begin, max(begin, length - 1 - stop), -step)


@importer("Pad", known=(1, 2, 3))
def pad(
    build: Builder,
    node: OnnxNode,
    x: Value,
    pads: Value | None = None,
    value: Value | None = None,
    axes: Value | None = None,
) -> Value:
    if node.version < 11:
        amounts, fill = node.get("pads", node.get("paddings")), node.get("value", 0.0)
    else:
        if pads is None:
            raise node.invalid("pads are missing")
        amounts = pads.ints("the pads")
        fill = 0 if value is None else value.scalar("the value")
    along = axes_of(node, x.rank, axes, since_operand=18) or tuple(range(x.rank))
    if len(amounts) != 2 * len(along):
        raise node.invalid(f"{len(amounts)} pads for {len(along)} axes")
    low, high = [0] * x.rank, [0] * x.rank
    for position, axis in enumerate(along):
        low[axis], high[axis] = amounts[position], amounts[position + len(along)]
    for axis in range(x.rank):
        x = x.slice(axis, max(0, -low[axis]), max(0, -low[axis], x.shape[axis] + min(0, high[axis])))
    low, high = [max(0, n) for n in low], [max(0, n) for n in high]
    if not any(low + high):
        return x
    mode = node.get("mode", "constant")
    if mode == "constant":
        return build.apply("pad", x, low=tuple(low), high=tuple(high), value=float(fill))
    if mode not in ("edge", "reflect", "wrap"):
        raise node.unsupported(f"mode {mode!r}")
    for axis in range(x.rank):
        if low[axis] or high[axis]:
            order = np.pad(np.arange(x.shape[axis]), (low[axis], high[axis]), mode=mode)
            x = build.apply("gather", x, build.wrap(order.astype(np.int64)), axis=axis)
    return x


@importer("DepthToSpace")
def depth_to_space(build: Builder, node: OnnxNode, x: Value) -> Value:
    block, (n, c, h, w) = node.need("blocksize"), x.shape
    depth = c // (block * block)
    if node.get("mode", "DCR") == "DCR":
        return _permuted(x, (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2), (n, depth, h * block, w * block))
    return _permuted(x, (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3), (n, depth, h * block, w * block))


def _permuted(x: Value, spread: Sequence[int], perm: Sequence[int], result: Sequence[int]) -> Value:
    return x.reshape(spread).transpose(perm).reshape(result)


@importer("Identity")
def identity(build: Builder, node: OnnxNode, x: Value) -> Value:
    return x


@importer("Dropout", known=(2,), since=7)
def dropout(
    build: Builder, node: OnnxNode, x: Value, ratio: Value | None = None, training: Value | None = None
) -> tuple[Value, ...]:
    """The identity, as in inference; the mask of kept elements is all true."""
    if training is not None and training.scalar("the training mode"):
        raise node.unsupported("training mode")
    return x, build.full(True, x.shape, DType.BOOL)


@importer("Constant")
def constant(build: Importer, node: OnnxNode) -> Value:
    if "value" in node.attributes:
        return build.attribute_tensor(node, "value")
    for name, dtype in (("value_int", np.int64), ("value_ints", np.int64)):
        if name in node.attributes:
            return build.wrap(np.asarray(node.need(name), dtype))
    for name in ("value_float", "value_floats"):
        if name in node.attributes:
            return build.wrap(np.asarray(node.need(name), np.float32))
    raise node.unsupported(" and ".join(node.attributes) or "no value")


@importer("ConstantOfShape", known=(0,))
def constant_of_shape(build: Importer, node: OnnxNode, wanted: Value) -> Value:
    value = np.zeros((), np.float32)
    if "value" in node.attributes:
        value = build.attribute_tensor(node, "value").array("the value").reshape(())
    return build.wrap(np.broadcast_to(value, wanted.ints("the shape")))


@importer("Range", known=(0, 1, 2))
def range_(build: Builder, node: OnnxNode, start: Value, limit: Value, delta: Value) -> Value:
    first, last, step = (v.array("a bound of the range").reshape(()) for v in (start, limit, delta))
    if step == 0:
        raise node.invalid("the step is 0")
    count = max(0, math.ceil((last - first) / step))
    if count > FOLD_LIMIT:
        return build.iota(count, start.dtype) * step.item() + first.item()
    return build.wrap((first + np.arange(count).astype(first.dtype) * step).astype(first.dtype))


@importer("EyeLike")
def eye_like(build: Importer, node: OnnxNode, x: Value) -> Value:
    rows, columns = x.shape
    element = ELEMENTS.get(node.get("dtype")) if "dtype" in node.attributes else build.element(node.inputs[0])
    if element is None:
        raise node.unsupported("this element type")
    row, column = build.iota(rows).reshape((rows, 1)), build.iota(columns).reshape((1, columns))
    return build.apply("equal", row + node.get("k", 0), column).cast(element.dtype)
