"""The update family: rows written into a state where it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from meganeura.errors import GraphError
from meganeura.facts import DeviceFacts
from meganeura.ir.op import Op
from meganeura.ir.types import ValueType
from meganeura.lower.lanes import vector_width
from meganeura.lower.schedule import Kernel, Operand
from meganeura.options import CompileOptions

SCHEDULES = ("thread",)


@dataclass(frozen=True)
class UpdateKernel(Kernel):
    """A state update or cache write in place: the output is the state's own operand.

    Attributes:
        vector: elements copied at a time, 1 or 4.
    """

    family: ClassVar[str] = "update"
    in_place: ClassVar[bool] = True
    vector: int = 1

    @property
    def axis(self) -> int:
        """The axis rows are written along."""
        return self.op.axis  # type: ignore[attr-defined]

    @property
    def label(self) -> str:
        """Op and shape of the rows, which is what is written."""
        return f"{self.op.name}_{'x'.join(map(str, self.inputs[1].shape))}"


def update_kernel(
    op: Op, inputs: tuple[Operand, ...], output: ValueType, facts: DeviceFacts, options: CompileOptions
) -> UpdateKernel:
    """The kernel of a state update; the state may have any strides, but no element twice.

    Raises:
        GraphError: the state is a broadcast view, in which elements share memory.
    """
    state, rows, _ = inputs
    if any(s == 0 and d > 1 for d, s in zip(state.layout.shape, state.layout.strides, strict=True)):
        raise GraphError("a broadcast view can't be updated in place", op=op.name, shapes=repr(state))
    last = len(state.shape) - 1
    axis: int = op.axis  # type: ignore[attr-defined]
    # Positions move whole vectors only if the axis is not the one they lie along.
    vector = 1 if axis == last else vector_width([(state, last), (rows, last)], rows.shape[-1])
    if state.layout.strides[axis] % vector:
        vector = 1
    return UpdateKernel(op, inputs, (state,), vector)
