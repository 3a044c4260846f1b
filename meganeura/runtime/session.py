"""A session: the constants and states on one device, shared by all programs bound to it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meganeura.errors import InputError, LimitError
from meganeura.lower.schedule import Buffer, Operand, Port
from meganeura.options import CompileOptions
from meganeura.runtime.device import Device
from meganeura.runtime.interface import PIECE_BYTES, byte_range, convert, from_bytes, pieces, stored

logger = logging.getLogger("meganeura")

_GUARD = b"\xff"
"""Guard bytes: as float32, float16 and bfloat16 all NaN, as an integer far out of range."""


@dataclass(frozen=True)
class Resident:
    """A tensor's buffer on the device.

    Attributes:
        buffer: the wgpu buffer. nbytes: size of the tensor's part. bound: bytes to bind: the tensor, then its guard.
        name: for messages.
    """

    buffer: Any
    nbytes: int
    bound: int
    name: str


class Session:
    """Device memory that outlives a call: constants by key, states by name.

    Programs over the same weights (a prefill and a decoding step, or several batch sizes) share one session, and
    with it their weights and caches.
    """

    def __init__(self, device: Device, options: CompileOptions | None = None) -> None:
        self.device = device
        self.options = options or CompileOptions()
        self._constants: dict[str, Resident] = {}
        self._states: dict[str, tuple[Resident, Operand]] = {}
        self._unflushed = 0

    # ---- buffers ---------------------------------------------------------------------------------

    def allocate(self, nbytes: int, name: str, role: str, used_by: str | None = None) -> Resident:
        """A zero-filled buffer for one tensor, with the guard of the options after it.

        Raises:
            LimitError: a binding or buffer of this size is more than the device allows.
        """
        limits = self.device.limits
        most = min(limits.max_binding_size, limits.max_buffer_size)
        bound = nbytes + self.options.guard_bytes
        if bound > most:
            which = "max-storage-buffer-binding-size" if most == limits.max_binding_size else "max-buffer-size"
            raise LimitError(
                f"the {role} tensor {name!r} needs {bound} bytes in one binding",
                op=used_by,
                source=name,
                limit=f"{which} is {most} bytes on {self.device.facts.name}",
                remedy="use weights='f16', smaller dimensions, or a device with larger bindings",
            )
        resident = Resident(self.device.create_buffer(bound, f"{role}:{name}"), nbytes, bound, name)
        if bound > nbytes:
            self.device.wgpu.queue.write_buffer(resident.buffer, nbytes, _GUARD * (bound - nbytes))
        return resident

    def constant(self, buffer: Buffer, used_by: str | None = None) -> Resident:
        """The constant a plan's buffer asks for; uploaded once per key, its host copy let go at once."""
        data = buffer.constant
        if data is None:
            raise InputError(f"the constant {buffer.name!r} has no data", source=buffer.name)
        if data.key not in self._constants:
            resident = self.allocate(buffer.nbytes, buffer.name or data.key, "constant", used_by)
            self._upload(resident, data.load(), data.type)
            self._constants[data.key] = resident
        return self._constants[data.key]

    def _upload(self, resident: Resident, array: np.ndarray, kind: Any) -> None:
        if array.shape != kind.shape:
            raise InputError(
                f"the data of {resident.name!r} has shape {list(array.shape)}, expected {list(kind.shape)}",
                source=resident.name,
            )
        at, queue = 0, self.device.wgpu.queue
        for piece in pieces(array, kind.dtype):
            queue.write_buffer(resident.buffer, at, piece)
            at += piece.nbytes
            self._unflushed += piece.nbytes
            if self._unflushed >= PIECE_BYTES:
                # The queue holds a copy of everything written since the last submission.
                queue.submit([])
                self.device.wait()
                self._unflushed = 0
        if at > resident.nbytes:
            raise InputError(f"the data of {resident.name!r} does not fit its buffer", source=resident.name)

    # ---- states ----------------------------------------------------------------------------------

    def state(self, port: Port, buffer: Buffer, used_by: str | None = None) -> Resident:
        """The buffer of a state, made of zeros at its first mention.

        Raises:
            InputError: another program of this session has the state with another type or layout.
        """
        known = self._states.get(port.name)
        if known is None:
            known = self.allocate(buffer.nbytes, port.name, "state", used_by), port.operand
            self._states[port.name] = known
        if known[1] != port.operand or known[0].nbytes != buffer.nbytes:
            raise InputError(
                f"the state {port.name!r} is {port.operand.type} here and {known[1].type} in another program",
                source=port.name,
                shapes=f"{port.operand} against {known[1]}",
                remedy="use a session of its own for this program",
            )
        return known[0]

    @property
    def states(self) -> dict[str, Operand]:
        """Dtype and layout of every state by name."""
        return {name: operand for name, (_, operand) in self._states.items()}

    def reset(self, names: Iterable[str] | None = None) -> None:
        """Fill states with zeros: the named ones, or all."""
        chosen = [self._state(name) for name in (self._states if names is None else names)]
        encoder = self.device.wgpu.create_command_encoder()
        for resident, _ in chosen:
            encoder.clear_buffer(resident.buffer, 0, resident.nbytes)
        self.device.wgpu.queue.submit([encoder.finish()])

    def read_state(self, name: str) -> np.ndarray:
        """A copy of a state on the host."""
        resident, operand = self._state(name)
        start, end = byte_range(operand)
        if end == start or operand.layout.size == 0:
            return np.zeros(operand.shape, operand.dtype.numpy)
        return from_bytes(self.device.wgpu.queue.read_buffer(resident.buffer, start, end - start), operand)

    def write_state(self, name: str, value: Any) -> None:
        """Set a state from the host; dtype and shape are checked as for an input."""
        resident, operand = self._state(name)
        array = convert(name, value, operand.type)
        if array.size:
            self.device.wgpu.queue.write_buffer(resident.buffer, 0, stored(array, operand))

    def _state(self, name: str) -> tuple[Resident, Operand]:
        if name not in self._states:
            raise InputError(
                f"there is no state {name!r}",
                source=name,
                remedy=f"the states are {', '.join(map(repr, self._states)) or 'none'}",
            )
        return self._states[name]

    # ---- reports ---------------------------------------------------------------------------------

    @property
    def residents(self) -> list[Resident]:
        """All constants and states."""
        return [*self._constants.values(), *(resident for resident, _ in self._states.values())]

    def memory(self) -> dict[str, int]:
        """Bytes on the device by role: "constant" and "state"."""
        return {
            "constant": sum(r.bound for r in self._constants.values()),
            "state": sum(r.bound for r, _ in self._states.values()),
        }
