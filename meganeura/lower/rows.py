"""The rows family: ops that read whole rows and write rows of the same shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from meganeura.errors import LimitError
from meganeura.facts import DeviceFacts
from meganeura.ir.op import Op
from meganeura.ir.types import TensorType, ValueType
from meganeura.lower.lanes import SCHEDULES, LaneSchedule, choose_schedule, vector_width
from meganeura.lower.schedule import Kernel, Operand
from meganeura.options import CompileOptions

PASSES = 3
"""How often a row is gone over: maximum, sum, result; or mean, variance, result."""
OPS_OF_ROWS = ("softmax", "log_softmax", "layer_norm", "rms_norm", "residual_rms_norm")


@dataclass(frozen=True)
class RowsKernel(Kernel):
    """Softmax, log-softmax or a norm along one axis.

    Inputs are those of the op, of any strides (the residual broadcast to x); outputs lie row by row.
    """

    family: ClassVar[str] = "rows"
    schedule: LaneSchedule

    @property
    def axis(self) -> int:
        """The axis rows lie along."""
        return getattr(self.op, "axis", len(self.inputs[0].shape) - 1)

    @property
    def length(self) -> int:
        """Elements per row."""
        return self.inputs[0].shape[self.axis]

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.inputs[0].layout.size // self.length if self.length else 0


def rows_kernel(
    op: Op, inputs: tuple[Operand, ...], output: ValueType, facts: DeviceFacts, options: CompileOptions
) -> RowsKernel:
    """The kernel of a softmax or norm over operands in given layouts.

    Raises:
        LimitError: the op needs more bindings than the device allows.
    """
    types = (output,) if isinstance(output, TensorType) else output.items
    outputs = tuple(Operand.contiguous(t) for t in types)
    if len(inputs) + len(outputs) > facts.limits.max_storage_buffers:
        raise LimitError(
            f"{op.name} needs {len(inputs) + len(outputs)} storage buffers",
            op=op.name,
            limit=f"max-storage-buffers-per-shader-stage is {facts.limits.max_storage_buffers}",
            remedy="compile with optimize=False, or choose another device",
        )
    if op.name == "residual_rms_norm":
        x, residual, weight = inputs
        expanded = Operand(residual.dtype, residual.layout.expanded(x.shape))
        inputs = (x, expanded, weight)
    kernel = RowsKernel(op, inputs, outputs, LaneSchedule("thread", 1, 1))
    length, rows = kernel.length, kernel.count
    # The weight and bias of a norm have the row's axis alone.
    along = [(o, kernel.axis if len(o.shape) == len(inputs[0].shape) else 0) for o in (*inputs, *outputs)]
    schedule = choose_schedule(op.name, rows, length, vector_width(along, length), facts, PASSES)
    return RowsKernel(op, inputs, outputs, schedule)


__all__ = ["OPS_OF_ROWS", "PASSES", "SCHEDULES", "RowsKernel", "rows_kernel"]
