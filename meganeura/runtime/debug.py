"""Debug aids of bound programs: poison between the tenants of a buffer, and guards after tensors.

Poison is NaN written over a temporary buffer whenever a new tensor moves in, and over all temporaries and outputs at
the start of a call: a kernel that reads a tensor whose time is over, or leaves part of its output out, then shows in
the results. Guards are NaN bytes after a tensor inside its binding: a read there shows in the results, a write when
they are checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meganeura.codegen.program import Program
from meganeura.errors import DeviceError
from meganeura.lower.schedule import Dispatch
from meganeura.runtime.device import Device
from meganeura.runtime.session import Resident

_NAN = b"\xff"
_CHECKED = 1 << 16
"""At most so many bytes of the free space behind a tensor in a larger buffer are checked."""


@dataclass(frozen=True)
class Check:
    """Bytes that must still be NaN before dispatch `at` (or at the end), and whose they are."""

    at: int
    buffer: int
    start: int
    nbytes: int
    owner: str


def moves_in(dispatches: Sequence[Dispatch], temporaries: set[int]) -> dict[int, list[int]]:
    """By dispatch, the temporary buffers in which a new tensor moves in with that dispatch.

    Every tensor is written whole by one dispatch, so a buffer gets a new tenant wherever a kernel writes it without
    reading it; a kernel that reads it too updates the tensor that is there.
    """
    moves: dict[int, list[int]] = {}
    for at, dispatch in enumerate(dispatches):
        count = len(dispatch.kernel.inputs)
        read, written = set(dispatch.buffers[:count]), set(dispatch.buffers[count:])
        new = sorted((written - read) & temporaries)
        if new:
            moves[at] = new
    return moves


class DebugPlan:
    """What to copy between dispatches, and what to check after a call.

    Args:
        device, program: what is bound. residents: the device buffer of each of the plan's buffers.
        guard: guard bytes after every buffer. poison: whether to poison.
    """

    def __init__(
        self, device: Device, program: Program, residents: Sequence[Resident], guard: int, poison: bool
    ) -> None:
        self._device, self._residents, self._guard = device, residents, guard
        plan = program.plan
        roles = {b.id: b.role for b in plan.buffers}
        temporaries = {i for i, role in roles.items() if role == "temp"}
        self._poisoned: dict[int, list[int]] = {}
        if poison:
            self._poisoned = moves_in(plan.dispatches, temporaries)
            at_start = sorted(i for i, role in roles.items() if role in ("temp", "output"))
            self._poisoned[0] = at_start
        self._checks = self._plan_checks(program, poison)
        self._nan = None
        if self._poisoned:
            largest = max((residents[b].nbytes for buffers in self._poisoned.values() for b in buffers), default=4)
            self._nan = device.create_buffer(largest, "debug:poison")
            device.wgpu.queue.write_buffer(self._nan, 0, _NAN * max(4, largest))
        total = sum(c.nbytes for c in self._checks)
        self._staging = device.create_buffer(-(-total // 8) * 8, "debug:guards", "staging") if total else None

    @property
    def cuts(self) -> list[int]:
        """Dispatches before which copies have to be recorded, outside a compute pass."""
        return sorted(set(self._poisoned) | {c.at for c in self._checks} | {0})

    def _plan_checks(self, program: Program, poison: bool) -> list[Check]:
        checks: list[Check] = []
        if not self._guard:
            return checks
        dispatches = program.plan.dispatches
        end = len(dispatches)
        if poison:
            # Behind a tensor smaller than its buffer lies poison, which must last until the next tenant.
            tenant: dict[int, Check] = {}
            for at in sorted(self._poisoned):
                for buffer in self._poisoned[at] if at < end else ():
                    if buffer in tenant:
                        checks.append(Check(at, *_range(tenant.pop(buffer))))
                    extent = _extent(dispatches[at], buffer)
                    slack = min(self._residents[buffer].nbytes - extent, _CHECKED)
                    if extent and slack > 0:
                        tenant[buffer] = Check(end, buffer, extent, slack, program.shaders[at].label)
            checks += tenant.values()
        for buffer, resident in enumerate(self._residents):
            if resident.bound > resident.nbytes:
                checks.append(Check(end, buffer, resident.nbytes, resident.bound - resident.nbytes, resident.name))
        return checks

    def record(self, encoder: Any, at: int) -> None:
        """Record the copies that belong before dispatch `at`: first what is to be checked, then poison."""
        offset = 0
        for check in self._checks:
            if check.at == at and self._staging is not None:
                source = self._residents[check.buffer].buffer
                encoder.copy_buffer_to_buffer(source, check.start, self._staging, offset, check.nbytes)
            offset += check.nbytes
        for buffer in self._poisoned.get(at, ()):
            resident = self._residents[buffer]
            encoder.copy_buffer_to_buffer(self._nan, 0, resident.buffer, 0, resident.nbytes)

    def verify(self, submission: Any) -> None:
        """Read the checked bytes back and raise DeviceError where any changed."""
        if self._staging is None:
            return
        mapping = self._device.commands.map(self._staging, self._staging.size, submission)
        found = np.frombuffer(bytes(mapping.wait()), np.uint8)
        mapping.close()
        offset = 0
        for check in self._checks:
            here = found[offset : offset + check.nbytes]
            offset += check.nbytes
            if (here != 0xFF).any():
                first = check.start + int(np.argmax(here != 0xFF))
                raise DeviceError(
                    f"a kernel wrote past the end of {check.owner}, at byte {first}",
                    remedy="this is a defect of a kernel; please report it with the graph",
                )


def _range(check: Check) -> tuple[int, int, int, str]:
    return check.buffer, check.start, check.nbytes, check.owner


def _extent(dispatch: Dispatch, buffer: int) -> int:
    """Bytes of a buffer that a dispatch's outputs reach, 0 where it has none there."""
    outputs = zip(dispatch.buffers[len(dispatch.kernel.inputs) :], dispatch.kernel.outputs, strict=True)
    return max((operand.nbytes for b, operand in outputs if b == buffer), default=0)
