"""Softmax and norms on the device against the reference, in every schedule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meganeura.codegen.rows import render_rows
from meganeura.errors import LimitError
from meganeura.facts import DeviceFacts, Limits
from meganeura.ir import OPS, DType, Op, TensorType
from meganeura.lower.lanes import SCHEDULES, schedule_named
from meganeura.lower.rows import PASSES, RowsKernel, rows_kernel
from meganeura.lower.schedule import Layout, Operand
from meganeura.options import CompileOptions
from meganeura.runtime.device import Device
from tests.codegen.harness import assert_close, operand_like, reference, run_kernel

TOLERANCE = {DType.F32: 5e-6, DType.F16: 2e-3}
NORMS = ("layer_norm", "rms_norm", "residual_rms_norm")


def make(op: Op, operands: list[Operand], device: Device, schedule: str | None = None) -> RowsKernel | None:
    """The kernel with its own schedule, or the named one; None where the device can't have it."""
    output = op.infer([o.type for o in operands])
    kernel = rows_kernel(op, tuple(operands), output, device.facts, CompileOptions())
    if schedule is None:
        return kernel
    named = schedule_named(schedule, kernel.length, kernel.schedule.vector, device.facts, PASSES)
    return None if named is None else replace(kernel, schedule=named)


def data(op_name: str, shape: tuple[int, ...], dtype: DType, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    n = shape[-1]
    shapes = {
        "layer_norm": [shape, (n,), (n,)],
        "rms_norm": [shape, (n,)],
        "residual_rms_norm": [shape, shape, (n,)],
    }.get(op_name, [shape])
    return [(rng.normal(size=s) * 2 + 0.5).astype(dtype.numpy) for s in shapes]


def check(device: Device, op: Op, arrays: list[np.ndarray], operands: list[Operand], schedule: str | None) -> None:
    kernel = make(op, operands, device, schedule)
    if kernel is None:
        pytest.skip(f"no {schedule} schedule on this device")
    dtypes = [o.dtype for o in operands]
    for found, wanted in zip(run_kernel(device, kernel, arrays), reference(op, arrays, dtypes), strict=True):
        assert_close(found, wanted, TOLERANCE[dtypes[0]])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", *NORMS])
@pytest.mark.parametrize("shape", [(9, 33), (2, 300)])
def test_row_lengths_in_every_schedule(device: Device, name: str, shape: tuple[int, ...], schedule: str) -> None:
    op = OPS[name](1) if name.endswith("softmax") else OPS[name]()  # type: ignore[call-arg]
    arrays = data(name, shape, DType.F32)
    check(device, op, arrays, [operand_like(a, DType.F32) for a in arrays], schedule)


@pytest.mark.parametrize("name", ["softmax", "rms_norm"])
@pytest.mark.parametrize("length", [1, 2, 31, 32, 63, 64, 65])
def test_lengths_around_powers_of_two(device: Device, name: str, length: int) -> None:
    op = OPS[name](0) if name == "softmax" else OPS[name]()  # type: ignore[call-arg]
    arrays = data(name, (length,), DType.F32)
    check(device, op, arrays, [operand_like(a, DType.F32) for a in arrays], None)


@pytest.mark.parametrize(
    ("shape", "axis"), [((5,), 0), ((3, 4), 0), ((2, 3, 4), 1), ((2, 1, 3, 2, 5), 2), ((2, 2, 2, 2, 8), 4)]
)
@pytest.mark.parametrize("how", ["plain", "reversed"])
def test_softmax_along_any_axis_of_any_rank(device: Device, shape: tuple[int, ...], axis: int, how: str) -> None:
    (x,) = data("softmax", shape, DType.F32)
    check(device, OPS["softmax"](axis), [x], [operand_like(x, DType.F32, how)], None)  # type: ignore[call-arg]


@pytest.mark.parametrize("how", ["padded", "reversed"])
@pytest.mark.parametrize("name", ["log_softmax", *NORMS])
def test_strided_operands(device: Device, name: str, how: str) -> None:
    op = OPS[name](2) if name == "log_softmax" else OPS[name]()  # type: ignore[call-arg]
    arrays = data(name, (2, 3, 12), DType.F32)
    check(device, op, arrays, [operand_like(a, DType.F32, how) for a in arrays], None)


def test_a_residual_is_broadcast_and_rows_may_be_slices_of_wider_ones(device: Device) -> None:
    op = OPS["residual_rms_norm"]()
    x, _, weight = data("residual_rms_norm", (2, 3, 8), DType.F32)
    residual = np.random.default_rng(1).normal(size=(3, 1)).astype(np.float32)
    operands = [
        Operand(DType.F32, Layout((2, 3, 8), (72, 24, 1), 16)),
        operand_like(residual, DType.F32),
        operand_like(weight, DType.F32),
    ]
    kernel = make(op, operands, device)
    assert kernel is not None and kernel.schedule.vector == 1
    found = run_kernel(device, kernel, [x, np.broadcast_to(residual, x.shape), weight])
    for got, wanted in zip(found, reference(op, [x, residual, weight], [DType.F32] * 3), strict=True):
        assert_close(got, wanted, 5e-6)


@pytest.mark.parametrize("name", ["softmax", *NORMS])
@pytest.mark.parametrize("length", [7, 48])
def test_half_precision_accumulates_in_single(device: Device, name: str, length: int) -> None:
    if not device.facts.has_f16:
        pytest.skip("no shader-f16 on this device")
    op = OPS[name](1) if name == "softmax" else OPS[name]()  # type: ignore[call-arg]
    arrays = data(name, (4, length), DType.F16)
    check(device, op, arrays, [operand_like(a, DType.F16) for a in arrays], None)


def test_a_variance_does_not_cancel(device: Device) -> None:
    rng = np.random.default_rng(0)
    x = (10000 + rng.normal(size=(4, 64))).astype(np.float32)
    arrays = [x, np.ones(64, np.float32), np.zeros(64, np.float32)]
    for schedule in SCHEDULES:
        kernel = make(OPS["layer_norm"](), [operand_like(a, DType.F32) for a in arrays], device, schedule)
        if kernel is not None:
            (found,) = run_kernel(device, kernel, arrays)
            # The rounded mean alone is off by 1e-3 of a deviation here.
            assert np.abs(found - reference(kernel.op, arrays, [DType.F32] * 3)[0]).max() < 2e-3


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("length", [5, 64])
def test_softmax_of_infinities_and_nan(device: Device, name: str, length: int, schedule: str) -> None:
    x = np.random.default_rng(0).normal(size=(10, length)).astype(np.float32)
    x[0, 1:3] = -np.inf
    x[1, :] = -np.inf
    x[2, 1] = np.inf
    x[3, 1], x[3, 4] = np.inf, -np.inf
    x[4, length - 1] = np.nan
    x[5, 0] = -np.nan
    x[6] *= 1e30
    x[7, :] = -np.finfo(np.float32).max
    x[7, 2] = 0
    x[8, :] = np.finfo(np.float32).max
    check(device, OPS[name](1), [x], [operand_like(x, DType.F32)], schedule)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", NORMS)
def test_norms_of_infinities_and_nan(device: Device, name: str) -> None:
    arrays = data(name, (4, 12), DType.F32)
    arrays[0][0, 3], arrays[0][1, 3], arrays[0][2] = np.nan, np.nan, 0.0
    check(device, OPS[name](), arrays, [operand_like(a, DType.F32) for a in arrays], None)


@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
@pytest.mark.parametrize(("rows", "length", "schedule"), [(300, 36, "subgroup"), (3, 520, "workgroup")])
def test_schedules_of_a_gpu(device: Device, name: str, rows: int, length: int, schedule: str) -> None:
    # Several subgroups meet in a workgroup there: one per row, or all on one row.
    facts = replace(device.facts, kind="discrete")
    op = OPS[name](1) if name == "softmax" else OPS[name]()  # type: ignore[call-arg]
    arrays = data(name, (rows, length), DType.F32)
    operands = tuple(operand_like(a, DType.F32) for a in arrays)
    kernel = rows_kernel(op, operands, operands[0].type, facts, CompileOptions())
    assert kernel.schedule.name == (schedule if facts.subgroup_size else "workgroup")
    (found,) = run_kernel(device, kernel, arrays, facts)
    assert_close(found, reference(op, arrays, [o.dtype for o in operands])[0], 5e-6)


def test_grids_wider_than_a_dimension_are_folded(device: Device) -> None:
    (x,) = data("softmax", (1000, 4), DType.F32)
    facts = replace(device.facts, limits=replace(device.facts.limits, max_workgroups=7))
    op = OPS["softmax"](1)  # type: ignore[call-arg]
    kernel = rows_kernel(
        op, (operand_like(x, DType.F32),), op.infer([TensorType(DType.F32, x.shape)]), facts, CompileOptions()
    )
    shader = render_rows(kernel, facts)
    assert max(shader.workgroups) <= 7
    found = device.run(shader, [x, np.full_like(x, np.nan)], guard=256)[1]
    assert_close(found, reference(op, [x], [DType.F32])[0], 5e-6)


def test_long_rows_stay_within_a_cpu_adapters_loop_budget(device: Device) -> None:
    # One invocation would need three times 70001 iterations.
    (x,) = data("softmax", (20, 70001), DType.F32)
    check(device, OPS["softmax"](1), [x], [operand_like(x, DType.F32)], None)  # type: ignore[call-arg]
    facts = DeviceFacts(kind="cpu", subgroup_size=8)
    assert schedule_named("thread", 70001, 1, facts, PASSES) is None
    huge = Operand.contiguous(TensorType(DType.F32, (1, 1 << 28)))
    with pytest.raises(LimitError, match="softmax"):
        rows_kernel(OPS["softmax"](1), (huge,), huge.type, facts, CompileOptions())  # type: ignore[call-arg]


def test_schedules_fit_webgpus_minimum_and_too_many_bindings_are_refused() -> None:
    least = DeviceFacts(limits=Limits(), subgroup_size=0)
    for rows, length in ((1, 8), (1000, 50000), (5000, 3)):
        x = TensorType(DType.F32, (rows, length))
        kernel = rows_kernel(OPS["softmax"](1), (Operand.contiguous(x),), x, least, CompileOptions())  # type: ignore[call-arg]
        assert kernel.schedule.name in ("thread", "workgroup") and kernel.schedule.workgroup <= 256
    few = replace(least, limits=replace(Limits(), max_storage_buffers=4))
    op = OPS["residual_rms_norm"]()
    x, w = TensorType(DType.F32, (3, 8)), TensorType(DType.F32, (8,))
    operands = tuple(Operand.contiguous(t) for t in (x, x, w))
    with pytest.raises(LimitError, match="residual_rms_norm"):
        rows_kernel(op, operands, op.infer([x, x, w]), few, CompileOptions())
