"""Running a program dispatch by dispatch, with what each kernel read and wrote as host arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from meganeura.lower.schedule import Operand, Plan
from meganeura.runtime.device import Device
from meganeura.runtime.interface import byte_range, from_bytes
from meganeura.runtime.recording import Step
from meganeura.runtime.session import Resident


@dataclass(frozen=True)
class Traced:
    """One dispatch.

    Attributes:
        index: its position in the plan.
        inputs: the kernel's operands as it read them, in its order; None for weights in quantised blocks.
        outputs: what it wrote.
    """

    index: int
    inputs: tuple[np.ndarray | None, ...]
    outputs: tuple[np.ndarray, ...]


def trace_steps(device: Device, plan: Plan, steps: Sequence[Step], residents: Sequence[Resident]) -> Iterator[Traced]:
    """Run steps in order, each alone, reading its operands before and its results after."""

    def read(operand: Operand, buffer: int) -> np.ndarray:
        start, end = byte_range(operand)
        if operand.layout.size == 0:
            return np.zeros(operand.shape, operand.dtype.numpy)
        return from_bytes(device.wgpu.queue.read_buffer(residents[buffer].buffer, start, end - start), operand)

    for index, (dispatch, step) in enumerate(zip(plan.dispatches, steps, strict=True)):
        kernel, count = dispatch.kernel, len(dispatch.kernel.inputs)
        inputs = tuple(
            None if operand.packing is not None else read(operand, buffer)
            for operand, buffer in zip(kernel.inputs, dispatch.buffers[:count], strict=True)
        )
        encoder = device.wgpu.create_command_encoder()
        compute = encoder.begin_compute_pass()
        device.commands.record(compute, device.commands.prepare([step]))
        compute.end()
        device.commands.submit(encoder.finish())
        outputs = tuple(read(o, b) for o, b in zip(kernel.outputs, dispatch.buffers[count:], strict=True))
        yield Traced(index, inputs, outputs)
