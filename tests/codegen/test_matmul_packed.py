"""Products with weights in quantised blocks: every scheme by every schedule, against the dequantised weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from meganeura.codegen.matmul import render_matmul
from meganeura.codegen.template import render_template
from meganeura.facts import DeviceFacts
from meganeura.ir.packing import BLOCK, SCHEMES, Scheme, pack_factors, pack_integers, unpacked
from meganeura.ir.types import F32, TensorType
from meganeura.lower.matmul import SCHEDULES, Columns, MatMulKernel, Tiled, Vector, matmul_kernel
from meganeura.lower.schedule import Layout, Operand, Packing
from meganeura.ops.matmul import FusedMatMul, GatedMatMul, MatMul
from meganeura.options import CompileOptions
from meganeura.runtime.device import Device
from tests.codegen.matmul_support import GUARD, random

METHODS = tuple(SCHEDULES)


@dataclass(frozen=True)
class Weights:
    """Packed weights `[n, k]` and what they stand for."""

    values: np.ndarray
    words: np.ndarray
    operand: Operand


def weights(scheme: Scheme, n: int, k: int, seed: int = 0) -> Weights:
    """Random blocks, extreme integers among them."""
    generator = np.random.default_rng([seed, n, k])
    blocks = n * k // BLOCK
    low, high = (0, 16) if scheme.bits == 4 else (-128, 128)
    q = generator.integers(low, high, (blocks, BLOCK)).astype(np.int8)
    q[0, :2] = low, high - 1
    d = (generator.uniform(0.5, 1, blocks) / high).astype(np.float16)
    m = generator.standard_normal(blocks).astype(np.float16) if scheme.minimum else None
    words = np.zeros(scheme.words(blocks), np.uint32)
    pack_integers(q, scheme, words[: blocks * scheme.bits].reshape(blocks, -1))
    pack_factors(scheme, d, m, words[blocks * scheme.bits :][:blocks])
    values = unpacked(words, scheme, blocks).reshape(n, k)
    expected = (q.astype(np.float32) - scheme.zero) * d.astype(np.float32)[:, None]
    expected = expected if m is None else expected + m.astype(np.float32)[:, None]
    assert np.array_equal(values, expected.reshape(n, k))
    return Weights(values, words, Operand(F32, Layout.contiguous((n, k)), Packing(scheme, blocks)))


def check(
    device: Device,
    op,
    x: np.ndarray,
    weight: Weights,
    extras: tuple[np.ndarray, ...] = (),
    method: str | None = None,
    facts: DeviceFacts | None = None,
    schedule: object = None,
) -> MatMulKernel:
    """Run between guards and compare with the reference in float64."""
    facts = facts or device.facts
    plain = [x, weight.values, *extras]
    output = op.infer([TensorType(F32, a.shape) for a in plain])
    operands = [Operand.contiguous(TensorType(F32, a.shape)) for a in plain]
    kernel = matmul_kernel(op, (operands[0], weight.operand, *operands[2:]), output, facts, CompileOptions(), method)
    if schedule is not None:
        kernel = replace(kernel, schedule=schedule)
    poison = np.full(kernel.outputs[0].shape, np.nan, np.float32)
    *_, found = device.run(render_matmul(kernel, facts), [x, weight.words, *extras, poison], guard=GUARD)
    wide = [a.astype(np.float64) for a in plain]
    expected = np.asarray(op.evaluate(wide, output))
    magnitude = np.abs(np.asarray(op.evaluate([np.abs(a) for a in wide], output)))
    assert np.isfinite(found).all()
    assert (np.abs(found - expected) <= 2e-5 * (magnitude + 1)).all()
    return kernel


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=lambda s: s.name)
def test_schemes_and_schedules(device: Device, scheme: Scheme, method: str) -> None:
    few = method in ("vector", "columns")
    for m, n, k in ((1, 5, 32), (3 if few else 9, 37, 64), (2 if few else 35, 12, 576)):
        check(device, MatMul(transpose_b=True), random((m, k)), weights(scheme, n, k), method=method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scheme", ["q4_1", "q8_0"])
def test_epilogues(device: Device, scheme: str, method: str) -> None:
    m, n, k = 3, 22, 96
    op = FusedMatMul(transpose_b=True, bias=True, activation="silu", residual=True, alpha=0.5)
    extras = (random((n,)), random((m, n), seed=2))
    check(device, op, random((m, k)), weights(SCHEMES[scheme], n, k), extras, method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scheme", ["q4_0", "q8_0"])
def test_gated(device: Device, scheme: str, method: str) -> None:
    for n in (8, 11):
        op = GatedMatMul(transpose_b=True, activation="silu")
        check(device, op, random((2, 64)), weights(SCHEMES[scheme], 2 * n, 64), method=method)


@pytest.mark.parametrize("rows", [(), (5,), (2, 3)], ids=str)
def test_chosen_schedules(device: Device, rows: tuple[int, ...]) -> None:
    check(device, MatMul(transpose_b=True), random((*rows, 128)), weights(SCHEMES["q4_1"], 3, 128))


@pytest.mark.parametrize("method", METHODS)
def test_rows_and_columns_of_the_packed_tensor(device: Device, method: str) -> None:
    """A slice of the weights: whole blocks, and blocks begun in the middle."""
    whole = weights(SCHEMES["q4_1"], 12, 128)
    for along in ((32, 96), (16, 80), (3, 45)):
        layout = whole.operand.layout.sliced((2, along[0]), (11, along[1]), (1, 1))
        part = Weights(whole.values[2:11, slice(*along)], whole.words, replace(whole.operand, layout=layout))
        if method != "columns" or along[0] == 32:
            check(device, MatMul(transpose_b=True), random((2, along[1] - along[0])), part, method=method)
    flipped = Weights(whole.values.T, whole.words, replace(whole.operand, layout=whole.operand.layout.permuted((1, 0))))
    check(device, MatMul(), random((2, 128)), flipped, method=method)


def test_no_subgroups_and_folded_grid(device: Device) -> None:
    limits = replace(device.facts.limits, max_workgroups=3 if device.facts.is_cpu else 8)
    for facts in (replace(device.facts, subgroup_size=0), replace(device.facts, limits=limits)):
        for method in ("columns", "blocked", "vector"):
            check(
                device, MatMul(transpose_b=True), random((2, 64)), weights(SCHEMES["q8_0"], 150, 64), (), method, facts
            )


@pytest.mark.parametrize(
    "schedule",
    [Vector(32, 2, 2, False, unroll=2), Tiled(64, 64, 8, 4, unroll=4), Columns(4, 2, False), Columns(16, 1, False)],
    ids=str,
)
def test_schedules_of_other_devices(device: Device, schedule: object) -> None:
    op, x, weight = MatMul(transpose_b=True), random((3, 160)), weights(SCHEMES["q4_0"], 70, 160)
    check(device, op, x, weight, method="simple", schedule=schedule)


def test_choice_of_schedule() -> None:
    cpu = DeviceFacts(name="cpu", kind="cpu", subgroup_size=8)
    gpu = DeviceFacts(name="gpu", kind="discrete", subgroup_size=32)

    def chosen(facts: DeviceFacts, m: int, n: int) -> str:
        packing = Packing(SCHEMES["q4_1"], n * 2)
        x, weight = Operand.contiguous(TensorType(F32, (m, 64))), Operand(F32, Layout.contiguous((n, 64)), packing)
        output = TensorType(F32, (m, n))
        return matmul_kernel(MatMul(transpose_b=True), (x, weight), output, facts, CompileOptions()).schedule.name

    # A matrix times few columns is not turned round: only the right operand may be packed.
    assert [chosen(cpu, m, 2) for m in (1, 4, 5, 64)] == ["columns", "columns", "blocked", "blocked"]
    assert [chosen(gpu, m, 2) for m in (1, 64)] == ["vector", "tiled"]
    assert [chosen(gpu, m, 49152) for m in (1, 64)] == ["columns", "tiled"]


def test_templates_are_valid_as_they_stand(device: Device) -> None:
    for name in ("matmul_columns", "quantised"):
        device.wgpu.create_shader_module(code=render_template(name))
