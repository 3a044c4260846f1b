"""Matrix product kernels on the device, each schedule against the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meganeura.codegen.matmul import render_matmul
from meganeura.codegen.template import render_template
from meganeura.errors import LimitError
from meganeura.facts import DeviceFacts, Limits
from meganeura.ir.types import F16, F32, I32, U32
from meganeura.lower.matmul import SCHEDULES, Tiled, Vector, preferred_weight_layout
from meganeura.ops.matmul import FusedMatMul, GatedMatMul, MatMul
from meganeura.runtime.device import Device
from tests.codegen.matmul_support import GUARD, check, contiguous, kernel_of, placed, random

METHODS = tuple(name for name in SCHEDULES if name != "columns")  # for quantised weights only
SHAPES = [
    (1, 1, 1),
    (1, 64, 0),
    (5, 3, 2),
    (31, 33, 32),
    (33, 65, 31),
    (65, 31, 33),
    (64, 32, 64),
    (32, 63, 65),
    (2, 64, 63),
]


def product(m: int, n: int, k: int, dtypes=(F32, F32)):
    return [contiguous(random((m, k), dtypes[0])), contiguous(random((k, n), dtypes[1], seed=1))]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(device: Device, method: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    check(device, MatMul(), product(min(m, 5) if method == "vector" else m, n, k), method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("wide", [True, False], ids=["wide", "odd"])
@pytest.mark.parametrize("flags", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_transposed_operands(device: Device, method: str, wide: bool, flags: tuple[bool, bool]) -> None:
    m, n, k = (8, 36, 20) if wide else (7, 35, 18)
    a = random((k, m) if flags[0] else (m, k), F32)
    b = random((n, k) if flags[1] else (k, n), F16 if flags[0] else F32)
    check(device, MatMul(*flags, alpha=0.5), [contiguous(a), contiguous(b)], method)


@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("dtype", [F32, F16], ids=repr)
def test_few_columns_are_computed_as_rows(device: Device, columns: int, dtype) -> None:
    a, b = product(5, columns, 6, (F32, dtype))
    kernel = check(device, MatMul(), [a, b])
    assert kernel.problem.exchanged and kernel.problem.m == columns


@pytest.mark.parametrize("method", METHODS)
def test_float16_throughout(device: Device, method: str) -> None:
    tensors = [*product(9, 12, 16, (F16, F16)), contiguous(random((12,), F16)), contiguous(random((9, 12), F16))]
    check(device, FusedMatMul(bias=True, residual=True), tensors, method, out=F16)


@pytest.mark.parametrize("dtype", [I32, U32])
def test_integers(device: Device, dtype) -> None:
    kernel = check(device, MatMul(alpha=3.0), product(5, 7, 9, (dtype, dtype)), out=dtype)
    assert kernel.schedule.name == "simple"
    with pytest.raises(LimitError, match="integer"):
        kernel_of(MatMul(alpha=0.5), product(5, 7, 9, (dtype, dtype)), device.facts, None, dtype)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("activation", ["relu", "silu", "gelu", "gelu_tanh", "tanh", "sigmoid"])
def test_activations(device: Device, method: str, activation: str) -> None:
    # The six activations take turns with the six ways to lay out a bias.
    bias = {"relu": (36,), "silu": (6, 1), "gelu": (6, 36), "gelu_tanh": (1,), "tanh": (), "sigmoid": (2, 6, 36)}
    tensors = [contiguous(random((2, 6, 20))), contiguous(random((20, 36), seed=1))]
    extras = [contiguous(random(bias[activation])), contiguous(random((2, 6, 36), seed=2))]
    residual = activation in ("silu", "gelu", "tanh")
    op = FusedMatMul(bias=True, activation=activation, residual=residual, alpha=0.25 if activation == "gelu" else 1.0)
    check(device, op, [*tensors, *extras[: 1 + residual]], method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", ["wide", "odd", "transposed"])
def test_gated(device: Device, method: str, case: str) -> None:
    rows, k, n = (5, 12, 36) if case != "odd" else (3, 7, 5)
    weight = random((k, 2 * n), F16 if case == "odd" else F32)
    x = contiguous(random((1, rows, k)))
    if case == "transposed":
        check(device, GatedMatMul(transpose_b=True, activation="gelu"), [x, contiguous(weight.T.copy())], method)
    else:
        check(device, GatedMatMul(), [x, contiguous(weight)], method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "shapes",
    [
        ((4,), (4,)),
        ((4,), (2, 4, 5)),
        ((2, 3, 4), (4,)),
        ((2, 1, 3, 8), (5, 8, 4)),
        ((2, 5, 1, 4), (4, 6)),
        ((1, 3, 4), (2, 4, 3)),
    ],
    ids=str,
)
def test_ranks_and_batches(device: Device, method: str, shapes) -> None:
    check(device, MatMul(), [contiguous(random(shape)) for shape in shapes], method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("wide", [True, False], ids=["wide", "odd"])
def test_views(device: Device, method: str, wide: bool) -> None:
    """Permuted, offset and padded operands, whose surroundings are NaN, with extras in odd places too."""
    padding, offset = (4, 8) if wide else (3, 5)
    a = placed(random((3, 8, 12)), (1, 0, 2), padding, offset)
    b = placed(random((12, 8), seed=1), (1, 0), padding, offset)
    bias = placed(random((3, 1, 8), seed=2), None, padding, offset)
    residual = placed(random((3, 8, 8), seed=3), (1, 2, 0) if not wide else (1, 0, 2), padding, offset)
    check(device, FusedMatMul(bias=True, residual=True), [a, b, bias, residual], method)
    along_rows = placed(random((12, 8), seed=1), None, padding, offset)
    flipped = placed(random((3, 8, 12)), (0, 2, 1), padding, offset)
    check(device, MatMul(), [flipped, along_rows], method)


@pytest.mark.parametrize("method", METHODS)
def test_repeated_elements(device: Device, method: str) -> None:
    """Strides of zero inside a matrix."""
    row = random((1, 16))
    a = replace(contiguous(np.broadcast_to(row, (6, 16))), memory=row, layout=contiguous(row).layout.expanded((6, 16)))
    check(device, MatMul(), [a, contiguous(random((16, 8)))], method)


def test_no_subgroups(device: Device) -> None:
    facts = replace(device.facts, subgroup_size=0)
    for method in ("vector", "blocked"):
        check(device, FusedMatMul(bias=True), [*product(5, 33, 20), contiguous(random((33,)))], method, facts=facts)
        check(device, GatedMatMul(), product(3, 40, 20), method, facts=facts)


def test_folded_grid(device: Device) -> None:
    """More workgroups than a dimension of the grid allows."""
    most = 5 if device.facts.is_cpu else 10
    facts = replace(device.facts, limits=replace(device.facts.limits, max_workgroups=most))
    for method in METHODS:
        tensors = [contiguous(random((11, 1, 4))), contiguous(random((11, 4, 70)))]
        kernel = check(device, MatMul(), tensors, method, facts=facts)
        assert max(render_matmul(kernel, facts).workgroups) <= most


@pytest.mark.parametrize(
    "schedule",
    [
        Tiled(32, 32, 4, 4, parts=4),
        Tiled(64, 64, 8, 4, unroll=4),
        Tiled(128, 128, 8, 8, unroll=4),
        Tiled(32, 32, 4, 8, parts=2),
        Vector(8, 2, 3, False, unroll=4),
        Vector(32, 4, 1, False, unroll=2),
    ],
    ids=str,
)
def test_schedules_of_other_devices(device: Device, schedule: Tiled | Vector) -> None:
    m, n, k = (65, 70, 52) if isinstance(schedule, Tiled) else (3, 70, 164)
    a, b = product(m, n, k)
    kernel = replace(kernel_of(MatMul(), [a, b], device.facts, "simple", F32), schedule=schedule)
    poison = np.full((m, n), np.nan, np.float32)
    (*_, result) = device.run(render_matmul(kernel, device.facts), [a.memory, b.memory, poison], guard=GUARD)
    np.testing.assert_allclose(result, a.values @ b.values, atol=1e-4)


# ---- choices that need no device ---------------------------------------------------------------------

GPU = DeviceFacts(
    name="gpu",
    kind="discrete",
    subgroup_size=32,
    features=frozenset({"subgroup", "shader-f16"}),
    limits=Limits(max_workgroup_memory=49152, max_invocations=1024, max_workgroup_size=(1024, 1024, 64)),
)
CPU = replace(GPU, name="cpu", kind="cpu", subgroup_size=8)
LEAST = DeviceFacts(name="least", kind="integrated")


def chosen(facts: DeviceFacts, m: int, n: int, k: int, transposed: bool = False):
    a, b = product(m, n, k)
    tensors = [a, contiguous(b.values.T.copy()) if transposed else b]
    return kernel_of(MatMul(transpose_b=transposed), tensors, facts, None, F32)


def test_choice_of_schedule() -> None:
    assert chosen(CPU, 128, 64, 64).schedule.name == "blocked"
    assert chosen(CPU, 1, 64, 64, transposed=True).schedule.name == "vector"
    assert chosen(CPU, 1, 64, 64).schedule.name == "blocked"
    assert chosen(GPU, 128, 64, 64).schedule.name == "tiled"
    assert chosen(GPU, 1, 64, 64, transposed=True).schedule.name == "vector"
    assert chosen(GPU, 4, 4, 0).schedule.name == "simple"
    # A matrix times one column is a row times a matrix.
    tall = chosen(CPU, 64, 1, 64)
    assert tall.schedule.name == "vector" and (tall.problem.m, tall.problem.n) == (1, 64)


def test_least_device_is_respected() -> None:
    for m, n, k in ((512, 512, 64), (1, 64, 64), (128, 128, 128)):
        schedule = chosen(LEAST, m, n, k).schedule
        if isinstance(schedule, Tiled):
            assert schedule.threads <= 256 and schedule.workgroup_memory(False) <= 16384
    tiny = replace(LEAST, limits=Limits(max_workgroup_memory=1024, max_invocations=32))
    assert chosen(tiny, 64, 64, 64).schedule.name == "simple"
    with pytest.raises(LimitError, match="workgroup memory"):
        kernel_of(MatMul(), product(64, 64, 64), tiny, "tiled", F32)


def test_too_many_bindings() -> None:
    facts = replace(LEAST, limits=Limits(max_storage_buffers=4))
    tensors = [*product(4, 4, 4), contiguous(random((4,))), contiguous(random((4, 4)))]
    kernel = kernel_of(FusedMatMul(bias=True, residual=True), tensors, facts, "simple", F32)
    with pytest.raises(LimitError, match="max-storage-buffers"):
        render_matmul(kernel, facts)


def test_batches_fold_into_rows() -> None:
    """[batch, rows, k] times a shared weight is one product of batch * rows rows."""
    tensors = [contiguous(random((3, 5, 8))), contiguous(random((8, 4)))]
    problem = kernel_of(MatMul(), tensors, CPU, None, F32).problem
    assert (problem.batch, problem.m) == ((), 15)


def test_weight_layout_is_read_in_order() -> None:
    assert preferred_weight_layout(MatMul(), CPU) == preferred_weight_layout(GatedMatMul(), GPU) == "nk"


@pytest.mark.parametrize("template", ["simple", "vector", "blocked", "tiled", "operands"])
def test_templates_are_valid_as_they_stand(device: Device, template: str) -> None:
    device.wgpu.create_shader_module(code=render_template(f"matmul_{template}"))


def test_label_names_the_work() -> None:
    assert chosen(CPU, 128, 64, 32).label == "matmul_128x64_k32_blocked"
