"""Device facts: what later phases may know about a device, as plain data, without opening one."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Limits:
    """The WebGPU limits that code generation and planning depend on; defaults are WebGPU's guaranteed minimum."""

    max_binding_size: int = 128 << 20
    max_buffer_size: int = 256 << 20
    max_storage_buffers: int = 8
    max_workgroup_memory: int = 16384
    max_invocations: int = 256
    max_workgroup_size: tuple[int, int, int] = (256, 256, 64)
    max_workgroups: int = 65535


@dataclass(frozen=True)
class DeviceFacts:
    """One adapter as the compiler sees it.

    Attributes:
        name: the adapter's own name. backend: "Vulkan", "Metal", "D3D12", ... driver: its description.
        kind: "discrete", "integrated", "cpu" or "unknown".
        subgroup_size: lanes that run together, 0 where shaders may not use subgroups.
        features: WebGPU feature names the device was opened with.
    """

    name: str = "none"
    backend: str = "none"
    driver: str = ""
    kind: str = "unknown"
    limits: Limits = field(default_factory=Limits)
    features: frozenset[str] = frozenset()
    subgroup_size: int = 0

    @property
    def is_cpu(self) -> bool:
        """A software adapter: barriers are dear there, and vector registers cheap."""
        return self.kind == "cpu"

    @property
    def has_f16(self) -> bool:
        return "shader-f16" in self.features
