"""State updates in place on the device against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from meganeura.errors import GraphError
from meganeura.facts import DeviceFacts
from meganeura.ir import OPS, DType
from meganeura.lower.schedule import Layout, Operand
from meganeura.lower.update import update_kernel
from meganeura.options import CompileOptions
from meganeura.runtime.device import Device
from tests.codegen.harness import operand_like, placed, reference, run_kernel, seen


def check(
    device: Device,
    state: np.ndarray,
    rows: np.ndarray,
    position: list[int],
    axis: int,
    dtype: DType = DType.F32,
    how: tuple[str, str] = ("plain", "plain"),
    op_name: str = "state_update",
) -> int:
    """Compare all of the state; returns the vector width used."""
    op = OPS[op_name](axis)  # type: ignore[call-arg]
    arrays = [state, rows, np.array(position, np.uint32)]
    dtypes = [dtype, dtype, DType.U32]
    layouts = [*how, "plain"]
    operands = tuple(operand_like(a, d, h) for a, d, h in zip(arrays, dtypes, layouts, strict=True))
    kernel = update_kernel(op, operands, op.infer([o.type for o in operands]), device.facts, CompileOptions())
    assert kernel.in_place and kernel.outputs == (operands[0],)
    (found,) = run_kernel(device, kernel, arrays)
    (wanted,) = reference(op, arrays, dtypes)
    assert found.dtype == wanted.dtype and np.array_equal(found, wanted)
    return kernel.vector


def numbers(*shape: int, dtype: DType = DType.F32, start: int = 1) -> np.ndarray:
    return (np.arange(int(np.prod(shape))).reshape(shape) + start).astype(dtype.numpy)


@pytest.mark.parametrize("position", [0, 3, 7])
@pytest.mark.parametrize("width", [5, 8])
def test_one_row_of_a_cache(device: Device, position: int, width: int) -> None:
    vector = check(device, numbers(3, 8, width), -numbers(3, 1, width), [position], 1, op_name="cache_write")
    assert vector == (4 if width == 8 else 1)


@pytest.mark.parametrize("position", [5, 6, 8, 9, 2**31, 2**32 - 1])
def test_rows_past_the_end_are_dropped(device: Device, position: int) -> None:
    check(device, numbers(2, 8, 4), -numbers(2, 3, 4), [position], 1)


@pytest.mark.parametrize(
    ("shape", "axis"), [((9,), 0), ((6, 4), 0), ((4, 6), 1), ((2, 3, 4, 5), 2), ((2, 2, 3, 2, 8), 3)]
)
@pytest.mark.parametrize("how", [("plain", "padded"), ("padded", "reversed"), ("reversed", "plain")])
def test_any_axis_rank_and_layout(device: Device, shape: tuple[int, ...], axis: int, how: tuple[str, str]) -> None:
    rows = tuple(2 if a == axis else d for a, d in enumerate(shape))
    check(device, numbers(*shape), -numbers(*rows), [1], axis, how=how)


def test_every_batch_entry_has_its_position(device: Device) -> None:
    check(device, numbers(3, 2, 6, 4), -numbers(3, 2, 1, 4), [0, 5, 2], 2)
    check(device, numbers(3, 6), -numbers(3, 2), [4, 5, 9], 1)


@pytest.mark.parametrize("dtype", [DType.F16, DType.I32, DType.U32, DType.BOOL])
@pytest.mark.parametrize("width", [3, 8])
def test_other_dtypes(device: Device, dtype: DType, width: int) -> None:
    if dtype is DType.F16 and not device.facts.has_f16:
        pytest.skip("no shader-f16 on this device")
    state, rows = numbers(2, 5, width, dtype=dtype), numbers(2, 1, width, dtype=dtype, start=100)
    if dtype is DType.BOOL:
        state, rows = np.zeros((2, 5, width), bool), np.ones((2, 1, width), bool)
    check(device, state, rows, [3], 1, dtype)


def test_a_position_may_lie_anywhere_in_its_buffer(device: Device) -> None:
    op = OPS["state_update"](1)  # type: ignore[call-arg]
    state, rows, position = numbers(2, 4, 3), -numbers(2, 1, 3), np.array([3, 1], np.uint32)
    operands = (
        operand_like(state, DType.F32),
        operand_like(rows, DType.F32),
        Operand(DType.U32, Layout((2,), (3,), 2)),
    )
    kernel = update_kernel(op, operands, op.infer([o.type for o in operands]), device.facts, CompileOptions())
    (found,) = run_kernel(device, kernel, [state, rows, position])
    assert np.array_equal(found, reference(op, [state, rows, position], [DType.F32, DType.F32, DType.U32])[0])
    assert seen(placed(position, operands[2]), operands[2].layout).tolist() == [3, 1]


def test_no_rows_change_nothing(device: Device) -> None:
    check(device, numbers(2, 4, 3), np.zeros((2, 0, 3), np.float32), [1], 1)


def test_a_broadcast_view_is_refused() -> None:
    op = OPS["state_update"](0)  # type: ignore[call-arg]
    state = Operand(DType.F32, Layout((4, 3), (1, 0)))
    rows, position = Operand(DType.F32, Layout.contiguous((1, 3))), Operand(DType.U32, Layout.contiguous((1,)))
    with pytest.raises(GraphError, match="broadcast"):
        update_kernel(op, (state, rows, position), state.type, DeviceFacts(), CompileOptions())
