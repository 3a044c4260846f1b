"""A program bound to a device: everything is made once, and a call only records, submits and reads back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from meganeura.codegen.program import Program
from meganeura.codegen.shader import Shader
from meganeura.errors import DeviceError, InputError
from meganeura.lower.schedule import Dispatch, Port
from meganeura.runtime.debug import DebugPlan
from meganeura.runtime.interface import byte_range, check_names, check_ranges, convert, from_bytes, stored
from meganeura.runtime.profile import profile_steps
from meganeura.runtime.recording import Step
from meganeura.runtime.session import Resident, Session
from meganeura.runtime.staging import Staging
from meganeura.runtime.trace import Traced, trace_steps

_RING_BYTES = 1 << 20
"""Programs with outputs up to this size get two staging buffers, so that two calls may be under way."""


class Pending:
    """A call that was submitted; `result()` waits for it and gives its outputs."""

    def __init__(self, program: BoundProgram, staging: Staging | None, names: Sequence[str], submission: Any) -> None:
        self._program, self._staging, self._names, self._submission = program, staging, names, submission
        self._outputs: dict[str, np.ndarray] | None = None

    def result(self) -> dict[str, np.ndarray]:
        """The outputs by name; blocks until the device is done with this call."""
        if self._outputs is None:
            self._outputs = self._program._collect(self._staging, self._names, self._submission)
            self._staging = None
        return self._outputs


class BoundProgram:
    """A program with its buffers, pipelines and bind groups on one device.

    Nothing is created on the device after construction (except by `profile`, once). Constants and states belong to
    the session; temporaries, inputs and outputs to this object.

    Attributes:
        session, program: what was bound. inputs, outputs: ports by name.

    Raises:
        LimitError: a tensor, a kernel's bindings or its grid exceed the device. DeviceError: a kernel was refused.
    """

    def __init__(self, session: Session, program: Program) -> None:
        self.session, self.program = session, program
        plan, device = program.plan, session.device
        self.inputs: dict[str, Port] = {port.name: port for port in plan.inputs}
        self.outputs: dict[str, Port] = {port.name: port for port in plan.outputs}
        self._residents = self._allocate()
        self._steps: list[Step] = [
            self._bind(dispatch, shader) for dispatch, shader in zip(plan.dispatches, program.shaders, strict=True)
        ]
        options = session.options
        self._debug = (
            DebugPlan(device, program, self._residents, options.guard_bytes, options.poison)
            if options.guard_bytes or options.poison
            else None
        )
        cuts = self._debug.cuts if self._debug else [0]
        ends = [*cuts[1:], len(self._steps)]
        self._segments = [(a, device.commands.prepare(self._steps[a:b])) for a, b in zip(cuts, ends, strict=True)]
        total = sum(end - start for start, end in map(byte_range, (p.operand for p in self.outputs.values())))
        self._staging = [Staging(device, self.outputs) for _ in range(2 if total <= _RING_BYTES else 1) if self.outputs]
        self._waiting: list[Pending] = []

    # ---- binding ---------------------------------------------------------------------------------

    def _allocate(self) -> list[Resident]:
        plan, session = self.program.plan, self.session
        users: dict[int, str] = {}
        for dispatch in plan.dispatches:
            for buffer in dispatch.buffers:
                users.setdefault(buffer, dispatch.kernel.op.name)
        states = {port.buffer: port for port in plan.states}
        residents = []
        for buffer in plan.buffers:
            used_by = users.get(buffer.id)
            if buffer.role == "constant":
                residents.append(session.constant(buffer, used_by))
            elif buffer.role == "state":
                residents.append(session.state(states[buffer.id], buffer, used_by))
            else:
                name = buffer.name or f"{plan.name}:{buffer.id}"
                residents.append(session.allocate(buffer.nbytes, name, buffer.role, used_by))
        return residents

    def _bind(self, dispatch: Dispatch, shader: Shader) -> Step:
        device, kernel = self.session.device, dispatch.kernel
        source = ", ".join(dispatch.sources[:3]) or None
        buffers = dispatch.buffers[1:] if kernel.in_place else dispatch.buffers
        if len(buffers) != len(shader.access):
            raise DeviceError(
                f"{shader.label} has {len(shader.access)} bindings for {len(buffers)} tensors", op=kernel.op.name
            )
        for at, buffer in enumerate(buffers):
            if shader.access[at] == "read_write" and buffers.count(buffer) > 1:
                raise DeviceError(
                    f"{shader.label} would write a buffer that it also reads",
                    op=kernel.op.name,
                    source=source,
                    remedy="this is a defect of the memory plan; please report it with the graph",
                )
        pipeline = device.pipeline(shader, kernel.op.name, source)
        bindings = [(self._residents[b].buffer, self._residents[b].bound) for b in buffers]
        return pipeline, device.bind_group(shader, bindings), shader.workgroups

    # ---- calls -----------------------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Any], fetch: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Compute once.

        Args:
            inputs: arrays by name, exactly the program's inputs: NumPy arrays, or anything on the host with
                `__array__` or DLPack. 64-bit integers are narrowed with a check, float64 is rounded.
            fetch: names of the outputs to copy to the host, in place of all of them.

        Raises:
            InputError: a missing, unknown, misshapen or wrongly typed input, or an unknown name in `fetch`.
            DeviceError: the device failed, or (debug) a kernel wrote outside its tensor.
        """
        return self.submit(inputs, fetch).result()

    def submit(self, inputs: Mapping[str, Any], fetch: Iterable[str] | None = None) -> Pending:
        """Start a call without waiting for it; see `run`. Calls are executed in the order of their submission."""
        names = list(self.outputs) if fetch is None else list(fetch)
        for name in names:
            if name not in self.outputs:
                raise InputError(
                    f"there is no output {name!r}", source=name, remedy=f"choose from {', '.join(self.outputs)}"
                )
        self._write(inputs)
        staging = self._free_staging() if names else None
        encoder = self.session.device.wgpu.create_command_encoder()
        self._record(encoder)
        if staging is not None:
            staging.record(encoder, names, {n: self._residents[p.buffer].buffer for n, p in self.outputs.items()})
        submission = self.session.device.commands.submit(encoder.finish())
        if self._debug is not None:
            self._debug.verify(submission)
        pending = Pending(self, staging, names, submission)
        if staging is not None:
            staging.map(submission)
            self._waiting.append(pending)
        return pending

    def _write(self, inputs: Mapping[str, Any]) -> None:
        check_names(self.inputs, inputs)
        # All are checked before the first is written: a refused call leaves nothing changed.
        arrays = {name: convert(name, inputs[name], port.operand.type) for name, port in self.inputs.items()}
        check_ranges(self.program.plan.ranges, arrays)
        queue = self.session.device.wgpu.queue
        for name, array in arrays.items():
            if array.size:
                port = self.inputs[name]
                queue.write_buffer(self._residents[port.buffer].buffer, 0, stored(array, port.operand))

    def _record(self, encoder: Any) -> None:
        commands = self.session.device.commands
        for start, prepared in self._segments:
            if self._debug is not None:
                self._debug.record(encoder, start)
            if prepared:
                compute = encoder.begin_compute_pass()
                commands.record(compute, prepared)
                compute.end()

    def _free_staging(self) -> Staging | None:
        for staging in self._staging:
            if staging.free:
                return staging
        if self._waiting:
            # Every staging buffer holds a result nobody has read yet: fetch the oldest now.
            self._waiting[0].result()
        return next((s for s in self._staging if s.free), None)

    def _collect(self, staging: Staging | None, names: Sequence[str], submission: Any) -> dict[str, np.ndarray]:
        if staging is None:
            return {}
        self._waiting = [p for p in self._waiting if p._staging is not staging]
        try:
            raw = staging.read()
            return {name: from_bytes(raw[name], self.outputs[name].operand) for name in names}
        finally:
            staging.release()

    def profile(self, inputs: Mapping[str, Any]) -> list[tuple[str, float]]:
        """Run once and time every dispatch: `(label, seconds)` in order.

        Uses timestamps where the device has them, else the host's clock around each dispatch alone.
        """
        self._write(inputs)
        labels = [shader.label for shader in self.program.shaders]
        return list(zip(labels, profile_steps(self.session.device, self._steps), strict=True))

    def memory(self) -> dict[str, int]:
        """Bytes on the device by role: input, output, temp, constant, state, and staging."""
        totals: dict[str, int] = {}
        for buffer, resident in zip(self.program.plan.buffers, self._residents, strict=True):
            totals[buffer.role] = totals.get(buffer.role, 0) + resident.bound
        totals["staging"] = sum(s.nbytes for s in self._staging)
        return totals

    def trace(self, inputs: Mapping[str, Any]) -> Iterator[Traced]:
        """Run once, dispatch by dispatch, and give what each read and wrote; slow, for finding faults."""
        self._write(inputs)
        return trace_steps(self.session.device, self.program.plan, self._steps, self._residents)
