"""WGSL of the update family."""

from __future__ import annotations

from meganeura.codegen.functions import storage_type
from meganeura.codegen.indices import Variable, coordinates_of, weighted_sum
from meganeura.codegen.render import renders
from meganeura.codegen.shader import Shader, fold_grid
from meganeura.codegen.strided import index_text, place_of
from meganeura.codegen.template import render_template
from meganeura.facts import DeviceFacts
from meganeura.ir.op import sizeof
from meganeura.ir.types import DType
from meganeura.lower.schedule import Operand
from meganeura.lower.update import UpdateKernel

_WORKGROUP = 64


@renders(UpdateKernel)
def render_update(kernel: UpdateKernel, facts: DeviceFacts) -> Shader:
    """The shader of a state update; bindings are the rows, the position, and the state."""
    state, rows, position = kernel.inputs
    vector, axis = kernel.vector, kernel.axis
    shape = list(rows.shape)

    def place(operand: Operand) -> str:
        strides = [*operand.layout.strides[:-1], vector] if vector > 1 else operand.layout.strides
        return f"    return {place_of('element', shape, strides, operand.layout.offset, vector)};"

    shape[-1] //= vector
    count = sizeof(shape)
    coordinates = coordinates_of(Variable("element", count), shape)
    batch = weighted_sum([(coordinates[0], position.layout.strides[0] if position.layout.size > 1 else 0)])
    dtype, stored = state.dtype, storage_type(state.dtype)
    parameters = {
        "X": stored if vector == 1 else f"vec{vector}<{stored}>",
        "COUNT": count,
        "LIMIT": state.shape[axis],
        "STRIDE": state.layout.strides[axis] // vector,
        "WORKGROUP": _WORKGROUP,
    }
    code = {
        "enables": "enable f16;" if dtype is DType.F16 else "",
        "row_place": place(rows),
        "state_place": place(state),
        "position_place": f"    return {index_text(batch)} + {position.layout.offset}u;",
        "along": f"    return {index_text(coordinates[axis])};",
    }
    text = render_template("update", parameters, code=code)
    grid = fold_grid(-(-count // _WORKGROUP), facts.limits, kernel.label)
    return Shader(kernel.label, text, grid, ("read", "read", "read_write"))
