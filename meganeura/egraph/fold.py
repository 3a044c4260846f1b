"""Constants folded outside the e-graph: before the search, and again for the constants it has combined.

Small results are computed at once, so that uniform ones become `full` and masks can be recognised; large ones
(a transposed, joined or converted weight) become constants that are computed when they are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meganeura.ir.constants import (
    ConstantData,
    cast_constant,
    concatenated_constant,
    reshaped_constant,
    transposed_constant,
)
from meganeura.ir.graph import Graph, Node, Tensor
from meganeura.ir.op import Op, sizeof
from meganeura.ir.types import DType, TensorType
from meganeura.reference import round_to, widen

EAGER_ELEMENTS = 1 << 22
"""Results and operands up to this size are computed at once."""
VIEW_ELEMENTS = 1 << 14
"""Larger constants keep their reshapes, transposes and slices as views, which cost nothing and no second copy."""
LEAVES = ("constant", "full", "iota")
"""Ops whose value is known without operands."""
VIEWS = ("reshape", "transpose", "slice", "expand")
"""Ops that strides can express, mostly."""


def fold(graph: Graph) -> Graph:
    """The graph with constant subexpressions replaced, duplicates merged and dead nodes dropped."""
    folded = graph.rewrite(fold_node)
    # Operands of what was folded are dead now.
    return folded.rewrite() if len(folded.nodes) > len(folded._live()) else folded


def fold_node(new: Graph, node: Node, operands: Sequence[Tensor]) -> Tensor:
    """Add one node to `new`, as a constant where its operands are."""
    op = node.op
    if operands and op.foldable and isinstance(node.type, TensorType) and all(t.op.name in LEAVES for t in operands):
        folded = _folded(new, op, operands, node.type)
        if folded is not None:
            return folded
    return new.apply(op, *operands)


def _folded(new: Graph, op: Op, operands: Sequence[Tensor], result: TensorType) -> Tensor | None:
    uniform = _uniform_result(op, operands, result)
    if uniform is not None:
        return new.full(uniform, result.shape, result.dtype)
    elements = sizeof(result.shape)
    most = max(elements, *(sizeof(t.shape) for t in operands))
    if op.name in VIEWS and elements > VIEW_ELEMENTS:
        return None
    if elements > 2 * sum(_stored(t) for t in operands) and elements > EAGER_ELEMENTS:
        # Unfolding would take much more memory than computing it.
        return None
    data = derive([_data(new, t) for t in operands], op, result)
    # Packed weights stay as they are: expanded they would fill the host's memory too.
    if most <= EAGER_ELEMENTS and data.packed is None:
        array = np.array(data.load(), order="C")
        if array.size and array.reshape(-1)[:1].tobytes() * array.size == array.tobytes():
            return new.full(array.reshape(-1)[0].item(), result.shape, result.dtype)
        array.setflags(write=False)
        data = ConstantData(data.key, data.type, lambda: array)
    return new.constant(data)


def _stored(tensor: Tensor) -> int:
    return sizeof(tensor.shape) if tensor.op.name == "constant" else 1


def _uniform_result(op: Op, operands: Sequence[Tensor], result: TensorType) -> float | None:
    """The value of an op whose operands are all uniform and whose result is too, whatever the shapes."""
    if not all(t.op.name == "full" for t in operands) or sizeof(result.shape) == 0:
        return None
    values = [t.op.value for t in operands]  # type: ignore[attr-defined]
    if op.name in (*VIEWS, "gather"):
        return values[0]
    if not op.elementwise:
        return None
    arrays = [scalar(value, t.dtype) for value, t in zip(values, operands, strict=True)]
    return float(round_to(np.asarray(op.evaluate(arrays, TensorType(result.dtype, ()))), result.dtype))


def scalar(value: float, dtype: DType) -> np.ndarray:
    """A uniform constant's value as the evaluator computes with it, rank 0."""
    kind = np.float64 if dtype.is_float else np.bool_ if dtype is DType.BOOL else np.int64
    return round_to(np.asarray(value, dtype=kind), dtype)


def derive(parts: Sequence[ConstantData], op: Op, result: TensorType) -> ConstantData:
    """The constant an op makes of constants, computed when loaded."""
    if op.name == "transpose":
        return transposed_constant(parts[0], op.perm)  # type: ignore[attr-defined]
    if op.name == "reshape":
        return reshaped_constant(parts[0], op.shape)  # type: ignore[attr-defined]
    if op.name == "concat":
        return concatenated_constant(parts, op.axis)  # type: ignore[attr-defined]
    if op.name == "cast" and result.dtype.is_float and parts[0].type.dtype.is_float:
        return cast_constant(parts[0], result.dtype)
    attributes = ",".join(f"{k}={v!r}" for k, v in op.attributes().items())
    key = f"{op.name}({','.join((*(p.key for p in parts), attributes))})".replace(" ", "")

    def load() -> np.ndarray:
        if op.name in VIEWS:
            return op.evaluate([part.load() for part in parts], result)
        value = op.evaluate([widen(part.load()) for part in parts], result)
        return round_to(np.asarray(value), result.dtype).astype(result.dtype.numpy)

    return ConstantData(key, result, load)


def leaf_constant(op: Op, result: TensorType) -> ConstantData:
    """A `full` or `iota` as data."""

    def load() -> np.ndarray:
        return round_to(np.asarray(op.evaluate([], result)), result.dtype).astype(result.dtype.numpy)

    return ConstantData(repr(op).replace(" ", ""), result, load)


def _data(graph: Graph, tensor: Tensor) -> ConstantData:
    op = tensor.op
    return graph.constants[op.key] if op.name == "constant" else leaf_constant(op, tensor.node.tensor_type)  # type: ignore[attr-defined]
