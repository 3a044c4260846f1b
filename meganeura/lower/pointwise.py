"""The pointwise family: a region of elementwise ops, index maps and gathers computed by one kernel.

A region is a small graph of its own: its inputs are the kernel's operands, its one output is computed element by
element, and everything between (transposes, slices, concatenations, padding, gathers, index ramps) becomes index
arithmetic in the generated body. Being a graph, a region can be printed and evaluated by the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from meganeura.ir.graph import Graph
from meganeura.ir.op import Op
from meganeura.ir.types import DType, TensorType
from meganeura.lower.schedule import Kernel, Layout, Operand

INDEX_OPS = frozenset(
    {"reshape", "transpose", "expand", "slice", "flip", "concat", "pad", "gather", "gather_elements", "iota", "full"}
)
"""Ops besides the elementwise ones that a region may hold."""


@dataclass(frozen=True, eq=False)
class PointwiseKernel(Kernel):
    """One dispatch over the elements of the region's output.

    Attributes:
        region: graph with inputs `in0`, `in1`, ... in the order of `inputs`, and the output `out`.
    """

    family: ClassVar[str] = "pointwise"
    region: Graph

    @property
    def label(self) -> str:
        """The names of the ops inside, in order, and the output shape."""
        names = [n.op.name for n in self.region.nodes if n.op.name not in ("input", "full", "iota")]
        shown = "_".join(names[:4]) + (f"_and_{len(names) - 4}_more" if len(names) > 4 else "")
        return f"{shown or 'copy'}_{'x'.join(map(str, self.outputs[0].shape)) or 'scalar'}"


def is_pointwise(op: Op) -> bool:
    """Whether a region may hold this op."""
    return op.elementwise or op.name in INDEX_OPS


def pointwise_kernel(op: Op, inputs: tuple[Operand, ...], region: Graph) -> PointwiseKernel:
    """A kernel for a region; the output lies in memory in the order of the axes of what it is computed from.

    Args:
        op: the op whose value the region computes last, for reports.
        inputs: operands standing for the region's inputs, in order.
    """
    output = region.nodes[region.outputs["out"]].tensor_type
    plain = Operand.contiguous(output)
    order = _axis_order(plain.shape, inputs)
    outer_first = Layout.contiguous([plain.shape[axis] for axis in order])
    back = sorted(range(len(order)), key=order.__getitem__)
    return PointwiseKernel(op, inputs, (Operand(plain.dtype, outer_first.permuted(back)),), region)


def _axis_order(shape: tuple[int, ...], inputs: tuple[Operand, ...]) -> list[int]:
    """Axes of the output from outermost to innermost in memory, following the largest input that has them all.

    Neighbouring invocations then read and write neighbouring elements, and what stood interleaved (heads within rows)
    stays so for the next reader.
    """
    order = list(range(len(shape)))
    for operand in sorted(inputs, key=lambda o: -o.layout.size):
        rank = len(operand.shape)
        if operand.shape != shape[:rank]:
            continue
        strides = operand.layout.strides
        if any(stride == 0 for stride, size in zip(strides, shape, strict=False) if size > 1):
            continue
        moving = [axis for axis in range(rank) if shape[axis] > 1]
        ranked = iter(sorted(moving, key=lambda axis: -strides[axis]))
        return [next(ranked) if axis in moving else axis for axis in order]
    return order


def contiguous_copy_kernel(op: Op, source: Operand, dtype: DType) -> PointwiseKernel:
    """A kernel that copies an operand of any strides to row-major memory."""
    region = Graph("region")
    operand = region.input("in0", source.shape, dtype)
    region.outputs["out"] = region.apply("reshape", operand, shape=source.shape).id
    return PointwiseKernel(op, (source,), (Operand.contiguous(TensorType(dtype, source.shape)),), region)
