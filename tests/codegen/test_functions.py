"""The table of WGSL functions: every elementwise op on every dtype, over ordinary and extreme values."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import meganeura.ops  # noqa: F401
from meganeura.codegen.functions import (
    cast_expression,
    elementwise_expression,
    helper_functions,
    helpers_in,
    literal_expression,
    storage_type,
    unary_expression,
)
from meganeura.codegen.shader import Shader
from meganeura.codegen.template import template_text
from meganeura.errors import GraphError, MeganeuraError
from meganeura.ir.op import OPS, Op
from meganeura.ir.types import BOOL, F16, F32, I32, U32, DType, TensorType
from meganeura.ops.elementwise import Cast, Elementwise
from meganeura.reference.evaluator import round_to, widen
from meganeura.runtime.device import Device

INF, NAN = math.inf, math.nan
EXTREMES = [0.0, -0.0, 1, -1, 2, -2, 3, 0.5, -0.5, 1.5, 2.5, INF, -INF, NAN, 100, -100, 1e38, -1e38, 88.5, 89, 1e-30]
EXTREMES += [2147483648.0, -2147483648.0, 4294967296.0, 1e20, 3.1, -3.1, 1.0001, 0.9999, 16777217.0]
INTEGERS = [0, 1, -1, 2, -2, 3, -3, 7, -7, 100, 2**31 - 1, -(2**31), 12345]
# Relative, next to the op's own bound on the result: where these ops cancel, only the absolute error is small.
LOOSE = {"gelu": 2e-6, "gelu_tanh": 2e-6, "silu": 1e-37, "swiglu": 1e-37}


def values_of(dtype: DType, arity: int) -> list[np.ndarray]:
    """Operands of an op: ordinary values and extremes for one, all pairs for two."""
    if dtype is BOOL:
        return list(np.array(list(itertools.product([False, True], repeat=arity))).T.copy())
    if dtype.is_integer:
        pairs = np.array(list(itertools.product(INTEGERS, repeat=arity)), np.int64).astype(np.int32)
        return [np.ascontiguousarray(column).view(dtype.numpy) for column in pairs.T]
    columns = np.array(list(itertools.product(EXTREMES, repeat=arity)), np.float32).T
    generator = np.random.default_rng(0)
    ordinary = generator.standard_normal((arity, 400)).astype(np.float32) * 5
    if arity == 1:
        wide = np.concatenate([np.geomspace(1e-6, 1e6, 200), np.linspace(-3000, 3000, 201)]).astype(np.float32)
        ordinary = np.concatenate([ordinary, wide[None]], axis=1)
    return list(np.concatenate([columns, ordinary], axis=1))


def cases(dtype: DType) -> list[tuple[Op, list[DType], DType]]:
    """Every elementwise op that takes this dtype, with operand dtypes and the result's."""
    ops: list[Op] = [Cast(dtype=target) for target in (F32, I32, U32, BOOL)]
    ops += [kind() for kind in OPS.values() if issubclass(kind, Elementwise) and kind not in (Cast, Elementwise)]
    found = []
    for op in ops:
        assert isinstance(op.arity, int)
        operands = [BOOL, dtype, dtype] if op.name == "where" else [dtype] * op.arity
        try:
            result = op.infer([TensorType(kind, (2,)) for kind in operands])
        except GraphError:
            continue
        assert isinstance(result, TensorType)
        found.append((op, operands, result.dtype))
    return found


def run_all(device: Device, chosen, operands: list[np.ndarray], out: DType) -> np.ndarray:
    """One kernel that computes every chosen op over the same operands, one row of the result each."""
    count, lines, declared = operands[0].size, [], []
    for i, operand in enumerate(operands):
        kind = BOOL if operand.dtype == bool else DType({"f": "f32", "i": "i32", "u": "u32"}[operand.dtype.kind])
        declared.append(f"@group(0) @binding({i}) var<storage, read> b{i}: array<{storage_type(kind)}>;")
        lines.append(f"let x{i} = b{i}[at]{' != 0u' if kind is BOOL else ''};")
    expressions = []
    for row, (op, kinds, _) in enumerate(chosen):
        names = ["x0", "x1", "x2"] if op.name == "where" else [f"x{i + len(operands) - len(kinds)}" for i in range(3)]
        expression = elementwise_expression(op, names[: len(kinds)], kinds)
        expressions.append(expression)
        stored = f"select(0u, 1u, {expression})" if out is BOOL else expression
        lines.append(f"out[{row * count}u + at] = {stored};")
    declared.append(f"@group(0) @binding({len(operands)}) var<storage, read_write> out: array<{storage_type(out)}>;")
    body = "\n    ".join(lines)
    text = "\n".join([*declared, helpers_in(" ".join(expressions))]) + (
        "\n@compute @workgroup_size(64)\nfn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"
        f"    let at = id.x;\n    if (at >= {count}u) {{ return; }}\n    {body}\n}}\n"
    )
    shader = Shader("functions", text, (-(-count // 64), 1, 1), ("read",) * len(operands) + ("read_write",))
    stored = [o.astype(np.uint32) if o.dtype == bool else o for o in operands]
    kind = np.dtype(np.uint32) if out is BOOL else out.numpy
    return device.run(shader, [*stored, np.zeros((len(chosen), count), kind)])[-1]


@pytest.mark.parametrize("dtype", [F32, I32, U32, BOOL])
@pytest.mark.parametrize("arity", [1, 2, 3])
def test_every_op(device: Device, dtype: DType, arity: int) -> None:
    operands = values_of(dtype, min(arity, 2))
    if arity == 3:
        operands.insert(0, np.random.default_rng(1).random(operands[0].size) < 0.5)
    for out in (F32, I32, U32, BOOL):
        chosen = [c for c in cases(dtype) if len(c[1]) == arity and c[2] is out]
        if not chosen:
            continue
        results = run_all(device, chosen, operands, out)
        for (op, _, _), got in zip(chosen, results, strict=True):
            compare(op, operands, out, got)


def compare(op: Op, operands: list[np.ndarray], out: DType, got: np.ndarray) -> None:
    """Equal where exact; else close, with NaN and infinity in the same places."""
    with np.errstate(all="ignore"):
        raw = op.evaluate([widen(o) for o in operands], TensorType(out, operands[0].shape))
        expected = round_to(np.asarray(raw), out)
        if not out.is_float:
            assert np.array_equal(got.astype(np.int64), expected.astype(np.int64)), op.name
            return
        known = np.ones(got.shape, bool)
        if op.name in ("sin", "cos"):
            known = np.abs(operands[0]) < 1e5
        if op.name == "mod":
            known = ~(np.abs(operands[0] / operands[1]) > 1e5)
        if op.name in ("silu", "swiglu"):
            # Near the least normal float the device may flush to zero.
            known = ~(operands[0] < -80) | np.isinf(operands[0])
        strange = known & (np.isnan(got) != np.isnan(expected))
        assert not strange.any(), (op.name, [o[strange][:9] for o in operands], got[strange][:9])
        scale = np.maximum(np.abs(expected), np.abs(operands[0]) if op.name == "mod" else 0)
        close = np.abs(got - expected) <= 2e-5 * scale + LOOSE.get(op.name, 1.2e-38)
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        wrong = ~(close | same) & known
        assert not wrong.any(), (op.name, [o[wrong][:9] for o in operands], got[wrong][:9], expected[wrong][:9])


def test_literals_read_back_exactly(device: Device) -> None:
    floats = [0.1, -1e-30, INF, -INF, NAN, 3.4e38, 1e300, 16777217.0]
    integers = [-(2**31), 2**31 - 1, -1, 0]
    lines = [f"out[{i}] = bitcast<u32>({literal_expression(v, F32)});" for i, v in enumerate(floats)]
    lines += [f"out[{i + 8}] = bitcast<u32>({literal_expression(v, I32)});" for i, v in enumerate(integers)]
    lines.append(f"out[12] = {literal_expression(2**32 - 1, U32)};")
    text = f"""@group(0) @binding(0) var<storage, read_write> out: array<u32>;
{helper_functions(["full"])}
@compute @workgroup_size(1)
fn main() {{
    {" ".join(lines)}
}}"""
    (got,) = device.run(Shader("literals", text, (1, 1, 1), ("read_write",)), [np.zeros(13, np.uint32)])
    with np.errstate(over="ignore"):
        wanted = np.array(floats).astype(np.float32)
    np.testing.assert_array_equal(got[:8].view(np.float32), wanted)
    assert list(got[8:12].view(np.int32)) == integers and got[12] == 2**32 - 1


def test_casts_to_float16_round_and_overflow(device: Device) -> None:
    rng = np.random.default_rng(0)
    special = [65504, 65519, 65520, 1e5, -1e6, 6e-8, -3e-8, 2e-8, np.inf, -np.inf, np.nan, 1.0005, 2.0**-14, 0.0]
    usual = rng.normal(size=242) * 10.0 ** rng.integers(-8, 5, size=242)
    values = np.array([*special, *usual], np.float32)
    text = f"""@group(0) @binding(0) var<storage, read_write> data: array<f32>;
{helper_functions(["cast"])}
@compute @workgroup_size({len(values)})
fn main(@builtin(local_invocation_index) i: u32) {{
    data[i] = {cast_expression("data[i]", F32, F16)};
}}"""
    (got,) = device.run(Shader("round", text, (1, 1, 1), ("read_write",)), [values])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, values.astype(np.float16).astype(np.float32))


def test_float16_literals_and_casts() -> None:
    assert literal_expression(0.1, F16) == "0.0999755859375f"
    assert "from_bits(0x7f800000u)" in literal_expression(65520.0, F16)
    assert literal_expression(NAN, F16).startswith("from_bits(0x7fc")
    assert cast_expression("x", F32, F16) == "rounded_to_f16(x)", "a driver may drop f32(f16(x))"
    assert cast_expression("x", F16, F32) == "x"
    assert literal_expression(1.0, BOOL) == "true"


def test_helpers_bring_what_they_call() -> None:
    text = helper_functions(["gelu"])
    assert "fn gelu(" in text and "fn error_function(" in text and "fn is_nan(" in text and "fn power(" not in text
    assert helper_functions(["cast"]).count("fn ") == 4
    assert helpers_in("a + b") == ""


def test_unknown_functions_are_refused() -> None:
    with pytest.raises(MeganeuraError, match="softmax"):
        unary_expression("softmax", "x")
    with pytest.raises(MeganeuraError, match="i32"):
        unary_expression("exp", "x", I32)


def test_the_library_is_valid_wgsl(device: Device) -> None:
    device.wgpu.create_shader_module(code=template_text("functions"))
