"""Reading axes, which the standard moved from attributes to operands."""

from __future__ import annotations

from collections.abc import Sequence

from meganeura.frontends.onnx.node import OnnxNode
from meganeura.frontends.onnx.value import Value


def axis_of(node: OnnxNode, axis: int, rank: int) -> int:
    """A possibly negative axis as 0..rank-1."""
    if not -rank <= axis < rank:
        raise node.invalid(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def axes_of(node: OnnxNode, rank: int, operand: Value | None, since_operand: int) -> tuple[int, ...] | None:
    """The axes a node names, or None when it names none.

    Args:
        rank: of the tensor the axes belong to. operand: the node's axes operand, if any.
        since_operand: the operator set from which axes are an operand instead of an attribute.
    """
    given: Sequence[int] | None
    given = node.get("axes") if node.version < since_operand else None if operand is None else operand.ints("the axes")
    if given is None:
        return None
    axes = tuple(axis_of(node, axis, rank) for axis in given)
    if len(set(axes)) != len(axes):
        raise node.invalid(f"axes {tuple(given)} repeat")
    return axes
