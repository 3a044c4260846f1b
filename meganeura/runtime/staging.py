"""Buffers through which outputs come back to the host, made once and used again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meganeura.lower.schedule import Port
from meganeura.runtime.device import Device
from meganeura.runtime.interface import byte_range
from meganeura.runtime.recording import Mapping as BufferMapping

_ALIGNMENT = 8


class Staging:
    """One mappable buffer with room for all outputs of a program.

    Attributes:
        nbytes: its size. free: no result waits in it.
    """

    def __init__(self, device: Device, outputs: Mapping[str, Port]) -> None:
        self._device = device
        self._ranges = {name: byte_range(port.operand) for name, port in outputs.items()}
        self.nbytes = sum(map(_aligned, self._ranges.values())) or _ALIGNMENT
        self._buffer = device.create_buffer(self.nbytes, "staging", "staging")
        self._places: dict[str, int] = {}
        self._mapping: BufferMapping | None = None

    @property
    def free(self) -> bool:
        return self._mapping is None

    def record(self, encoder: Any, names: Sequence[str], buffers: Mapping[str, Any]) -> None:
        """Record the copies of the named outputs, packed one after another."""
        self._places, at = {}, 0
        for name in dict.fromkeys(names):
            start, end = self._ranges[name]
            if end > start:
                encoder.copy_buffer_to_buffer(buffers[name], start, self._buffer, at, end - start)
            self._places[name] = at
            at += _aligned((start, end))

    def map(self, submission: Any) -> None:
        """Ask for the bytes of the recorded copies, to be had after this submission."""
        used = sum(_aligned(self._ranges[name]) for name in self._places)
        self._mapping = self._device.commands.map(self._buffer, max(used, _ALIGNMENT), submission)

    def read(self) -> dict[str, memoryview]:
        """Wait, and return the bytes of each copied output; valid until `release`."""
        assert self._mapping is not None
        raw = self._mapping.wait()
        return {name: raw[at : at + self._ranges[name][1] - self._ranges[name][0]] for name, at in self._places.items()}

    def release(self) -> None:
        """Give the buffer back to the device."""
        if self._mapping is not None:
            self._mapping.close()
            self._mapping = None


def _aligned(span: tuple[int, int]) -> int:
    return -(-(span[1] - span[0]) // _ALIGNMENT) * _ALIGNMENT
