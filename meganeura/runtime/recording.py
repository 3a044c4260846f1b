"""Recording dispatches, submitting them, and reading mapped buffers, with as little Python per dispatch as possible.

A WebGPU command buffer can be submitted once, so every call records its dispatches again. Through wgpu-py's classes
that costs 4 us a dispatch; through its C library, with the handles looked up once, under 2 us. The classes remain the
fallback, for a version of wgpu-py whose internals differ. Errors of the quick path surface when the recording ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

from meganeura.errors import DeviceError
from meganeura.runtime.adapters import wgpu_module

Step = tuple[Any, Any, tuple[int, int, int]]
"""A pipeline, a bind group and a grid."""


class Mapping(Protocol):
    """A staging buffer on its way to the host."""

    def wait(self) -> memoryview:
        """Block until the copy is done; the bytes stay valid until `close`."""
        ...

    def close(self) -> None:
        """Unmap the buffer, so that the device may write it again."""
        ...


class PublicCommands:
    """Recording and mapping through wgpu-py's documented classes."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._fence: Any = None

    def prepare(self, steps: Sequence[Step]) -> Any:
        """Whatever `record` needs to know about these steps, looked up once."""
        prepared, last = [], None
        for pipeline, group, grid in steps:
            prepared.append((None if pipeline is last else pipeline, group, grid))
            last = pipeline
        return prepared

    def record(self, compute_pass: Any, prepared: Any) -> None:
        """Record prepared steps into a compute pass."""
        for pipeline, group, grid in prepared:
            if pipeline is not None:
                compute_pass.set_pipeline(pipeline)
            compute_pass.set_bind_group(0, group)
            compute_pass.dispatch_workgroups(*grid)

    def submit(self, command_buffer: Any) -> Any:
        """Submit one command buffer; returns what `wait` and `map` take."""
        self._device.queue.submit([command_buffer])
        return None

    @property
    def timestamp_period(self) -> float:
        """Nanoseconds per tick of a timestamp; 1 by WebGPU's rules."""
        return 1.0

    def wait_idle(self) -> None:
        """Block until the device has done all that was submitted."""
        if self._fence is None:
            usage = wgpu_module().BufferUsage
            self._fence = self._device.create_buffer(size=4, usage=usage.COPY_SRC | usage.COPY_DST)
        self._device.queue.read_buffer(self._fence)

    def map(self, buffer: Any, nbytes: int, submission: Any) -> Mapping:
        """Start mapping the first `nbytes` (a multiple of 8) of a staging buffer."""
        return _PublicMapping(buffer, nbytes)


class _PublicMapping:
    def __init__(self, buffer: Any, nbytes: int) -> None:
        self._buffer, self._nbytes = buffer, nbytes
        self._promise = buffer.map_async(wgpu_module().MapMode.READ, 0, nbytes)

    def wait(self) -> memoryview:
        self._promise.sync_wait()
        return self._buffer.read_mapped(0, self._nbytes, copy=False)

    def close(self) -> None:
        self._buffer.unmap()


class NativeCommands(PublicCommands):
    """The same through wgpu-native's C functions."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        from wgpu.backends.wgpu_native import _api, _ffi

        # Functions of `libf` raise the errors of their call, at a price; those of `lib` are bare.
        lib, libf = cast(Any, _ffi.lib), cast(Any, _api.libf)
        self._ffi, self._lib, self._checked = cast(Any, _ffi.ffi), lib, libf
        self._set_pipeline = lib.wgpuComputePassEncoderSetPipeline
        self._set_group = lib.wgpuComputePassEncoderSetBindGroup
        self._dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
        self._submit = libf.wgpuQueueSubmitForIndex
        self._handle, self._queue = device._internal, device.queue._internal
        # Touch what `map` uses, so that a library without it is found out here.
        _ = lib.wgpuBufferMapAsync, lib.wgpuBufferGetMappedRange, lib.wgpuBufferUnmap, lib.wgpuDevicePoll

    def prepare(self, steps: Sequence[Step]) -> Any:
        prepared, last = [], None
        for pipeline, group, grid in steps:
            handle = pipeline._internal
            # The objects come along so that their handles stay alive.
            prepared.append((None if handle == last else handle, group._internal, *grid, (pipeline, group)))
            last = handle
        return prepared

    def record(self, compute_pass: Any, prepared: Any) -> None:
        encoder, none = compute_pass._internal, self._ffi.NULL
        set_pipeline, set_group, dispatch = self._set_pipeline, self._set_group, self._dispatch
        for pipeline, group, x, y, z, _ in prepared:
            if pipeline is not None:
                set_pipeline(encoder, pipeline)
            set_group(encoder, 0, group, 0, none)
            dispatch(encoder, x, y, z)

    def submit(self, command_buffer: Any) -> Any:
        buffers = self._ffi.new("WGPUCommandBuffer[1]", [command_buffer._internal])
        return self._submit(self._queue, 1, buffers)

    @property
    def timestamp_period(self) -> float:
        # wgpu-native hands out the driver's own ticks.
        return float(self._lib.wgpuQueueGetTimestampPeriod(self._queue))

    def wait_idle(self) -> None:
        self._lib.wgpuDevicePoll(self._handle, True, self._ffi.NULL)

    def map(self, buffer: Any, nbytes: int, submission: Any) -> Mapping:
        return _NativeMapping(self, buffer, nbytes, submission)


class _NativeMapping:
    def __init__(self, commands: NativeCommands, buffer: Any, nbytes: int, submission: int) -> None:
        self._commands, self._buffer, self._nbytes = commands, buffer, nbytes
        ffi = commands._ffi
        self._submission = ffi.new("WGPUSubmissionIndex[1]", [submission])
        self._status: int | None = None
        self._raised: BaseException | None = None

        def failed(_kind: Any, error: BaseException, _trace: Any) -> None:
            # Ctrl-C may strike inside the callback, where an exception would be printed and forgotten.
            self._raised = error

        @ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)", onerror=failed)
        def done(status: int, _message: Any, _first: Any, _second: Any) -> None:
            self._status = status

        self._callback = done
        info = ffi.new("WGPUBufferMapCallbackInfo *")
        info.mode, info.callback = commands._lib.WGPUCallbackMode_AllowProcessEvents, done
        commands._checked.wgpuBufferMapAsync(buffer._internal, commands._lib.WGPUMapMode_Read, 0, nbytes, info[0])

    def wait(self) -> memoryview:
        lib, ffi = self._commands._lib, self._commands._ffi
        # One blocking poll suffices; the loop covers a poll that another thread's poll overtook.
        for _ in range(1000):
            if self._status is not None or self._raised is not None:
                break
            lib.wgpuDevicePoll(self._commands._handle, True, self._submission)
        if self._raised is not None:
            raise self._raised
        if self._status != lib.WGPUMapAsyncStatus_Success:
            raise DeviceError(
                f"reading results from the device failed (status {self._status})",
                remedy="the device may have been lost; open it again",
            )
        address = lib.wgpuBufferGetMappedRange(self._buffer._internal, 0, self._nbytes)
        return memoryview(ffi.buffer(address, self._nbytes))

    def close(self) -> None:
        self._commands._lib.wgpuBufferUnmap(self._buffer._internal)


def commands_for(device: Any) -> PublicCommands:
    """The quickest way of recording that this wgpu-py offers."""
    try:
        return NativeCommands(device)
    except (ImportError, AttributeError):
        return PublicCommands(device)
