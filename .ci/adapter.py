"""Prints the adapter that would be used; fails where there is none that can run compute shaders well."""

from __future__ import annotations

import sys

from meganeura.runtime.adapters import adapters

# OpenGL adapters lack the limits that the kernels need.
usable = [adapter for adapter in adapters() if adapter.info["backend_type"] != "OpenGL"]
if not usable:
    sys.exit("no Vulkan, Metal or Direct3D 12 adapter")
print(usable[0].info["device"])
