"""Adapters: finding them, choosing one, and what later phases may know about it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

from meganeura.errors import DeviceError
from meganeura.facts import DeviceFacts, Limits

WANTED_FEATURES = ("shader-f16", "subgroup", "subgroup-barrier", "timestamp-query", "immediates")
"""Features requested where the adapter has them."""

_KINDS = {"DiscreteGPU": "discrete", "IntegratedGPU": "integrated", "CPU": "cpu"}
_RANK = {"discrete": 0, "integrated": 1, "unknown": 2, "cpu": 3}
_SINGLE_LIMITS = {
    "max_binding_size": "max-storage-buffer-binding-size",
    "max_buffer_size": "max-buffer-size",
    "max_storage_buffers": "max-storage-buffers-per-shader-stage",
    "max_workgroup_memory": "max-compute-workgroup-storage-size",
    "max_invocations": "max-compute-invocations-per-workgroup",
    "max_workgroups": "max-compute-workgroups-per-dimension",
}
_SIZE_LIMITS = ("max-compute-workgroup-size-x", "max-compute-workgroup-size-y", "max-compute-workgroup-size-z")


def wgpu_module() -> Any:
    """The wgpu package, imported at first use."""
    # Its loader complains on stderr when the variable is missing.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    import wgpu

    return wgpu


def adapters() -> list[Any]:
    """wgpu adapters, best first: discrete, integrated, CPU; OpenGL only where nothing else drives the device."""
    found = wgpu_module().gpu.enumerate_adapters_sync()
    modern = {a.info["device"] for a in found if a.info["backend_type"] != "OpenGL"}
    kept = [a for a in found if a.info["backend_type"] != "OpenGL" or a.info["device"] not in modern]
    return sorted(kept, key=lambda adapter: _RANK[adapter_kind(adapter)])


def adapter_kind(adapter: Any) -> str:
    """ "discrete", "integrated", "cpu" or "unknown"."""
    return _KINDS.get(str(adapter.info["adapter_type"]), "unknown")


def choose_adapter(choice: str | int | None = None) -> Any:
    """The best adapter, or the one of this index, kind, or whose name or backend contains this text.

    Raises:
        DeviceError: there is no adapter at all, or none that fits the choice.
    """
    found = adapters()
    if not found:
        raise DeviceError(
            "no graphics adapter was found",
            remedy="install a driver; for software Vulkan on Debian or Ubuntu: apt-get install mesa-vulkan-drivers",
        )
    if choice is None:
        return found[0]
    listing = "; ".join(f"{i}: {a.info['device']} ({adapter_kind(a)})" for i, a in enumerate(found))
    wanted = str(choice).strip().lower()
    if wanted.lstrip("-").isdigit():
        if 0 <= int(wanted) < len(found):
            return found[int(wanted)]
        raise DeviceError(f"there is no device {choice}", remedy=f"choose one of {listing}")
    for adapter in found:
        names = f"{adapter.info['device']} {adapter.info['backend_type']}".lower()
        if wanted and (wanted == adapter_kind(adapter) or wanted in names):
            return adapter
    raise DeviceError(f"no device is called {choice!r}", remedy=f"choose one of {listing}")


def choose_features(adapter: Any, features: Iterable[str] | None) -> frozenset[str]:
    """Features to open an adapter with: all that are wanted and there, or exactly the given ones.

    Raises:
        DeviceError: the adapter lacks a given feature.
    """
    if features is None:
        return frozenset(f for f in WANTED_FEATURES if f in adapter.features)
    missing = sorted(set(features) - set(adapter.features))
    if missing:
        raise DeviceError(
            f"{adapter.info['device']} lacks the feature {', '.join(missing)}",
            remedy="choose another device, or open this one without the feature",
        )
    return frozenset(features)


def choose_limits(adapter: Any, limits: Limits | None) -> dict[str, int]:
    """wgpu's names and values of the limits to request: the adapter's own, lowered to `limits` where given."""
    requested = {name: value for name, value in adapter.limits.items() if value}
    if limits is None:
        return requested
    lowered = {theirs: int(getattr(limits, ours)) for ours, theirs in _SINGLE_LIMITS.items()}
    lowered |= dict(zip(_SIZE_LIMITS, limits.max_workgroup_size, strict=True))
    return requested | {name: min(value, requested.get(name, value)) for name, value in lowered.items()}


def facts_of(
    adapter: Any,
    limits: Mapping[str, int] | None = None,
    features: Iterable[str] | None = None,
    subgroup_size: int = 0,
) -> DeviceFacts:
    """Facts of an adapter, opened with these limits and features (by default all it has)."""
    info = adapter.info
    values = adapter.limits if limits is None else {**adapter.limits, **limits}
    return DeviceFacts(
        name=str(info["device"]),
        backend=str(info["backend_type"]),
        driver=str(info["description"]),
        kind=adapter_kind(adapter),
        limits=Limits(
            **{ours: values[theirs] for ours, theirs in _SINGLE_LIMITS.items()},
            max_workgroup_size=(values[_SIZE_LIMITS[0]], values[_SIZE_LIMITS[1]], values[_SIZE_LIMITS[2]]),
        ),
        features=choose_features(adapter, features),
        subgroup_size=subgroup_size,
    )
