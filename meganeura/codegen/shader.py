"""What code generation produces: one WGSL module per kernel, with its grid and bindings."""

from __future__ import annotations

from dataclasses import dataclass

from meganeura.errors import LimitError
from meganeura.facts import Limits


@dataclass(frozen=True)
class Shader:
    """A compute shader ready to be built.

    Attributes:
        label: readable name for traces. text: WGSL with entry point `main`.
        workgroups: grid to dispatch, three positive ints within the device's limit.
        access: per binding (group 0, binding i) "read" or "read_write": the kernel's inputs, then its outputs;
            an in-place kernel leaves out its first input, which is its first output.
    """

    label: str
    text: str
    workgroups: tuple[int, int, int]
    access: tuple[str, ...]


def fold_grid(count: int, limits: Limits, label: str = "kernel") -> tuple[int, int, int]:
    """Spread `count` workgroups over x and y (then z) within the device's limit per dimension.

    The kernel computes `linear = x + y * num_workgroups.x + z * num_workgroups.x * num_workgroups.y` and must
    return when it is not below `count`.
    """
    most = limits.max_workgroups
    if count <= most:
        return (max(count, 1), 1, 1)
    rows = -(-count // most)
    if rows <= most:
        return (-(-count // rows), rows, 1)
    layers = -(-rows // most)
    if layers > most:
        raise LimitError(f"{label} needs {count} workgroups", limit=f"{most} per dimension")
    return (most, most, layers)
