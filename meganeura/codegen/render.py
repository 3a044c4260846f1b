"""From a kernel to its shader: one renderer per kernel family, found by the kernel's class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meganeura.codegen.shader import Shader
from meganeura.errors import MeganeuraError
from meganeura.facts import DeviceFacts
from meganeura.lower.schedule import Kernel

_RENDERERS: dict[type[Kernel], Callable[[Any, DeviceFacts], Shader]] = {}


def renders(kernel_class: type[Kernel]) -> Callable[[Any], Any]:
    """Decorator: the function renders kernels of this class."""

    def register(function: Any) -> Any:
        _RENDERERS[kernel_class] = function
        return function

    return register


def render(kernel: Kernel, facts: DeviceFacts) -> Shader:
    """WGSL of one kernel for one device."""
    renderer = _RENDERERS.get(type(kernel))
    if renderer is None:
        raise MeganeuraError(f"no code generator for kernel family {kernel.family!r}", op=kernel.op.name)
    return renderer(kernel, facts)
