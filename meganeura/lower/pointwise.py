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
from meganeura.lower.schedule import Kernel, Operand

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
    """A kernel for a region; the output is laid out row by row.

    Args:
        op: the op whose value the region computes last, for reports.
        inputs: operands standing for the region's inputs, in order.
    """
    output = region.nodes[region.outputs["out"]].tensor_type
    return PointwiseKernel(op, inputs, (Operand.contiguous(output),), region)
