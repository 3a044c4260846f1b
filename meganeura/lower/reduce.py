"""The reduce family: reductions over any axes, and argmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from meganeura.facts import DeviceFacts
from meganeura.ir.op import Op, sizeof
from meganeura.ir.types import TensorType, ValueType
from meganeura.lower.lanes import SCHEDULES, LaneSchedule, choose_schedule
from meganeura.lower.schedule import Kernel, Operand
from meganeura.options import CompileOptions

PASSES = 1.02
"""How often an element is gone over, counting the loop over blocks."""


@dataclass(frozen=True)
class Axes:
    """Some axes of an operand: their sizes, and the strides of the operand along them."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        return sizeof(self.shape)

    def in_vectors(self) -> Axes | None:
        """The same with the last axis counted in vectors of four, or None where neighbours lie apart."""
        if not self.shape or self.shape[-1] % 4 or self.strides[-1] != 1:
            return None
        return Axes((*self.shape[:-1], self.shape[-1] // 4), (*self.strides[:-1], 4))


@dataclass(frozen=True)
class ReduceKernel(Kernel):
    """A reduction of an input of any strides; the output lies row by row.

    Attributes:
        schedule: who works on an output. outward: vectors lie along outputs instead of along the reduced elements.
    """

    family: ClassVar[str] = "reduce"
    schedule: LaneSchedule
    outward: bool = False

    @property
    def kept(self) -> Axes:
        """The axes of the output, in its order."""
        return _axes(self.inputs[0], [a for a in range(len(self.inputs[0].shape)) if a not in _reduced(self.op)])

    @property
    def reduced(self) -> Axes:
        """The axes reduced over, widest stride first: the order doesn't matter to the result, but to memory."""
        layout = self.inputs[0].layout
        order = sorted((a for a in _reduced(self.op) if layout.shape[a] != 1), key=lambda a: -layout.strides[a])
        return _axes(self.inputs[0], order)


def reduce_kernel(
    op: Op, inputs: tuple[Operand, ...], output: ValueType, facts: DeviceFacts, options: CompileOptions
) -> ReduceKernel:
    """The kernel of a reduction over an operand in a given layout."""
    assert isinstance(output, TensorType)
    plain = ReduceKernel(op, inputs, (Operand.contiguous(output),), LaneSchedule("thread", 1, 1))
    vector, outward = _vectors(plain)
    count = plain.kept.size // (vector if outward else 1)
    schedule = choose_schedule(op.name, count, plain.reduced.size, 1 if outward else vector, facts, PASSES)
    schedule = LaneSchedule(schedule.name, schedule.lanes, schedule.rows, vector)
    return ReduceKernel(op, inputs, plain.outputs, schedule, outward)


def _vectors(kernel: ReduceKernel) -> tuple[int, bool]:
    """Vector width, and whether vectors lie along outputs."""
    if kernel.op.name == "argmax" or kernel.inputs[0].layout.size == 0 or kernel.inputs[0].layout.offset % 4:
        return 1, False
    for axes, others, outward in ((kernel.reduced, kernel.kept, False), (kernel.kept, kernel.reduced, True)):
        wide = axes.in_vectors()
        if wide is not None and _divide(wide) and _divide(others):
            return 4, outward
    return 1, False


def _divide(axes: Axes) -> bool:
    return all(s % 4 == 0 for d, s in zip(axes.shape, axes.strides, strict=True) if d > 1)


def _reduced(op: Op) -> tuple[int, ...]:
    return (op.axis,) if op.name == "argmax" else op.axes  # type: ignore[attr-defined]


def _axes(operand: Operand, axes: Sequence[int]) -> Axes:
    layout = operand.layout
    return Axes(tuple(layout.shape[a] for a in axes), tuple(layout.strides[a] for a in axes))


__all__ = ["PASSES", "SCHEDULES", "Axes", "ReduceKernel", "reduce_kernel"]
