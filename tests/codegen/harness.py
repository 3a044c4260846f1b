"""Running one kernel on the device over operands of any layout, between guards, against the op's reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Importing a family registers its renderer.
from meganeura.codegen import reduce, rows, update  # noqa: F401
from meganeura.codegen.render import render
from meganeura.facts import DeviceFacts
from meganeura.ir import DType, Op, TensorType
from meganeura.lower.schedule import Kernel, Layout, Operand
from meganeura.reference.evaluator import round_to, widen
from meganeura.runtime.device import Device

GUARD = 256


def stored_type(dtype: DType) -> np.dtype:
    return np.dtype(np.uint32) if dtype is DType.BOOL else dtype.numpy


def seen(flat: np.ndarray, layout: Layout) -> np.ndarray:
    """The elements of a layout in a flat buffer, as a view."""
    strides = tuple(s * flat.itemsize for s in layout.strides)
    return np.lib.stride_tricks.as_strided(flat[layout.offset :], layout.shape, strides)


def placed(array: np.ndarray, operand: Operand) -> np.ndarray:
    """A flat buffer with the array at its layout's places and NaN (or garbage) elsewhere."""
    kind = stored_type(operand.dtype)
    flat = np.frombuffer(b"\xff" * (max(1, operand.layout.extent) * kind.itemsize), kind).copy()
    if operand.layout.size:
        seen(flat, operand.layout)[...] = array
    return flat


def operand_like(array: np.ndarray, dtype: DType, how: str = "plain") -> Operand:
    """An operand of an array's shape: "plain", "padded" rows at an offset, or axes "reversed" in memory."""
    shape = array.shape
    if how == "plain":
        return Operand(dtype, Layout.contiguous(shape))
    if how == "reversed":
        base = Layout.contiguous(shape[::-1])
        return Operand(dtype, Layout(shape, base.strides[::-1], 3))
    roomy = Layout.contiguous(tuple(d + 1 for d in shape))
    return Operand(dtype, Layout(shape, tuple(2 * s for s in roomy.strides), 5))


def run_kernel(
    device: Device, kernel: Kernel, arrays: Sequence[np.ndarray], facts: DeviceFacts | None = None
) -> list[np.ndarray]:
    """Run a kernel once over arrays given in its operands' shapes; returns its outputs. Guards and poison are on.

    `facts` generates code as for another device.
    """
    flats = [placed(a, o) for a, o in zip(arrays, kernel.inputs, strict=True)]
    outputs = [
        np.frombuffer(b"\xff" * (o.layout.extent * stored_type(o.dtype).itemsize), stored_type(o.dtype))
        for o in kernel.outputs
    ]
    shader = render(kernel, facts or device.facts)
    if kernel.in_place:
        found = [device.run(shader, [*flats[1:], flats[0]], GUARD)[-1]]
    else:
        found = device.run(shader, [*flats, *outputs], GUARD)[len(flats) :]
    results = [np.array(seen(f, o.layout)) for f, o in zip(found, kernel.outputs, strict=True)]
    return [r.astype(bool) if o.dtype is DType.BOOL else r for r, o in zip(results, kernel.outputs, strict=True)]


def reference(op: Op, arrays: Sequence[np.ndarray], dtypes: Sequence[DType]) -> list[np.ndarray]:
    """The op's results on the same arrays, rounded to their dtypes."""
    types = [TensorType(d, a.shape) for a, d in zip(arrays, dtypes, strict=True)]
    output = op.infer(types)
    found = op.evaluate([widen(a) for a in arrays], output)
    if isinstance(output, TensorType):
        return [round_to(np.asarray(found), output.dtype).astype(output.dtype.numpy)]
    return [round_to(f, t.dtype).astype(t.dtype.numpy) for f, t in zip(found, output.items, strict=True)]


def assert_close(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
    """Equal dtype, shape, NaN and infinity masks; integers equal; floats within `tolerance` of the largest value."""
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    if found.dtype.kind != "f":
        assert np.array_equal(found, wanted)
        return
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    infinite = np.isinf(wanted)
    assert np.array_equal(np.isinf(found), infinite) and np.array_equal(found[infinite], wanted[infinite])
    finite = np.isfinite(wanted)
    if finite.any():
        scale = max(1e-3, float(np.abs(wanted[finite].astype(np.float64)).max()))
        worst = np.abs(found[finite].astype(np.float64) - wanted[finite]).max()
        assert worst <= tolerance * scale, f"off by {worst} at scale {scale}"
