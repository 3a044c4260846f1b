"""An opened device: its facts, and the objects made on it (buffers, pipelines, bind groups), counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from meganeura.codegen.shader import Shader
from meganeura.codegen.template import render_template
from meganeura.errors import DeviceError, LimitError
from meganeura.facts import DeviceFacts, Limits
from meganeura.runtime.adapters import (
    adapter_kind,
    adapters,
    choose_adapter,
    choose_features,
    choose_limits,
    facts_of,
    wgpu_module,
)
from meganeura.runtime.recording import PublicCommands, commands_for

_SUBGROUP_SHADER = "subgroup_size"
_NVIDIA = 0x10DE


class Device:
    """An opened device; open one with `Device.open()` and pass it to `compile`.

    Attributes:
        adapter: the wgpu-py adapter. wgpu: the wgpu-py device.
        counts: how many "buffers", "shaders", "pipelines" and "bind_groups" were made so far.
    """

    def __init__(self, adapter: Any, device: Any, limits: dict[str, int], features: frozenset[str]) -> None:
        self.adapter, self.wgpu = adapter, device
        self.counts: Counter[str] = Counter()
        self._limits, self._features = limits, features
        self._pipelines: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._layouts: dict[tuple[str, ...], tuple[Any, Any]] = {}

    @staticmethod
    def open(
        choice: str | int | None = None,
        *,
        limits: Limits | None = None,
        features: Iterable[str] | None = None,
    ) -> Device:
        """Open an adapter with its own limits and every feature that kernels can use.

        Args:
            choice: None for the best adapter; else an index, a kind ("discrete", "integrated", "cpu"), or part of
                a name or backend.
            limits: lower limits to open it with, for example `Limits()` for WebGPU's guaranteed minimum.
            features: exactly the features to open it with.

        Raises:
            DeviceError: no such adapter, a feature it lacks, or the driver refused.
        """
        adapter = choose_adapter(choice)
        wanted = choose_features(adapter, features)
        requested = choose_limits(adapter, limits)
        try:
            device = adapter.request_device_sync(required_features=sorted(wanted), required_limits=requested)
        except Exception as error:  # wgpu raises RuntimeError, its own classes, and Rust panics as others
            raise DeviceError(
                f"{adapter.info['device']} could not be opened: {first_lines(error)}",
                remedy="choose another device with --device, or update the driver",
            ) from error
        return Device(adapter, device, requested, wanted)

    @cached_property
    def facts(self) -> DeviceFacts:
        """What the compiler may know about this device."""
        return facts_of(self.adapter, self._limits, self._features, self._subgroup_size())

    @cached_property
    def limits(self) -> Limits:
        """The limits it was opened with; unlike `facts` this never runs a shader."""
        return facts_of(self.adapter, self._limits, self._features).limits

    def _subgroup_size(self) -> int:
        if "subgroup" not in self._features:
            return 0
        least, most = (int(self.adapter.info.get(f"stackgroup_{end}_size", 0)) for end in ("min", "max"))
        if least == most and least > 0:
            return least
        if self.adapter.info.get("vendor_id") == _NVIDIA:
            # wgpu 0.32 reports the specification's range for every adapter; here it has always been a warp.
            return 32
        if self.adapter.info["backend_type"] != "Metal" and adapter_kind(self.adapter) != "cpu":
            # The driver picks a size for each kernel: nothing can be built on it.
            return 0
        # These name a range, but always use one size: ask a shader.
        shader = Shader("subgroup_size", render_template(_SUBGROUP_SHADER), (1, 1, 1), ("read_write",))
        (size,) = self.run(shader, [np.zeros(1, np.uint32)])
        return int(size[0])

    @cached_property
    def commands(self) -> PublicCommands:
        """How dispatches are recorded, submitted and read back here."""
        return commands_for(self.wgpu)

    def wait(self) -> None:
        """Block until the device has done all that was submitted."""
        self.commands.wait_idle()

    # ---- objects ---------------------------------------------------------------------------------

    def create_buffer(self, nbytes: int, label: str = "", usage: str = "tensor") -> Any:
        """A zero-filled buffer for a "tensor", for "staging" (copied into, then mapped) or "query" results.

        Raises:
            LimitError: larger than the device allows; the message names `label`.
            DeviceError: the device is out of memory.
        """
        flags = wgpu_module().BufferUsage
        most = self.limits.max_buffer_size
        if nbytes > most:
            raise LimitError(
                f"{label or 'a buffer'} needs a buffer of {nbytes} bytes",
                limit=f"max-buffer-size is {most} bytes on {self.adapter.info['device']}",
                remedy="use smaller dimensions, float16 weights, or another device",
            )
        kinds = {
            "tensor": flags.STORAGE | flags.COPY_SRC | flags.COPY_DST,
            "staging": flags.MAP_READ | flags.COPY_DST,
            "query": flags.QUERY_RESOLVE | flags.COPY_SRC,
        }
        try:
            buffer = self.wgpu.create_buffer(label=label, size=max(4, nbytes), usage=kinds[usage])
        except Exception as error:
            raise DeviceError(
                f"no memory for {label or 'a buffer'} of {nbytes} bytes: {first_lines(error)}",
                remedy="use smaller dimensions or float16 weights, or close other programs",
            ) from error
        self.counts["buffers"] += 1
        return buffer

    def pipeline(self, shader: Shader, op: str | None = None, source: str | None = None) -> Any:
        """The compute pipeline of a shader; built once per text and bindings.

        Args:
            shader: what to build. op, source: named in errors.

        Raises:
            LimitError: more bindings or workgroups than the device allows.
            DeviceError: the driver refused the kernel.
        """
        key = (shader.text, shader.access)
        if key not in self._pipelines:
            self._check_limits(shader, op, source)
            _, layout = self._bind_layout(shader.access)
            try:
                module = self.wgpu.create_shader_module(code=shader.text, label=shader.label)
                self.counts["shaders"] += 1
                self._pipelines[key] = self.wgpu.create_compute_pipeline(
                    layout=layout, compute={"module": module, "entry_point": "main"}, label=shader.label
                )
            except Exception as error:  # validation errors of wgpu's own classes, and Rust panics as others
                raise DeviceError(
                    f"the kernel {shader.label} was refused by the device: {first_lines(error, 12)}",
                    op=op,
                    source=source,
                    limit=f"{self.limits}" if "limit" in str(error).lower() else None,
                    remedy="this is a defect of the kernel or of the driver; please report it with this message",
                ) from error
            self.counts["pipelines"] += 1
        return self._pipelines[key]

    def bind_group(self, shader: Shader, bindings: Sequence[tuple[Any, int]]) -> Any:
        """Bind buffers, each from its start and for so many bytes, to the bindings of a shader in order."""
        layout, _ = self._bind_layout(shader.access)
        entries = [
            {"binding": i, "resource": {"buffer": buffer, "offset": 0, "size": nbytes}}
            for i, (buffer, nbytes) in enumerate(bindings)
        ]
        self.counts["bind_groups"] += 1
        return self.wgpu.create_bind_group(layout=layout, entries=entries, label=shader.label)

    def _bind_layout(self, access: tuple[str, ...]) -> tuple[Any, Any]:
        # An explicit layout, because an automatic one drops bindings that a kernel happens not to read.
        if access not in self._layouts:
            stage = wgpu_module().ShaderStage.COMPUTE
            kinds = {"read": "read-only-storage", "read_write": "storage"}
            group = self.wgpu.create_bind_group_layout(
                entries=[
                    {"binding": i, "visibility": stage, "buffer": {"type": kinds[a]}} for i, a in enumerate(access)
                ]
            )
            self._layouts[access] = group, self.wgpu.create_pipeline_layout(bind_group_layouts=[group])
        return self._layouts[access]

    def _check_limits(self, shader: Shader, op: str | None, source: str | None) -> None:
        limits = self.limits
        for what, have, most, name in (
            ("storage buffers", len(shader.access), limits.max_storage_buffers, "max-storage-buffers-per-shader-stage"),
            (
                "workgroups in one dimension",
                max(shader.workgroups),
                limits.max_workgroups,
                "max-compute-workgroups-per-dimension",
            ),
        ):
            if have > most:
                raise LimitError(
                    f"the kernel {shader.label} needs {have} {what}",
                    op=op,
                    source=source,
                    limit=f"{name} is {most} on {self.adapter.info['device']}",
                    remedy="use smaller dimensions or another device",
                )

    # ---- small services for tests and tools ------------------------------------------------------

    def run(self, shader: Shader, arrays: Sequence[np.ndarray], guard: int = 0) -> list[np.ndarray]:
        """Run one shader once over host arrays, one per binding, and return all of them as they are after.

        Meant for kernel tests: every array becomes a buffer of its own (booleans as 32-bit 0 or 1), with `guard`
        bytes of NaN after it inside the binding.

        Raises:
            DeviceError: the shader wrote into a guard.
        """
        buffers = []
        for array in arrays:
            stored = np.asarray(array, np.uint32) if array.dtype == np.bool_ else np.asarray(array)
            data = stored.tobytes()
            data += b"\xff" * (max(4, -(-len(data) // 4) * 4) - len(data) + guard)
            buffers.append((self.create_buffer(len(data), shader.label), data))
            self.wgpu.queue.write_buffer(buffers[-1][0], 0, data)
        pipeline = self.pipeline(shader)
        group = self.bind_group(shader, [(buffer, len(data)) for buffer, data in buffers])
        encoder = self.wgpu.create_command_encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, group)
        compute.dispatch_workgroups(*shader.workgroups)
        compute.end()
        self.wgpu.queue.submit([encoder.finish()])
        results = []
        for array, (buffer, _) in zip(arrays, buffers, strict=True):
            raw = bytes(self.wgpu.queue.read_buffer(buffer))
            if guard and raw[-guard:] != b"\xff" * guard:
                raise DeviceError(f"{shader.label} wrote past the end of a binding")
            stored_type = np.dtype(np.uint32) if array.dtype == np.bool_ else array.dtype
            found = np.frombuffer(raw[: array.size * stored_type.itemsize], stored_type).reshape(array.shape)
            results.append(found.astype(array.dtype))
        return results


def first_lines(error: BaseException, count: int = 3) -> str:
    """The first lines of an error's text, joined: driver messages run to pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:count]) or type(error).__name__


__all__ = ["Device", "DeviceError", "LimitError", "adapters", "facts_of", "first_lines"]
