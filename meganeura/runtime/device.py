"""Adapters and devices: finding them, their facts, and opening one with its own limits."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

from meganeura.errors import DeviceError, LimitError
from meganeura.facts import DeviceFacts, Limits

_WANTED_FEATURES = ("shader-f16", "subgroup", "subgroup-barrier", "timestamp-query", "immediates")
_KINDS = {"DiscreteGPU": "discrete", "IntegratedGPU": "integrated", "CPU": "cpu"}
_RANK = {"discrete": 0, "integrated": 1, "unknown": 2, "cpu": 3}


def _wgpu() -> Any:
    # wgpu's loader complains on stderr when the variable is missing.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    import wgpu

    return wgpu


def adapters() -> list[Any]:
    """wgpu adapters, best first: discrete, integrated, CPU; OpenGL only where nothing else drives the device."""
    found = _wgpu().gpu.enumerate_adapters_sync()
    modern = {a.info["device"] for a in found if a.info["backend_type"] != "OpenGL"}
    kept = [a for a in found if a.info["backend_type"] != "OpenGL" or a.info["device"] not in modern]
    return sorted(kept, key=lambda a: _RANK[_kind(a)])


def _kind(adapter: Any) -> str:
    return _KINDS.get(str(adapter.info["adapter_type"]), "unknown")


def facts_of(adapter: Any, limits: dict[str, int], features: set[str]) -> DeviceFacts:
    """Facts of an adapter opened with these limits and features."""
    info = adapter.info
    return DeviceFacts(
        name=str(info["device"]),
        backend=str(info["backend_type"]),
        driver=str(info["description"]),
        kind=_kind(adapter),
        limits=Limits(
            max_binding_size=limits["max-storage-buffer-binding-size"],
            max_buffer_size=limits["max-buffer-size"],
            max_storage_buffers=limits["max-storage-buffers-per-shader-stage"],
            max_workgroup_memory=limits["max-compute-workgroup-storage-size"],
            max_invocations=limits["max-compute-invocations-per-workgroup"],
            max_workgroup_size=(
                limits["max-compute-workgroup-size-x"],
                limits["max-compute-workgroup-size-y"],
                limits["max-compute-workgroup-size-z"],
            ),
            max_workgroups=limits["max-compute-workgroups-per-dimension"],
        ),
        features=frozenset(features),
    )


class Device:
    """An opened device.

    Open one with `Device.open()`; pass it to `compile`. Attributes: `facts`, `wgpu` (the wgpu-py device).
    """

    def __init__(self, adapter: Any, facts: DeviceFacts, device: Any) -> None:
        self.adapter, self.facts, self.wgpu = adapter, facts, device
        self._pipelines: dict[str, Any] = {}

    @staticmethod
    def open(choice: str | int | None = None) -> Device:
        """Open the best adapter, or the one of this index or whose name contains this text."""
        found = adapters()
        if not found:
            raise DeviceError(
                "no graphics adapter was found",
                remedy="install a driver; for software Vulkan on Debian or Ubuntu: apt-get install mesa-vulkan-drivers",
            )
        adapter = _choose(found, choice)
        features = {f for f in _WANTED_FEATURES if f in adapter.features}
        limits = {k: v for k, v in adapter.limits.items() if v}
        device = adapter.request_device_sync(required_features=sorted(features), required_limits=limits)
        return Device(adapter, facts_of(adapter, adapter.limits, features), device)

    # ---- small services for tests and tools ------------------------------------------------------

    def run(self, shader: Any, arrays: list[np.ndarray], guard: int = 0) -> list[np.ndarray]:
        """Run one shader once over host arrays, one per binding, and return all of them as they are after.

        Meant for kernel tests: every array becomes a buffer of its own, with `guard` bytes of NaN after it.
        """
        wgpu = _wgpu()
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        buffers = []
        for array in arrays:
            data = np.ascontiguousarray(array).tobytes()
            data += b"\x00" * (-len(data) % 4) + b"\xff" * guard
            buffers.append(self.wgpu.create_buffer_with_data(data=data or b"\x00" * 4, usage=usage))
        pipeline = self.pipeline(shader)
        group = self.wgpu.create_bind_group(
            layout=pipeline.get_bind_group_layout(0),
            entries=[{"binding": i, "resource": {"buffer": b}} for i, b in enumerate(buffers)],
        )
        encoder = self.wgpu.create_command_encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, group)
        compute.dispatch_workgroups(*shader.workgroups)
        compute.end()
        self.wgpu.queue.submit([encoder.finish()])
        results = []
        for array, buffer in zip(arrays, buffers, strict=True):
            raw = bytes(self.wgpu.queue.read_buffer(buffer))
            if guard and raw[-guard:] != b"\xff" * guard:
                raise DeviceError(f"{shader.label} wrote past the end of a binding")
            results.append(np.frombuffer(raw[: array.nbytes], array.dtype).reshape(array.shape))
        return results

    def pipeline(self, shader: Any) -> Any:
        """The compute pipeline of a shader; built once per text."""
        known = self._pipelines.get(shader.text)
        if known is None:
            try:
                module = self.wgpu.create_shader_module(code=shader.text, label=shader.label)
                known = self.wgpu.create_compute_pipeline(
                    layout="auto", compute={"module": module, "entry_point": "main"}, label=shader.label
                )
            except Exception as error:  # wgpu raises its own classes, and Rust panics as others
                raise DeviceError(f"the kernel {shader.label} was refused by the device: {error}") from error
            self._pipelines[shader.text] = known
        return known


def _choose(found: list[Any], choice: str | int | None) -> Any:
    if choice is None:
        return found[0]
    names = [a.info["device"] for a in found]
    listing = "; ".join(f"{i}: {n}" for i, n in enumerate(names))
    if isinstance(choice, int) or str(choice).isdigit():
        if int(choice) < len(found):
            return found[int(choice)]
        raise DeviceError(f"there is no device {choice}", remedy=f"choose one of {listing}")
    for adapter, name in zip(found, names, strict=True):
        if str(choice).lower() in f"{name} {adapter.info['backend_type']} {_kind(adapter)}".lower():
            return adapter
    raise DeviceError(f"no device is called {choice!r}", remedy=f"choose one of {listing}")


__all__ = ["Device", "DeviceError", "LimitError", "adapters", "facts_of"]
