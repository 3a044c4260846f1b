"""WGSL of the rows family: softmax and norms."""

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
from meganeura.lower.rows import RowsKernel
from meganeura.lower.schedule import Operand

_JOIN_MAXIMUM_AND_SUM = """    let top = max(a.x, b.x);
    let shift = vec2<f32>(a.x, b.x) - top;
    let factor = select(vec2<f32>(), exp(shift), shift > vec2<f32>(-87.3));
    return vec2<f32>(top, a.y * factor.x + b.y * factor.y);"""


@renders(RowsKernel)
def render_rows(kernel: RowsKernel, facts: DeviceFacts) -> Shader:
    """The shader of a softmax or norm."""
    text = _softmax(kernel, facts) if kernel.op.name.endswith("softmax") else _norm(kernel, facts)
    schedule = kernel.schedule
    grid = fold_grid(-(-kernel.count // schedule.rows), facts.limits, kernel.label)
    access = ("read",) * len(kernel.inputs) + ("read_write",) * len(kernel.outputs)
    return Shader(kernel.label, text, grid, access)


def _softmax(kernel: RowsKernel, facts: DeviceFacts) -> str:
    x, y, axis = kernel.inputs[0], kernel.outputs[0], kernel.axis
    logarithm = kernel.op.name == "log_softmax"
    parameters, flags = _common(kernel, facts)
    parameters |= {"X": _stored(x, kernel), "Y": _stored(y, kernel), "U": _type("u32", kernel.schedule.vector)}
    parameters |= {"X_STEP": _step(x, axis, kernel), "Y_STEP": _step(y, axis, kernel)}
    code = {
        "enables": _enables(kernel),
        "lanes": lane_code(kernel.schedule, facts, "vec2<f32>", _JOIN_MAXIMUM_AND_SUM, 8),
        "helpers": helpers_in("from_bits logarithm" if logarithm else "from_bits"),
        "x_start": _row_start(x, kernel),
        "y_start": _row_start(y, kernel),
    }
    return render_template("softmax", parameters, {**flags, "logarithm": logarithm}, code)


def _norm(kernel: RowsKernel, facts: DeviceFacts) -> str:
    residual, centred = kernel.op.name == "residual_rms_norm", kernel.op.name == "layer_norm"
    x, weight = kernel.inputs[0], kernel.inputs[2 if residual else 1]
    parameters, flags = _common(kernel, facts)
    parameters |= {"ELEMENTS": float(kernel.length), "EPSILON": kernel.op.eps}  # type: ignore[attr-defined]
    parameters |= {"X": _stored(x, kernel), "W": _stored(weight, kernel), "Y": _stored(kernel.outputs[0], kernel)}
    parameters |= {"X_STEP": _step(x, kernel.axis, kernel), "W_STEP": _step(weight, 0, kernel)}
    parameters["W_START"] = weight.layout.offset // kernel.schedule.vector
    code = {
        "enables": _enables(kernel),
        "lanes": lane_code(kernel.schedule, facts, "f32", "    return a + b;"),
        "x_start": _row_start(x, kernel),
    }
    if residual:
        r = kernel.inputs[1]
        parameters |= {"R": _stored(r, kernel), "R_STEP": _step(r, kernel.axis, kernel)}
        code["r_start"] = _row_start(r, kernel)
    if centred:
        b = kernel.inputs[2]
        parameters |= {"B": _stored(b, kernel), "B_STEP": _step(b, 0, kernel)}
        parameters["B_START"] = b.layout.offset // kernel.schedule.vector
    return render_template("norm", parameters, {**flags, "residual": residual, "centred": centred}, code)


def _common(kernel: RowsKernel, facts: DeviceFacts) -> tuple[dict[str, Any], dict[str, bool]]:
    vector = kernel.schedule.vector
    parameters = lane_parameters(kernel.schedule)
    parameters |= {"COUNT": kernel.count, "LENGTH": kernel.length // vector, "V": _type("f32", vector)}
    return parameters, {**lane_flags(kernel.schedule, facts), "vector": vector > 1}


def _type(scalar: str, vector: int) -> str:
    return scalar if vector == 1 else f"vec{vector}<{scalar}>"


def _stored(operand: Operand, kernel: RowsKernel) -> str:
    return _type(operand.dtype.value, kernel.schedule.vector)


def _enables(kernel: RowsKernel) -> str:
    return "enable f16;" if any(o.dtype is DType.F16 for o in (*kernel.inputs, *kernel.outputs)) else ""


def _step(operand: Operand, axis: int, kernel: RowsKernel) -> int:
    # Vectors only where neighbours lie next to each other.
    return 1 if kernel.schedule.vector > 1 else operand.layout.strides[axis]


def _row_start(operand: Operand, kernel: RowsKernel) -> str:
    layout, axis = operand.layout, kernel.axis
    shape = [d for a, d in enumerate(layout.shape) if a != axis]
    strides = [s for a, s in enumerate(layout.strides) if a != axis]
    return f"    return {place_of('row', shape, strides, layout.offset, kernel.schedule.vector)};"
