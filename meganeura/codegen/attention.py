"""WGSL of the attention family: the templates of a schedule, specialised to sizes, layouts and options.

Nothing about the options is left to run time: each is a flag of `shaders/attention_scores.wgsl`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meganeura.codegen.functions import helper_functions, storage_type
from meganeura.codegen.indices import Digit, Index, Sum, Variable, coordinates_of, weighted_sum
from meganeura.codegen.indices import Literal as KnownIndex
from meganeura.codegen.render import renders
from meganeura.codegen.shader import Shader, fold_grid
from meganeura.codegen.template import render_template
from meganeura.codegen.unroll import unroll
from meganeura.facts import DeviceFacts
from meganeura.ir.types import DType
from meganeura.lower.attention import AttentionKernel, DirectSchedule, LiteralSchedule
from meganeura.lower.schedule import Layout, Operand

_GREATEST = float(np.finfo(np.float32).max)


@renders(AttentionKernel)
def render_attention(kernel: AttentionKernel, facts: DeviceFacts) -> Shader:
    """The shader of an attention kernel: bindings are the op's inputs in order, the output, then the log-sum-exp."""
    access_of = {name: _access(kernel, name, operand) for name, operand in _tensors(kernel).items()}
    schedule = kernel.schedule
    if isinstance(schedule, LiteralSchedule):
        workgroups, parameters, flags = _literal(kernel, schedule)
    else:
        workgroups, parameters, flags = _direct(kernel, schedule)
        flags |= {f"{name}_{kind}": True for name, kind in access_of.items() if kind != "scalars"}
    parameters["WORKGROUPS"] = workgroups
    flags["f16"] = any(o.dtype is DType.F16 for o in (*kernel.inputs, *kernel.outputs))
    flags["rope"] = "cos" in kernel.extras
    flags["lse"] = _has_lse(kernel)
    operands = "\n".join([_operands(kernel, access_of), _scores(kernel), _rotary(kernel)])
    text = render_template(f"attention_{schedule.name}", parameters, flags, {"operands": operands})
    access = ("read",) * len(kernel.inputs) + ("read_write",) * len(kernel.outputs)
    return Shader(kernel.label, unroll(text), fold_grid(workgroups, facts.limits, kernel.label), access)


def _literal(kernel: AttentionKernel, schedule: LiteralSchedule) -> tuple[int, dict[str, Any], dict[str, bool]]:
    """Workgroups, parameters and flags of the literal template."""
    sizes = kernel.sizes
    parameters = {"INVOCATIONS": schedule.invocations, "TREE": schedule.tree}
    return sizes.batch * sizes.heads * sizes.rows, parameters, {}


def _direct(kernel: AttentionKernel, schedule: DirectSchedule) -> tuple[int, dict[str, Any], dict[str, bool]]:
    """Workgroups, parameters and flags of the direct template."""
    sizes = kernel.sizes
    per_workgroup = schedule.tile * (1 if schedule.mode == "split" else schedule.invocations)
    blocks = -(-sizes.rows * sizes.group // per_workgroup)
    d_chunks, dv_chunks = -(-sizes.d // 4), -(-sizes.dv // 4)
    parameters = {
        "TILE": schedule.tile,
        "INVOCATIONS": schedule.invocations,
        "BLOCKS": blocks,
        "D_CHUNKS": d_chunks,
        "DV_CHUNKS": dv_chunks,
        "D_LOADS": -(-d_chunks // schedule.invocations),
        "DV_LOADS": -(-dv_chunks // schedule.invocations),
        "OUT_ELEMENT": storage_type(kernel.outputs[0].dtype),
    }
    flags = {
        "split": schedule.mode == "split",
        "shared": schedule.mode == "shared",
        "interleaved": getattr(kernel.op, "interleaved", False),
    }
    return sizes.batch * sizes.heads // sizes.group * blocks, parameters, flags


def _has_lse(kernel: AttentionKernel) -> bool:
    return bool(kernel.outputs[1:])


def _tensors(kernel: AttentionKernel) -> dict[str, Operand]:
    q, k, v = kernel.inputs[:3]
    return {"q": q, "k": k, "v": v, "out": kernel.outputs[0]}


def _access(kernel: AttentionKernel, name: str, operand: Operand) -> str:
    """How a tensor's elements are read or written: "scalars", "vec4", or "packed", four float16 in two words."""
    # The literal form has an invocation per element, and the rotary embedding turns a key's elements one by one.
    turned = "cos" in kernel.extras and name == "k"
    if not isinstance(kernel.schedule, DirectSchedule) or turned or not _in_vectors(operand):
        return "scalars"
    return "packed" if operand.dtype is DType.F16 and name in ("k", "v") else "vec4"


def _in_vectors(operand: Operand) -> bool:
    """Whether the last axis is made of whole, aligned groups of four neighbouring elements."""
    layout = operand.layout
    *outer, (width, step) = zip(layout.shape, layout.strides, strict=True)
    aligned = layout.offset % 4 == 0 and all(s % 4 == 0 for n, s in outer if n > 1)
    return layout.size > 0 and width % 4 == 0 and step == 1 and aligned


def _operands(kernel: AttentionKernel, access_of: dict[str, str]) -> str:
    sizes = kernel.sizes
    parameters: dict[str, Any] = {
        "HEADS": sizes.heads,
        "GROUP": sizes.group,
        "ROWS": sizes.rows,
        "D": sizes.d,
        "DV": sizes.dv,
        "BIND_Q": 0,
        "BIND_K": 1,
        "BIND_V": 2,
        "BIND_OUT": len(kernel.inputs),
    }
    code = {}
    for name, operand in _tensors(kernel).items():
        element = storage_type(operand.dtype)
        parameters[name.upper()] = {"vec4": f"vec4<{element}>", "packed": "vec2<u32>"}.get(access_of[name], element)
        parameters |= _strides(name, operand.layout, ("HEAD", "ROW", "STEP"))
        code[f"{name}_start"] = f"    return {_batch_start(operand.layout, 3)};"
    if _has_lse(kernel):
        layout = kernel.outputs[1].layout
        parameters |= {"BIND_LSE": len(kernel.inputs) + 1, **_strides("lse", layout, ("ROW", "HEAD", "STEP"))}
        code["lse_start"] = f"    return {_batch_start(layout, 3)};"
    flags = {"lse": _has_lse(kernel), "rope": "cos" in kernel.extras}
    flags |= {f"{name}_scalars": access_of[name] == "scalars" for name in ("q", "k", "v")}
    return render_template("attention_operands", parameters, flags, code)


def _scores(kernel: AttentionKernel) -> str:
    op: Any = kernel.op
    sizes, extras = kernel.sizes, kernel.extras
    cached = "position" in extras
    last = sizes.keys - 1 if cached else op.offset + sizes.rows - 1
    parameters: dict[str, Any] = {
        "KEYS": sizes.keys,
        "SCALE": float(np.float32(op.scale)),
        "SOFTCAP": float(np.float32(op.softcap or 1.0)),
        "FILL": float(np.float32(min(max(op.fill, -_GREATEST), _GREATEST))),
        "OPTION": storage_type(kernel.inputs[0].dtype),
    }
    flags = {
        "cached": cached,
        "causal": cached or (op.causal and op.offset + 1 < sizes.keys),
        # A window that holds every position needs no test.
        "window": 0 < op.window <= last,
        "softcap": op.softcap != 0.0,
    }
    if flags["window"]:
        parameters["WINDOW"] = op.window
    code = {"helpers": helper_functions(["hyperbolic_tangent"])}
    if cached:
        parameters["BIND_POSITION"] = _binding(kernel, "position")
        layout = extras["position"].layout
        if layout.shape == (1,):
            layout = layout.expanded((sizes.batch,))
        code["newest_index"] = f"    let newest_index = {_batch_start(layout, 0)};"
    else:
        parameters["FIRST_POSITION"] = op.offset
    scores = (*kernel.inputs[0].shape[:-1], sizes.keys)
    for name in ("bias", "mask"):
        if name in extras:
            layout = extras[name].layout.expanded(scores)
            parameters |= _strides(name, layout, ("HEAD", "ROW", "KEY"))
            parameters[f"BIND_{name.upper()}"] = _binding(kernel, name)
            code[f"{name}_start"] = f"    query.{name}_at = {_batch_start(layout, 3)};"
            flags[name] = True
    if "mask" in extras:
        dtype = extras["mask"].dtype
        flags["mask_f32"], flags["mask_f16"] = dtype is DType.F32, dtype is DType.F16
        flags["mask_exclude"] = op.mask == "fill" and op.fill == float("-inf")
        flags["mask_fill"] = op.mask == "fill" and not flags["mask_exclude"]
    if "slopes" in extras:
        layout = extras["slopes"].layout
        parameters |= {"SLOPE_START": layout.offset, "SLOPE_STEP": layout.strides[0]}
        parameters["BIND_SLOPES"] = _binding(kernel, "slopes")
        flags["alibi"] = True
    return render_template("attention_scores", parameters, flags, code)


def _rotary(kernel: AttentionKernel) -> str:
    extras = kernel.extras
    if "cos" not in extras:
        return ""
    cos, sin = extras["cos"], extras["sin"]
    parameters: dict[str, Any] = {
        "PAIRS": cos.shape[1],
        "TABLE": storage_type(cos.dtype),
        "BIND_COS": _binding(kernel, "cos"),
        "BIND_SIN": _binding(kernel, "sin"),
    }
    for name, layout in (("COS", cos.layout), ("SIN", sin.layout)):
        row, step = layout.strides
        parameters |= {f"{name}_START": layout.offset, f"{name}_ROW": row, f"{name}_STEP": step}
    return render_template("attention_rotary", parameters, {"interleaved": kernel.op.interleaved})  # type: ignore[attr-defined]


def _binding(kernel: AttentionKernel, name: str) -> int:
    """Number of the binding of an option's operand."""
    return 3 + list(kernel.extras).index(name)


def _strides(name: str, layout: Layout, axes: tuple[str, str, str]) -> dict[str, int]:
    """Strides of the last three axes as template parameters."""
    return {f"{name.upper()}_{axis}": stride for axis, stride in zip(axes, layout.strides[-3:], strict=True)}


def _batch_start(layout: Layout, inner: int) -> str:
    """Expression of `batch`, the linear index over the leading axes, for where that entry starts."""
    lead = len(layout.shape) - inner
    shape, strides = layout.shape[:lead], layout.strides[:lead]
    count = int(np.prod(shape, dtype=np.int64))
    coordinates = coordinates_of(Variable("batch", count), shape)
    return _text(weighted_sum(zip(coordinates, strides, strict=True), layout.offset))


def _text(index: Index) -> str:
    """WGSL of an index expression."""
    if isinstance(index, KnownIndex):
        return f"{index.value}u"
    if isinstance(index, Variable):
        return index.name
    if isinstance(index, Digit):
        quotient = f"{_text(index.base)} / {index.stride}u" if index.stride > 1 else _text(index.base)
        whole = index.base.bound <= index.stride * index.size
        return f"({quotient})" if whole else f"({quotient} % {index.size}u)"
    assert isinstance(index, Sum)
    terms = [f"{_text(t)} * {f}u" if f != 1 else _text(t) for t, f in index.terms]
    return "(" + " + ".join([*terms, *([f"{index.constant}u"] if index.constant else [])]) + ")"
