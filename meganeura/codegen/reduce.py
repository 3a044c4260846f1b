"""WGSL of the reduce family."""

from __future__ import annotations

from typing import Any

from meganeura.codegen.functions import helpers_in
from meganeura.codegen.lanes import lane_code, lane_flags, lane_parameters
from meganeura.codegen.render import renders
from meganeura.codegen.shader import Shader, fold_grid
from meganeura.codegen.strided import place_of
from meganeura.codegen.template import render_template
from meganeura.facts import DeviceFacts
from meganeura.ir.types import DType
from meganeura.lower.reduce import Axes, ReduceKernel

_BLOCK = 64
_MERGE = {
    "reduce_sum": "a + b",
    "reduce_mean": "a + b",
    "reduce_prod": "a * b",
    "reduce_max": "max(a, b)",
    "reduce_min": "min(a, b)",
}
# max and min may drop a NaN, so it is put back by its bits.
_KEEP_NAN = "select(select({merged}, b, {nan_b}), a, {nan_a})"
_NEUTRAL = {
    ("reduce_max", DType.F32): "from_bits(0xff800000u)",
    ("reduce_max", DType.I32): "bitcast<i32>(0x80000000u)",
    ("reduce_max", DType.U32): "0u",
    ("reduce_min", DType.F32): "from_bits(0x7f800000u)",
    ("reduce_min", DType.I32): "bitcast<i32>(0x7fffffffu)",
    ("reduce_min", DType.U32): "0xffffffffu",
}
_FIRST_LARGEST = """    if (b.x > a.x || (b.x == a.x && b.y < a.y)) {
        return b;
    }
    return a;"""


@renders(ReduceKernel)
def render_reduce(kernel: ReduceKernel, facts: DeviceFacts) -> Shader:
    """The shader of a reduction or argmax."""
    if kernel.op.name == "argmax":
        count, text = kernel.kept.size, _argmax(kernel, facts)
    else:
        count, text = _reduction(kernel, facts)
    grid = fold_grid(-(-count // kernel.schedule.rows), facts.limits, kernel.label)
    return Shader(kernel.label, text, grid, ("read", "read_write"))


def _argmax(kernel: ReduceKernel, facts: DeviceFacts) -> str:
    (x,), kept, reduced = kernel.inputs, kernel.kept, kernel.reduced
    parameters: dict[str, Any] = lane_parameters(kernel.schedule)
    parameters |= {"X": x.dtype.value, "V": _register(x.dtype).value}
    parameters |= {"COUNT": kept.size, "LENGTH": reduced.size, "X_STEP": reduced.strides[0] if reduced.shape else 1}
    flags = {"integer": x.dtype.is_integer, "signed": x.dtype is DType.I32, **lane_flags(kernel.schedule, facts)}
    code = {
        "enables": "enable f16;" if x.dtype is DType.F16 else "",
        "lanes": lane_code(kernel.schedule, facts, "vec2<u32>", _FIRST_LARGEST, 8),
        "row_start": f"    return {place_of('row', kept.shape, kept.strides, x.layout.offset)};",
    }
    return render_template("argmax", parameters, flags, code)


def _reduction(kernel: ReduceKernel, facts: DeviceFacts) -> tuple[int, str]:
    (x,), (output,), schedule = kernel.inputs, kernel.outputs, kernel.schedule
    vector, kept, reduced = schedule.vector, kernel.kept, kernel.reduced
    gathered = vector > 1 and not kernel.outward
    elements = reduced.size
    if vector > 1:
        kept, reduced = _widened(kept, kernel.outward), _widened(reduced, not kernel.outward)
    scalar, mean = _register(x.dtype), kernel.op.name == "reduce_mean"
    wide = _type(scalar.value, vector)
    combined = scalar.value if gathered else wide
    parameters: dict[str, Any] = lane_parameters(schedule)
    parameters |= {"X": _type(x.dtype.value, vector), "V": wide}
    parameters["Y"] = _type(output.dtype.value, vector if kernel.outward else 1)
    parameters |= {"COUNT": kept.size, "LENGTH": reduced.size, "ELEMENTS": float(elements), "BLOCK": _BLOCK}
    nbytes = 16 if combined.startswith("vec") else 4
    neutral = _NEUTRAL.get((kernel.op.name, scalar), "1" if kernel.op.name == "reduce_prod" else "0")
    code = {
        "enables": "enable f16;" if x.dtype is DType.F16 else "",
        "helpers": helpers_in(neutral),
        "lanes": lane_code(schedule, facts, combined, _merge(kernel, combined), nbytes),
        "merge": _merge(kernel, wide),
        "neutral": f"    return V({neutral});",
        "row_start": f"    return {place_of('row', kept.shape, kept.strides, x.layout.offset, vector)};",
        "element_place": f"    return {place_of('i', reduced.shape, reduced.strides, 0, vector)};",
    }
    flags = {"mean": mean, "gathered": gathered, "blocked": reduced.size > 4 * _BLOCK * schedule.lanes}
    return kept.size, render_template("reduce", parameters, {**flags, **lane_flags(schedule, facts)}, code)


def _merge(kernel: ReduceKernel, kind: str) -> str:
    """Statements that return `a` and `b` of type `kind` merged."""
    merged = _MERGE[kernel.op.name]
    if kernel.op.name in ("reduce_max", "reduce_min") and kind.endswith(("f32", "f32>")):
        bits = kind.replace("f32", "u32")
        nan = {v: f"(bitcast<{bits}>({v}) & {bits}(0x7fffffffu)) > {bits}(0x7f800000u)" for v in "ab"}
        merged = _KEEP_NAN.format(merged=merged, nan_a=nan["a"], nan_b=nan["b"])
    return f"    return {merged};"


def _widened(axes: Axes, along: bool) -> Axes:
    wide = axes.in_vectors() if along else axes
    assert wide is not None
    return wide


def _register(dtype: DType) -> DType:
    return DType.F32 if dtype is DType.F16 else dtype


def _type(scalar: str, vector: int) -> str:
    return scalar if vector == 1 else f"vec{vector}<{scalar}>"
