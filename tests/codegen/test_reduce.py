"""Reductions and argmax on the device against the reference, in every schedule and vector form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meganeura.facts import DeviceFacts
from meganeura.ir import OPS, DType, Op
from meganeura.lower.lanes import SCHEDULES, schedule_named
from meganeura.lower.reduce import PASSES, ReduceKernel, reduce_kernel
from meganeura.lower.schedule import Layout, Operand
from meganeura.options import CompileOptions
from meganeura.runtime.device import Device
from tests.codegen.harness import assert_close, operand_like, reference, run_kernel

REDUCTIONS = ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_mean")
TOLERANCE = {DType.F16: 2e-3}


def make(op: Op, operand: Operand, device: Device, schedule: str | None = None) -> ReduceKernel | None:
    kernel = reduce_kernel(op, (operand,), op.infer([operand.type]), device.facts, CompileOptions())
    if schedule is None:
        return kernel
    along = 1 if kernel.outward else kernel.schedule.vector
    named = schedule_named(schedule, kernel.reduced.size, along, device.facts, PASSES)
    named = named and replace(named, vector=kernel.schedule.vector)
    return None if named is None else replace(kernel, schedule=named)


def data(name: str, shape: tuple[int, ...], dtype: DType = DType.F32, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if name == "reduce_prod":
        # Away from zero and near one in size, so that the product of many keeps its digits.
        signs = rng.choice([-1, 1], shape)
        return (signs * (1 if dtype.is_integer else rng.uniform(0.9, 1.1, shape))).astype(dtype.numpy)
    if dtype.is_integer:
        low = 0 if dtype is DType.U32 else -1000
        return rng.integers(low, 1000, shape).astype(dtype.numpy)
    return rng.normal(size=shape).astype(dtype.numpy)


def check(device: Device, op: Op, x: np.ndarray, operand: Operand, schedule: str | None = None) -> ReduceKernel:
    kernel = make(op, operand, device, schedule)
    if kernel is None:
        pytest.skip(f"no {schedule} schedule on this device")
    (found,) = run_kernel(device, kernel, [x])
    (wanted,) = reference(op, [x], [operand.dtype])
    tolerance = TOLERANCE.get(operand.dtype, 1e-5)
    if op.name in ("reduce_sum", "reduce_mean") and operand.dtype.is_float and x.size:
        # Relative to the accumulated magnitude: a sum may cancel.
        absolute = np.abs(reference(op, [np.abs(x)], [operand.dtype])[0].astype(np.float64))
        finite = np.isfinite(wanted)
        assert np.array_equal(np.isnan(found), np.isnan(wanted)) and found.dtype == wanted.dtype
        error = np.abs(found.astype(np.float64) - wanted)[finite]
        assert (error <= tolerance * absolute[finite] + 1e-7).all()
    else:
        assert_close(found, wanted, tolerance)
    return kernel


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", [*REDUCTIONS, "argmax"])
@pytest.mark.parametrize("shape", [(5, 67), (3, 320)])
def test_the_last_axis_in_every_schedule(device: Device, name: str, shape: tuple[int, ...], schedule: str) -> None:
    op = OPS[name](1 if name == "argmax" else (1,))  # type: ignore[call-arg]
    x = data(name, shape)
    check(device, op, x, operand_like(x, DType.F32), schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["reduce_mean", "reduce_max"])
def test_vectors_along_outputs_in_every_schedule(device: Device, name: str, schedule: str) -> None:
    x = data(name, (37, 3, 12))
    kernel = check(device, OPS[name]((0,)), x, operand_like(x, DType.F32), schedule)  # type: ignore[call-arg]
    assert kernel.outward and kernel.schedule.vector == 4


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((), ()),
        ((1,), (0,)),
        ((4, 3), ()),
        ((4, 3), (0,)),
        ((4, 3), (0, 1)),
        ((2, 3, 4), (1,)),
        ((2, 3, 8), (0, 2)),
        ((2, 3, 4, 5), (0, 3)),
        ((2, 3, 2, 2, 3), (1, 3)),
        ((2, 1, 3, 1, 8), (0, 1, 2, 3, 4)),
    ],
)
@pytest.mark.parametrize("how", ["plain", "padded", "reversed"])
def test_any_axes_of_any_rank_and_layout(
    device: Device, shape: tuple[int, ...], axes: tuple[int, ...], how: str
) -> None:
    x = data("reduce_sum", shape)
    keepdims = len(axes) % 2 == 0
    check(device, OPS["reduce_sum"](axes, keepdims), x, operand_like(x, DType.F32, how))  # type: ignore[call-arg]


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 63, 64, 65])
def test_lengths_around_powers_of_two(device: Device, length: int) -> None:
    x = data("reduce_max", (2, length))
    check(device, OPS["reduce_max"]((1,)), x, operand_like(x, DType.F32))  # type: ignore[call-arg]
    check(device, OPS["argmax"](1, False), x, operand_like(x, DType.F32))  # type: ignore[call-arg]


@pytest.mark.parametrize("dtype", [DType.F16, DType.I32, DType.U32])
@pytest.mark.parametrize("name", ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "argmax"])
def test_other_dtypes(device: Device, name: str, dtype: DType) -> None:
    if dtype is DType.F16 and not device.facts.has_f16:
        pytest.skip("no shader-f16 on this device")
    x = data(name, (3, 40), dtype)
    op = OPS[name](1 if name == "argmax" else (1,))  # type: ignore[call-arg]
    check(device, op, x, operand_like(x, dtype))


def test_mean_of_half_precision_does_not_overflow(device: Device) -> None:
    if not device.facts.has_f16:
        pytest.skip("no shader-f16 on this device")
    x = np.full((2, 300), 60000, np.float16)
    check(device, OPS["reduce_mean"]((1,)), x, operand_like(x, DType.F16))  # type: ignore[call-arg]


def test_integers_wrap_and_their_extremes_are_found(device: Device) -> None:
    x = np.array([[2**31 - 1, 2**31 - 1, -5], [-(2**31), -(2**31), -(2**31)]], np.int32)
    for name in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min"):
        check(device, OPS[name]((1,)), x, operand_like(x, DType.I32))  # type: ignore[call-arg]
    check(device, OPS["argmax"](1), x, operand_like(x, DType.I32))  # type: ignore[call-arg]
    y = np.array([[0, 2**32 - 1, 7], [0, 0, 0]], np.uint32)
    for name in ("reduce_max", "reduce_min"):
        check(device, OPS[name]((1,)), y, operand_like(y, DType.U32))  # type: ignore[call-arg]
    check(device, OPS["argmax"](1), y, operand_like(y, DType.U32))  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_prod"])
def test_an_empty_axis_gives_the_neutral_value(device: Device, name: str) -> None:
    x = np.zeros((3, 0, 2), np.float32)
    check(device, OPS[name]((1,), False), x, operand_like(x, DType.F32))  # type: ignore[call-arg]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("length", [6, 64])
def test_nan_and_infinities_win(device: Device, length: int, schedule: str) -> None:
    x = data("reduce_max", (7, length))
    x[0, 2], x[1, length - 1], x[2, 0], x[3, 1] = np.nan, -np.nan, np.inf, -np.inf
    x[4] = -np.inf
    x[5] = np.inf
    x[6, 1], x[6, 4] = np.nan, np.inf
    for name in ("reduce_max", "reduce_min", "argmax"):
        op = OPS[name](1 if name == "argmax" else (1,))  # type: ignore[call-arg]
        check(device, op, x, operand_like(x, DType.F32), schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_argmax_takes_the_first_of_equals(device: Device, schedule: str) -> None:
    x = np.random.default_rng(0).integers(0, 3, (9, 70)).astype(np.float32) - 1
    x[0] = 0
    x[0, ::2] = -0.0
    x[1] = -7
    check(device, OPS["argmax"](1), x, operand_like(x, DType.F32), schedule)  # type: ignore[call-arg]
    y = x.reshape(3, 3, 70)
    check(device, OPS["argmax"](0, False), y, operand_like(y, DType.F32, "reversed"), schedule)  # type: ignore[call-arg]


@pytest.mark.parametrize("schedule", [None, *SCHEDULES])
def test_long_sums_keep_their_digits(device: Device, schedule: str | None) -> None:
    # All of one sign and one size: added one by one in float32, a million of them lose three digits.
    x = np.random.default_rng(0).uniform(0.5, 1.0, (1, 1 << 20)).astype(np.float32)
    kernel = make(OPS["reduce_sum"]((1,)), operand_like(x, DType.F32), device, schedule)  # type: ignore[call-arg]
    if kernel is None:
        pytest.skip(f"no {schedule} schedule on this device")
    (found,) = run_kernel(device, kernel, [x])
    exact = x.astype(np.float64).sum()
    assert abs(found[0, 0] - exact) < 1e-5 * exact


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_max", "argmax"])
def test_schedules_of_a_gpu(device: Device, name: str) -> None:
    facts = replace(device.facts, kind="discrete")
    for shape in ((300, 36), (3, 520)):
        x = data(name, shape)
        op = OPS[name](1 if name == "argmax" else (1,))  # type: ignore[call-arg]
        operand = operand_like(x, DType.F32)
        kernel = reduce_kernel(op, (operand,), op.infer([operand.type]), facts, CompileOptions())
        (found,) = run_kernel(device, kernel, [x], facts)
        assert_close(found, reference(op, [x], [DType.F32])[0], 1e-5)


def test_vectors_are_only_used_where_neighbours_are_aligned() -> None:
    def width(layout: Layout, axes: tuple[int, ...]) -> tuple[int, bool]:
        operand = Operand(DType.F32, layout)
        op = OPS["reduce_sum"](axes)  # type: ignore[call-arg]
        kernel = reduce_kernel(op, (operand,), op.infer([operand.type]), DeviceFacts(), CompileOptions())
        return kernel.schedule.vector, kernel.outward

    assert width(Layout((3, 8), (8, 1)), (1,)) == (4, False)
    assert width(Layout((3, 8), (8, 1)), (0,)) == (4, True)
    assert width(Layout((3, 8), (8, 1), 2), (1,)) == (1, False)
    assert width(Layout((3, 8), (9, 1)), (1,)) == (1, False)
    assert width(Layout((3, 6), (8, 1)), (1,)) == (1, False)
    assert width(Layout((8, 3), (1, 8)), (1,)) == (4, True)
    assert width(Layout((3, 8), (0, 1)), (1,)) == (4, False)
    assert width(Layout((3, 8), (8, 2)), (1,)) == (1, False)
